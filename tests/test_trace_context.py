"""W3C trace context in and out, and the sampling decision."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.trace_context import Sampler, join_trace, parse_traceparent, traceparent_of

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"
ALWAYS, NEVER = Sampler(ratio=1.0), Sampler(ratio=0.0)

ids = st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1)


@given(*ids, st.booleans())
def test_what_is_formatted_is_read_back(trace: int, span: int, sampled: bool) -> None:
    assert parse_traceparent(traceparent_of(trace, span, sampled=sampled)) == (trace, span, sampled)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "00",
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-more",
        PARENT.replace("00-", "ff-", 1),
        f"00-{0:032x}-{SPAN:016x}-01",
        f"00-{TRACE:032x}-{0:016x}-01",
        f"00-{TRACE:032x}-{SPAN:016x}-0g",
        PARENT + "\n" + PARENT,
    ],
)
def test_what_is_no_traceparent_is_none(value: str) -> None:
    assert parse_traceparent(value) is None


def test_a_later_version_may_bring_more() -> None:
    assert parse_traceparent(PARENT.replace("00-", "01-", 1) + "-more") == (TRACE, SPAN, True)


def test_other_flags_do_not_sample() -> None:
    assert parse_traceparent(PARENT[:-2] + "02") == (TRACE, SPAN, False)


def test_the_callers_trace_goes_on_under_a_span_of_ours() -> None:
    trace = join_trace(PARENT, "vendor=1", sampler=ALWAYS, bits=random.Random(1).getrandbits)
    assert (trace.trace_id, trace.parent_span_id, trace.remote) == (TRACE, SPAN, True)
    assert trace.tracestate == "vendor=1"
    assert trace.span_id not in (0, SPAN)


@pytest.mark.parametrize("parent", [None, "", "no trace"])
def test_without_a_parent_a_trace_begins_and_no_state_is_kept(parent: str | None) -> None:
    trace = join_trace(parent, "vendor=1", sampler=ALWAYS, bits=random.Random(1).getrandbits)
    assert trace.trace_id
    assert trace.span_id
    assert (trace.parent_span_id, trace.remote, trace.tracestate) == (0, False, "")


def test_ids_are_never_zero() -> None:
    trace = join_trace(None, "", sampler=ALWAYS, bits=lambda count: 0)
    assert trace.trace_id
    assert trace.span_id


@pytest.mark.parametrize("caller_sampled", [True, False])
def test_the_callers_decision_is_followed(caller_sampled: bool) -> None:
    sampler = NEVER if caller_sampled else ALWAYS
    parent = traceparent_of(TRACE, SPAN, sampled=caller_sampled)
    assert join_trace(parent, "", sampler=sampler, bits=lambda count: 5).sampled is caller_sampled


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_the_callers_decision_is_left_where_the_sampler_does_not_follow(ratio: float) -> None:
    sampler = Sampler(ratio=ratio, follow_parent=False)
    assert sampler.decide(TRACE, parent_sampled=ratio == 0.0) is (ratio == 1.0)


@given(st.integers(0, 2**128 - 1))
def test_a_ratio_of_one_takes_all_and_of_zero_none(trace: int) -> None:
    assert ALWAYS.decide(trace, parent_sampled=None)
    assert not NEVER.decide(trace, parent_sampled=None)


def test_a_ratio_takes_its_part() -> None:
    bits, sampler = random.Random(4), Sampler(ratio=0.25)
    taken = sum(sampler.decide(bits.getrandbits(128), parent_sampled=None) for _ in range(4000))
    assert 850 < taken < 1150


@given(st.integers(0, 2**128 - 1), st.floats(0, 1), st.floats(0, 1))
def test_who_is_sampled_by_a_small_ratio_is_sampled_by_a_larger_one(trace: int, one: float, other: float) -> None:
    small, large = sorted((one, other))
    if Sampler(ratio=small).decide(trace, parent_sampled=None):
        assert Sampler(ratio=large).decide(trace, parent_sampled=None)
