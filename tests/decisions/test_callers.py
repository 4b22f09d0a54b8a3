"""Callers: what a request says of who sent it, and what is kept of that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.callers import LONGEST_NAME, fingerprint, name_of
from proxy.fields import Fields, fields_of

SALT = b"0123456789abcdef"
SECRET = "sk-secret-of-a-caller"


def head(*fields: tuple[str, str | bytes]) -> Fields:
    """A request's head."""
    return fields_of((n.encode(), v if isinstance(v, bytes) else v.encode()) for n, v in fields)


@pytest.mark.parametrize(
    ("sent", "sources", "name"),
    [
        ([("X-Agent-Id", "a7")], ["x-agent-id"], "a7"),
        ([("x-agent-id", "  a7 ")], ["x-agent-id"], "a7"),
        ([("x-job", "j1"), ("x-agent-id", "a7")], ["x-agent-id", "x-job"], "a7"),
        ([("x-job", "j1")], ["x-agent-id", "x-job"], "j1"),
        ([("x-agent-id", ""), ("x-job", "j1")], ["x-agent-id", "x-job"], "j1"),
        ([("x-agent-id", "a7"), ("x-agent-id", "a8")], ["x-agent-id"], "a7"),
        ([("x-other", "a7")], ["x-agent-id"], "default"),
        ([], ["x-agent-id", None], "default"),
        ([("authorization", ""), ("x-api-key", " ")], [None], "default"),
        ([("x-agent-id", "a7")], [], "default"),
        ([("x-agent-id", "é")], ["x-agent-id"], "é"),
    ],
)
def test_the_first_source_that_is_present_names_the_caller(
    sent: list[tuple[str, str | bytes]], sources: list[str | None], name: str
) -> None:
    assert name_of(head(*sent), sources, SALT) == name


@given(st.binary(max_size=4 * LONGEST_NAME))
def test_whatever_is_sent_a_name_is_printable_and_short(value: bytes) -> None:
    name = name_of(head(("x-agent-id", value)), ["x-agent-id"], SALT)
    assert name.isprintable()
    assert 0 < len(name) <= LONGEST_NAME
    name.encode()


LONGEST = "a" * LONGEST_NAME


@pytest.mark.parametrize(
    ("value", "shown"), [("a\x07b", "a\\x07b~"), (b"\xff\xfe", "\\udcff\\udcfe~"), (LONGEST + "a", "a" * 111 + "~")]
)
def test_a_name_that_cannot_stay_as_it_is_is_nobody_elses(value: str | bytes, shown: str) -> None:
    def named(value: str | bytes, salt: bytes = SALT) -> str:
        return name_of(head(("x-agent-id", value)), ["x-agent-id"], salt)

    name = named(value)
    assert name.startswith(shown)
    assert name == named(value) != named(value, salt=b"another")
    others: list[str | bytes] = [shown, shown[:-1], LONGEST + "b", LONGEST, b"\xff", "a\x08b"]
    assert name not in {named(other) for other in others}


def test_a_credential_is_known_by_the_same_name_in_whichever_header_it_is() -> None:
    sent = [("authorization", f"Bearer {SECRET}"), ("x-api-key", SECRET), ("api-key", f" {SECRET} ")]
    (name,) = {name_of(head(field), [None], SALT) for field in sent}
    assert name.startswith("key-")


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key", "proxy-authorization"])
def test_nobody_is_called_by_a_credential_though_a_policy_names_its_header(header: str) -> None:
    name = name_of(head((header, f"Bearer {SECRET}")), [header], SALT)
    assert name == fingerprint(head(("authorization", f"Bearer {SECRET}")), SALT)


def test_who_brings_other_cookies_is_another_caller() -> None:
    one, other = (name_of(head(("cookie", f"session={who}; shared=1")), ["cookie"], SALT) for who in "ab")
    assert one != other
    assert one.startswith("key-")


def test_a_fingerprint_tells_nothing_of_the_credential_and_is_another_in_another_process() -> None:
    one = head(("authorization", f"Bearer {SECRET}"))
    names = {fingerprint(one, SALT), fingerprint(one, SALT[::-1]), fingerprint(head(("x-api-key", "sk-2")), SALT)}
    assert len(names) == 3
    assert not any(SECRET[i : i + 4] in name for name in names for i in range(len(SECRET) - 3))


def test_a_header_comes_before_a_credential_where_the_policy_says_so() -> None:
    both = head(("authorization", "Bearer s"), ("x-agent-id", "a7"))
    assert name_of(both, ["x-agent-id", None], SALT) == "a7"
    assert name_of(both, [None, "x-agent-id"], SALT) == fingerprint(both, SALT)
