from __future__ import annotations

from pathlib import Path

import pytest

from proxy.policy.secret_sources import LARGEST_SECRET, SecretProblem, read_value, secret_problems
from proxy.policy.snapshot import ValueSource
from tests.policy.samples import GOOD, ROUTE, load

SECRET = "sk-very-secret"


def test_a_value_is_trimmed(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"  {SECRET}\r\n")
    assert read_value(ValueSource(file=str(file)), {}) == SECRET
    assert read_value(ValueSource(env="KEY"), {"KEY": f"{SECRET}\n"}) == SECRET
    assert read_value(ValueSource(literal="as it is "), {}) == "as it is "


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"sk-very\nsecret\n", "has a control character inside"),
        (b"sk-very\x00secret", "has a control character inside"),
        (b"sk-very\xffsecret", "is not text"),
        ("sk-véry".encode(), "has a character that is not ASCII"),
        (b"sk-very" * LARGEST_SECRET, "is larger than 64 KiB"),
    ],
)
def test_a_bad_file_is_named_and_its_value_is_not(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "key"
    file.write_bytes(content)
    with pytest.raises(SecretProblem) as caught:
        read_value(ValueSource(file=str(file)), {})
    assert str(caught.value) == f"the file {file} {why}"
    assert caught.value.__cause__ is None


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecretProblem, match="the environment variable KEY is not set"):
        read_value(ValueSource(env="KEY"), {})
    with pytest.raises(SecretProblem, match=r"gone cannot be read: no such file or directory"):
        read_value(ValueSource(file=str(tmp_path / "gone")), {})
    with pytest.raises(SecretProblem, match="the environment variable KEY is empty"):
        read_value(ValueSource(env="KEY"), {"KEY": " "})


def test_all_problems_of_a_policy_have_their_place() -> None:
    policy = load(GOOD + "    keys: [{id: k, env: A}, {id: l, file: /gone/b}]\n    headers: {x: {env: C}, y: z}\n")
    assert [str(problem) for problem in secret_problems(policy, {"C": f"{SECRET}\tx"})] == [
        "p.yaml:5:25: providers.a.keys.0.env: the environment variable A is not set",
        "p.yaml:5:43: providers.a.keys.1.file: the file /gone/b cannot be read: no such file or directory",
        "p.yaml:6:24: providers.a.headers.x: the environment variable C has a control character inside",
    ]
    assert list(secret_problems(load(GOOD), {})) == []


STORE = "    cache: {ttl: 5m, store: {redis: 'redis://h', password: {%s}}}\n"


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("env: P", "password.env: the environment variable P is not set"),
        ("file: /gone/p", "password.file: the file /gone/p cannot be read: no such file or directory"),
    ],
)
def test_the_password_of_a_store_is_read_like_other_secrets(named: str, why: str) -> None:
    policy = load(GOOD + ROUTE + STORE % named)
    assert [str(one) for one in secret_problems(policy, {})] == [
        f"p.yaml:9:{_column(named)}: routes.0.cache.store.{why}"
    ]
    assert list(secret_problems(load(GOOD + ROUTE + STORE % "env: P"), {"P": SECRET})) == []


def _column(named: str) -> int:
    line = STORE % named
    return line.index(named) + named.index(" ") + 2


def test_a_store_without_password_needs_none() -> None:
    text = GOOD + ROUTE + "    cache: {ttl: 5m, store: {redis: 'redis://h'}}\n"
    assert list(secret_problems(load(text), {})) == []
