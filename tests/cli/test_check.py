from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli.check import command
from tests.policy.samples import GOOD, ROUTE

BAD = (
    "version: 1\nproviders:\n  a:\n    base_ulr: http://x/v1\n    limits: {concurrency: -3}\n"
    "    timeouts: {connect: fast}\nroutes:\n  - name: r\n    tiers: [{provider: nope}]\n"
)


def check(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    return path


def test_a_good_policy(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + ROUTE)
    assert check(path) == (0, f"{path}: ok (1 provider, 1 route)\n")


def test_all_problems_of_a_bad_one(tmp_path: Path) -> None:
    path = written(tmp_path, BAD)
    code, out = check(path)
    assert code == 1
    assert out.splitlines() == [
        f"{path}:4:5: providers.a.base_ulr: unknown name (did you mean base_url?)",
        f"{path}:5:27: providers.a.limits.concurrency: expected a whole number, 0 or more, found -3",
        f'{path}:6:25: providers.a.timeouts.connect: expected a duration such as 250ms, 5s, 10m or 1h, found "fast"',
        f'{path}:9:24: routes.0.tiers.0.provider: no provider "nope"; known: a',
        "4 problems",
    ]


def test_a_directory(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(ROUTE)
    assert check(tmp_path) == (0, f"{tmp_path}: ok (1 provider, 1 route)\n")
    (tmp_path / "b.yaml").write_text(ROUTE.replace("provider: a", "provider: b"))
    code, out = check(tmp_path)
    assert code == 1
    assert out.startswith(f"{tmp_path}/b.yaml:4:24: routes.0.tiers.0.provider: ")


def test_a_path_in_the_current_folder_stays_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    assert check("p.yaml")[1].startswith("p.yaml:1:1: policy: is empty")


def test_warnings_do_not_fail(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        GOOD + ROUTE + "  - {name: again, match: {path: /v1/chat/completions}, tiers: [{provider: a}]}\n",
    )
    code, out = check(path)
    assert code == 0
    assert f"{path}:9:12: routes.1.name: is never reached" in out


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "nope.yaml"
    assert check(path) == (1, f"{path}:1:1: policy: cannot be read: no such file or directory\n1 problem\n")


def test_secrets_are_looked_at_only_when_asked(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD + "    keys: [{id: k, env: SOME_KEY_OF_A_TEST}]\n")
    assert check(path)[0] == 0
    code, out = check("--secrets", path)
    assert code == 1
    assert f"{path}:5:25: providers.a.keys.0.env: the environment variable SOME_KEY_OF_A_TEST is not set" in out
    assert check("--secrets", path, env={"SOME_KEY_OF_A_TEST": "x"})[0] == 0
