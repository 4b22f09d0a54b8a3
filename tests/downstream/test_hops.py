"""Hops: a request that was here before, and one that may go no further, end here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.body import Body
from proxy.downstream.arrival import Arrival
from proxy.downstream.hops import hop_problem
from proxy.downstream.wire import Connection
from proxy.fields import Fields, Shape
from proxy.outcome import Reason
from tests.downstream.doubles import data_server, reading
from tests.downstream.visitor import read_answer, talk

OURS = "sponson-00c0ffee0123"
OTHERS = [
    "1.1 sponson-00c0ffee0124",
    "1.0 edge",
    "HTTP/1.1 edge:8080 (made by hand)",
    f"1.1 edge ({OURS})",
    f"1.1 x{OURS}",
]


def arrived(*lines: tuple[bytes, bytes], method: str = "POST") -> Arrival:
    """A request with these fields."""
    fields = Fields(Shape(tuple(name for name, _ in lines)), [value for _, value in lines])
    body = Body.__new__(Body)
    return Arrival(Connection.__new__(Connection), method, "/p", fields, body)


@given(
    members=st.lists(st.sampled_from(OTHERS), max_size=4),
    at=st.none() | st.integers(0, 4),
    joined=st.booleans(),
    protocol=st.sampled_from(["1.1", "1.0", "HTTP/1.1", "2"]),
)
def test_our_own_name_is_found_wherever_it_stands_and_no_other(
    members: list[str], at: int | None, joined: bool, protocol: str
) -> None:
    if at is not None:
        members.insert(at, f"{protocol} {OURS}")
    texts = [" , ".join(members)] if joined and members else members
    problem = hop_problem(arrived(*((b"Via", text.encode()) for text in texts)), OURS)
    assert (problem is not None) is (at is not None)
    assert problem is None or problem.reason is Reason.LOOP_DETECTED


@pytest.mark.parametrize("line", [b"", b",", b"1.1", b" , \t,", b"\xff\xfe", OURS.encode()])
def test_a_via_that_is_none_names_nobody(line: bytes) -> None:
    assert hop_problem(arrived((b"via", line)), OURS) is None
    assert hop_problem(arrived((b"via", line)), "") is None


@pytest.mark.parametrize(
    ("told", "passed"),
    [(b"1", b"0"), (b"10", b"9"), (b"007", b"6"), (b"999999999", b"999999998"), (b"9" * 5000, b"999999999")],
)
def test_options_goes_one_hop_less_far(told: bytes, passed: bytes) -> None:
    arrival = arrived((b"x", b"y"), (b"Max-Forwards", told), method="OPTIONS")
    assert hop_problem(arrival, OURS) is None
    assert arrival.fields.lines == [b"y", passed]


@pytest.mark.parametrize("told", [b"0", b"000", b"", b"-1", b"+1", b"1.5", b"1, 2", b"\xd9\xa3"])
def test_options_that_may_go_no_further_is_answered_here(told: bytes) -> None:
    problem = hop_problem(arrived((b"max-forwards", told), method="OPTIONS"), OURS)
    assert problem is not None
    assert (problem.reason, "Max-Forwards" in problem.detail) == (Reason.BAD_REQUEST, True)


def test_two_numbers_of_hops_are_none() -> None:
    arrival = arrived((b"max-forwards", b"1"), (b"Max-Forwards", b"1"), method="OPTIONS")
    assert hop_problem(arrival, OURS) is not None


def test_other_methods_pass_the_number_on_as_it_came() -> None:
    arrival = arrived((b"max-forwards", b"0"))
    assert (hop_problem(arrival, OURS), arrival.fields.lines) == (None, [b"0"])


async def test_what_was_here_before_enters_no_pipeline_and_its_connection_goes_on() -> None:
    loops = (
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nvia: 1.1 a, 1.1 %b\r\ncontent-length: 2\r\n\r\n{}" % OURS.encode()
    )
    async with data_server(reading) as running:
        running.server.pseudonym = OURS
        data = await talk(running.port, loops + b"GET /on HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        first, rest = read_answer(data)
        assert (first.status, first.get("x-sponson-reason"), first.get("connection")) == (508, b"loop_detected", None)
        assert b'"type":"error"' in first.body
        assert read_answer(rest)[0].get("x-target") == b"/on"
        assert running.front.targets == ["/on"]
