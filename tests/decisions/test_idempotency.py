"""Idempotency: which requests are the same, and after which ends a key is free, answered, or of unknown fate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.idempotency import (
    NO_MARK,
    NoKey,
    credential_of,
    fate_of,
    mark_of,
    name_of,
    read_key,
    was_sent,
)
from proxy.exchange import Attempt
from proxy.fields import Fields, fields_of
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.ports import Fate
from tests.fakes import LIMITS, Ask, FakeUpload, make_request

THREE = ("x-agent-id", "x-task-id", "x-operation")


def fields(**values: str) -> Fields:
    return fields_of((name.replace("_", "-").encode(), value.encode()) for name, value in values.items())


def test_a_single_header_is_the_key_as_it_came() -> None:
    assert read_key(("idempotency-key",), fields(Idempotency_Key='"a b/ü"')) == '"a b/ü"'


def test_several_headers_are_joined_in_their_order() -> None:
    found = read_key(THREE, fields(x_operation="3", x_task_id="t 2", x_agent_id="a:1"))
    assert found == "a%3A1:t%202:3"


values = st.lists(st.text(st.sampled_from("a:%3A/"), min_size=1, max_size=4), min_size=3, max_size=3)


@given(values, values)
def test_other_values_give_another_key(one: list[str], other: list[str]) -> None:
    def key(parts: list[str]) -> str | NoKey:
        return read_key(THREE, fields_of(zip(map(str.encode, THREE), map(str.encode, parts), strict=True)))

    assert isinstance(key(one), str)
    assert (key(one) == key(other)) == (one == other)


@pytest.mark.parametrize(
    ("given_values", "named"),
    [
        ({"x_agent_id": "a"}, "missing: x-task-id, x-operation"),
        ({}, "missing: x-agent-id, x-task-id, x-operation"),
        ({"x_agent_id": "a", "x_task_id": " ", "x_operation": "1"}, "x-task-id is empty"),
    ],
)
def test_a_part_that_is_missing_is_named(given_values: dict[str, str], named: str) -> None:
    found = read_key(THREE, fields(**given_values))
    assert isinstance(found, NoKey)
    assert named in found.detail


def test_a_header_that_stands_there_twice_is_no_key() -> None:
    found = read_key(("idempotency-key",), fields_of([(b"idempotency-key", b"1"), (b"Idempotency-Key", b"2")]))
    assert isinstance(found, NoKey)


parts = st.lists(st.binary(max_size=6), max_size=4)


@given(parts, parts)
def test_a_name_tells_lists_of_parts_apart_however_they_are_cut(one: list[bytes], other: list[bytes]) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)


def test_the_same_request_has_the_same_mark() -> None:
    first = mark_of(make_request(Ask()))
    assert mark_of(make_request(Ask(headers=(("x-other", "1"),)))) == first
    others = [Ask(method="PUT"), Ask(target="/v1/chat/completions?a=1"), Ask(target="/v1/other"), Ask(body=b"{}")]
    assert len({first, *(mark_of(make_request(ask)) for ask in others)}) == 5
    assert mark_of(make_request(Ask(upload=FakeUpload([b"x"])))) == NO_MARK


def test_a_credential_is_every_header_of_it_with_all_its_values() -> None:
    found = fields_of([(b"x-api-key", b"one"), (b"Authorization", b"Bearer two"), (b"x-api-key", b"three")])
    assert list(credential_of(found, ("authorization", "x-api-key", "cookie"))) == [
        b"authorization",
        b"Bearer two",
        b"x-api-key",
        b"one\nthree",
    ]


K = OutcomeKind
SURELY_NOT = [
    (refused(Reason.QUEUE_FULL), False),
    (refused(Reason.BREAKER_OPEN), True),
    (Outcome(K.UNREACHABLE), False),
    (Outcome(K.CONNECT_TIMEOUT), False),
    (Outcome(K.RATE_LIMITED, status=429), True),
    (Outcome(K.CREDENTIAL_REJECTED, status=401), True),
    (Outcome(K.UPSTREAM_ERROR, status=503), True),
    (Outcome(K.UPSTREAM_ERROR, status=500, committed=True), True),
    (Outcome(K.CALLER_ERROR, status=400, committed=True), True),
    (Outcome(K.ERROR_IN_ANSWER, status=200), True),
    (Outcome(K.DISCONNECTED, detail="a 408 on a reused connection"), True),
    (Outcome(K.TOTAL_TIMEOUT), False),
    (Outcome(K.ANSWERED, status=200, committed=True), False),
    (Outcome(K.CLIENT_LEFT), False),
    (Outcome(K.DRAINED), False),
    (Outcome(K.BUG), False),
]
MAYBE = [
    (Outcome(K.DISCONNECTED, maybe_executed=True), True),
    (Outcome(K.BAD_ANSWER, maybe_executed=True), True),
    (Outcome(K.FIRST_BYTE_TIMEOUT, maybe_executed=True), True),
    (Outcome(K.ANSWER_TIMEOUT, maybe_executed=True), True),
    (Outcome(K.TOTAL_TIMEOUT, maybe_executed=True), True),
    (Outcome(K.UPSTREAM_ERROR, maybe_executed=True), True),
    (Outcome(K.IDLE_TIMEOUT, committed=True), True),
    (Outcome(K.STREAM_TIMEOUT, committed=True), True),
    (Outcome(K.STREAM_BROKEN, committed=True), True),
    (Outcome(K.ERROR_IN_ANSWER, committed=True), True),
    (Outcome(K.CLIENT_LEFT), True),
    (Outcome(K.DRAINED), True),
    (Outcome(K.BUG), True),
]
OF_AN_OUTCOME = [*[(o, s, None) for o, s in SURELY_NOT], *[(o, s, Fate.UNKNOWN) for o, s in MAYBE]]


@pytest.mark.parametrize(("outcome", "sent", "fate"), OF_AN_OUTCOME, ids=lambda value: str(value))
def test_a_key_is_free_again_only_where_surely_nothing_was_executed(
    outcome: Outcome, sent: bool, fate: Fate | None
) -> None:
    assert fate_of(outcome, repeatable=False, sent=sent) is fate
    assert fate_of(outcome, repeatable=True, sent=sent) is None


def test_an_answer_is_an_answer() -> None:
    for repeatable in (False, True):
        assert fate_of(Outcome(K.OK, committed=True), repeatable=repeatable, sent=True) is Fate.ANSWERED


def test_no_kind_of_end_was_forgotten() -> None:
    assert {outcome.kind for outcome, _, _ in OF_AN_OUTCOME} | {K.OK} == set(K)


@pytest.mark.parametrize(
    ("sent_bytes", "status", "sent"), [(0, 0, False), (10, 0, True), (10, 200, True), (10, 503, False)]
)
def test_what_was_sent_and_not_refused_is_on_its_way(sent_bytes: int, status: int, sent: bool) -> None:
    attempt = Attempt(1, 1, "alpha", "m1", LIMITS)
    attempt.sent_bytes, attempt.status = sent_bytes, status
    assert was_sent([attempt]) is sent
    assert not was_sent([])
