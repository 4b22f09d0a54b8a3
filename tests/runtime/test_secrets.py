"""Secrets: read anew for every policy, kept when they vanish, never shown."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from proxy.policy.snapshot import PolicySnapshot
from proxy.runtime.secrets import Secrets, secret_hash
from tests.policy.samples import load

POLICY = """\
version: 1
providers:
  a:
    base_url: http://127.0.0.1:1/v1
    headers: {x-team: search, x-token: {env: TOKEN}}
    keys: [{id: k1, file: KEYFILE}]
"""
PROVIDER = "version: 1\nproviders: {a: {base_url: 'http://127.0.0.1:1/v1'}}\n"


def policy(file: Path) -> PolicySnapshot:
    return load(POLICY.replace("KEYFILE", str(file)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    file.write_text("first-secret")
    return file


def value(secrets: Secrets, snapshot: PolicySnapshot) -> str:
    return secrets[snapshot.providers[0].keys[0].source]


def test_files_variables_and_literals_are_read(file: Path) -> None:
    secrets, snapshot = Secrets({"TOKEN": "t0"}), policy(file)
    assert secrets.read(snapshot) == []
    headers = {name: secrets[source] for name, source in snapshot.providers[0].headers}
    assert headers == {"x-team": "search", "x-token": "t0"}
    assert value(secrets, snapshot) == "first-secret"


@pytest.mark.parametrize("text", ["second\n", "  second", "\r\nsecond\r\n", "\tsecond \n\n"])
def test_white_space_around_a_value_is_trimmed(file: Path, text: str) -> None:
    secrets, snapshot = Secrets({"TOKEN": " t0 \n"}), policy(file)
    file.write_text(text)
    assert secrets.read(snapshot) == []
    assert value(secrets, snapshot) == "second"


def test_everything_that_is_missing_is_told_at_once_with_its_place(tmp_path: Path) -> None:
    lines = [str(problem) for problem in Secrets({}).read(policy(tmp_path / "none"))]
    assert len(lines) == 2
    assert any(
        "p.yaml:6:" in line and "providers.a.keys.0" in line and str(tmp_path / "none") in line for line in lines
    )
    assert any("p.yaml:5:" in line and "TOKEN" in line for line in lines)


@pytest.mark.parametrize("content", [b"", b" \n", b"hush\nhush", b"hush\0hush", b"\xff\xfehush", b"h\xc3\xa4sh-hush"])
def test_a_value_that_no_header_carries_is_a_problem_that_never_quotes_it(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    (problem,) = Secrets({"TOKEN": "t0"}).read(policy(file))
    assert str(file) in str(problem)
    assert "hush" not in str(problem)


@pytest.mark.parametrize("content", [None, b"", b"hush\nhush"])
def test_a_file_that_vanishes_or_spoils_later_keeps_its_last_value_and_says_so_once(
    file: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    secrets, snapshot = Secrets({"TOKEN": "t0"}), policy(file)
    secrets.read(snapshot)
    before = secrets.digest(snapshot)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert secrets.read(snapshot) == []
        assert secrets.read(snapshot) == []
    assert value(secrets, snapshot) == "first-secret"
    assert secrets.digest(snapshot) == before
    assert caplog.text.count(str(file)) == 1
    assert "hush" not in caplog.text


def test_after_it_came_back_the_next_loss_is_told_again(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    secrets, snapshot = Secrets({"TOKEN": "t0"}), policy(file)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            file.write_text("second")
            secrets.read(snapshot)
            file.unlink()
            secrets.read(snapshot)
    assert caplog.text.count(str(file)) == 2


def test_the_digest_changes_with_any_value_and_only_with_values_of_this_policy(file: Path, tmp_path: Path) -> None:
    secrets, snapshot = Secrets({"TOKEN": "t0"}), policy(file)
    secrets.read(snapshot)
    first = secrets.digest(snapshot)
    other = tmp_path / "other"
    other.write_text("x")
    secrets.read(policy(other))
    assert secrets.digest(snapshot) == first
    file.write_text("second-secret")
    secrets.read(snapshot)
    assert secrets.digest(snapshot) != first
    file.write_text("first-secret\n")
    secrets.read(snapshot)
    assert secrets.digest(snapshot) == first


def test_what_the_live_policy_does_not_name_is_forgotten(file: Path, tmp_path: Path) -> None:
    secrets, old, other = Secrets({"TOKEN": "t0"}), policy(file), tmp_path / "other"
    other.write_text("second-secret")
    new = policy(other)
    assert secrets.read(old) == secrets.read(new) == []
    secrets.forget_others(new)
    assert value(secrets, new) == "second-secret"
    with pytest.raises(KeyError):
        value(secrets, old)


def test_nothing_shows_a_value(file: Path) -> None:
    secrets, snapshot = Secrets({"TOKEN": "hush-hush"}), policy(file)
    secrets.read(snapshot)
    for shown in (repr(secrets), str(secrets), secrets.digest(snapshot), secret_hash("first-secret")):
        assert "hush" not in shown
        assert "first" not in shown


def test_hashes_tell_secrets_apart() -> None:
    assert secret_hash("a") == secret_hash("a") != secret_hash("b")


def test_the_password_of_a_store_is_read_watched_and_forgotten_like_a_key(file: Path) -> None:
    store = f"{{redis: 'redis://h', password: {{file: {file}}}}}"
    route = f"routes: [{{name: r, tiers: [{{provider: a}}], cache: {{ttl: 5m, store: {store}}}}}]\n"
    secrets, snapshot = Secrets({}), load(PROVIDER + route)
    assert secrets.read(snapshot) == []
    (one,) = snapshot.routes or ()
    assert one.cache_redis is not None
    assert one.cache_redis.password is not None
    assert secrets[one.cache_redis.password] == "first-secret"
    first = secrets.digest(snapshot)
    file.write_text("second-secret")
    secrets.read(snapshot)
    assert secrets.digest(snapshot) != first
    secrets.forget_others(load(PROVIDER))
    with pytest.raises(KeyError):
        secrets[one.cache_redis.password]
    file.unlink()
    (problem,) = secrets.read(snapshot)
    assert problem.path == "routes.0.cache.store.password.file"
