from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli.diff import AGAIN, PLAIN_WIDTH, command
from tests.policy.samples import GOOD, ROUTE

KEYED = GOOD + "    keys: [{id: k, env: SOME_KEY_OF_A_TEST}]\n    limits: {concurrency: 9}\n"


def diff(*arguments: object, env: dict[str, str] | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], env=env)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.output


def pair(tmp_path: Path, old: str, new: str) -> tuple[Path, Path]:
    paths = tmp_path / "old.yaml", tmp_path / "new.yaml"
    for path, text in zip(paths, (old, new), strict=True):
        path.write_text(text)
    return paths


def test_no_difference(tmp_path: Path) -> None:
    old, new = pair(tmp_path, KEYED + ROUTE, f"# a comment\n{KEYED}{ROUTE}")
    code, out = diff(old, new)
    assert code == 0
    assert out == (
        f"{old} → {new}\n\nNo difference: a reload keeps everything as it is (1 provider, 1 key, 1 route).\n"
    )


def test_differences_stand_in_columns_with_what_they_do_below(tmp_path: Path) -> None:
    old, new = pair(tmp_path, KEYED, KEYED.replace("9}", "4}\n    timeouts: {idle: 9s}"))
    code, out = diff(old, new)
    assert code == 0
    assert out.splitlines()[1:] == [
        "",
        "~ provider a",
        "    limits.concurrency    9 → 4     next decision",
        "    timeouts.idle         30s → 9s  new requests",
        "    share of an instance  9 → 4     next decision; 4 / 1",
        "    most that may wait    18 → 8    next decision",
        "    - permits of a that are in use stay counted: nobody new goes until fewer than 4 are in use",
        "    - who waits keeps its place; newcomers get queue_full until fewer than 8 wait",
        "    - kept: breakers, permits of its limit, permits of its connections, queue places, keys, connections",
        "",
        "Unchanged: 1 key.",
        "next decision: the new value counts for calls that run or wait already, too.",
        "new requests: requests that began before the reload end by the old value.",
    ]


def test_what_is_new_has_no_value_before_and_may_go_on(tmp_path: Path) -> None:
    code, out = diff(*pair(tmp_path, GOOD, GOOD + "  b: {base_url: http://127.0.0.1:2}\n"))
    assert code == 0
    assert "+ provider b\n    base_url  http://127.0.0.1:2\n" in out
    assert "    /b/v1/chat/completions  404 no_route → b alone\n" not in out  # without routes anything went to a
    assert "    /b/v1/chat/completions  a alone → b alone\n" in out
    assert out.endswith(f"{AGAIN}\n")


def test_surprises_are_marked_and_long_sentences_are_folded(tmp_path: Path) -> None:
    _, out = diff(*pair(tmp_path, KEYED, GOOD))
    assert "    ! no concurrency limit any more: only connections.max (100) bounds it\n" in out
    assert max(map(len, out.splitlines()[1:])) <= PLAIN_WIDTH


def test_no_secret_is_needed_or_read(tmp_path: Path) -> None:
    secret = "a-secret-of-this-test"
    old, new = pair(tmp_path, KEYED, KEYED.replace("env: SOME_KEY_OF_A_TEST", f"file: {tmp_path}/nothing"))
    code, out = diff(old, new, env={"SOME_KEY_OF_A_TEST": secret})
    assert code == 0
    assert "env SOME_KEY_OF_A_TEST → file " in out
    assert secret not in out


def test_shares_are_of_the_instance_that_the_environment_names(tmp_path: Path) -> None:
    old, new = pair(tmp_path, KEYED, KEYED + "fleet: {size: {static: 5}}\n")
    assert "9 → 1" in diff(old, new)[1]
    shares = [diff(old, new, env={"SPONSON_INSTANCE_INDEX": str(index)})[1] for index in range(5)]
    assert sum(" 9 → 2 " in out for out in shares) == 4
    assert diff(old, new, env={"SPONSON_INSTANCE_INDEX": "first"})[0] == 2


def test_problems_are_reported_as_check_does(tmp_path: Path) -> None:
    old, new = pair(tmp_path, KEYED, KEYED.replace("9}", "-1}"))
    assert diff(old, new) == (
        1,
        f"{new}:6:27: providers.a.limits.concurrency: expected a whole number, 0 or more, found -1\n1 problem\n",
    )
    assert diff(new, old)[0] == 1
    code, out = diff(new, new)
    assert (code, len(out.splitlines())) == (1, 2)


def test_problems_of_both_are_reported_at_once(tmp_path: Path) -> None:
    old, new = pair(tmp_path, "version: 2\n", KEYED.replace("9}", "-1}"))
    code, out = diff(old, new)
    assert code == 1
    assert f"{old}:1:10: version: " in out
    assert f"{new}:6:27: " in out


def test_what_cannot_be_read(tmp_path: Path) -> None:
    old, new = pair(tmp_path, KEYED, KEYED.replace("9}", "-1}"))
    nothing = tmp_path / "nothing"
    for paths in ((old, nothing), (nothing, old), (nothing, new)):
        code, out = diff(*paths)
        assert code == 2
        assert f"{nothing}:1:1: policy: cannot be read: no such file or directory\n" in out


def test_directories(tmp_path: Path) -> None:
    for name, text in (("old", ROUTE), ("new", ROUTE.replace("chat\n", "talk\n"))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.yaml").write_text(GOOD)
        (folder / "b.yaml").write_text(text)
    code, out = diff(tmp_path / "old", tmp_path / "new")
    assert code == 0
    assert "+ route talk" in out
    assert "- route chat" in out


def test_only_warnings_that_are_new_are_repeated(tmp_path: Path) -> None:
    shadowed = ROUTE + "  - {name: again, match: {path: /v1/chat/completions}, tiers: [{provider: a}]}\n"
    old, new = pair(tmp_path, GOOD + ROUTE, GOOD + shadowed)
    assert diff(old, new)[1].endswith("takes all of its requests before (warning)\n")
    assert "(warning)" not in diff(new, new)[1]


@pytest.mark.parametrize("arguments", [[], ["one"], ["one", "two", "three"]])
def test_it_takes_two_policies(arguments: list[str]) -> None:
    assert diff(*arguments)[0] == 2
