from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.downstream.reply import SMALL_PIECE, trail
from proxy.exchange import Attempt, Facts
from proxy.fields import lines_of
from proxy.outcome import OutcomeKind
from tests.downstream.doubles import FakeArrival, FakeTransport, a_reply
from tests.downstream.visitor import Answer, read_answer
from tests.fakes import LIMITS

BODY = b"hello"
CASES = list(
    itertools.product(
        [(1, 0), (1, 1)],
        ["GET", "HEAD", "POST"],
        [200, 204, 205, 304, 404, 500],
        ["whole", "length", "unknown"],
        [False, True],
    )
)


def sent(arrival: FakeArrival) -> FakeTransport:
    assert arrival.transport is not None
    return arrival.transport


def answer_of(arrival: FakeArrival, *, head: bool = False) -> Answer:
    answer, rest = read_answer(sent(arrival).data, head=head)
    assert rest == b""
    return answer


@pytest.mark.parametrize(("version", "method", "status", "how", "wants_close"), CASES)
def test_exactly_one_framing(version: tuple[int, int], method: str, status: int, how: str, wants_close: bool) -> None:
    arrival = FakeArrival(wants_close=wants_close)
    reply, facts = a_reply(arrival, method=method, version=version)
    if how == "whole":
        reply.start(status, b"Oh", b"x-a: 1\r\n", length=len(BODY), body=BODY)
    else:
        reply.start(status, b"Oh", b"x-a: 1\r\n", length=len(BODY) if how == "length" else None)
        reply.write(BODY[:2])
        reply.write(BODY[2:])
        reply.finish()
    silent = method == "HEAD" or status in (204, 304)
    answer = answer_of(arrival, head=method == "HEAD")
    assert (answer.version, answer.status, answer.phrase) == (b"HTTP/1.1", status, b"Oh")
    assert (answer.body, answer.whole) == (b"" if silent else BODY, True)
    assert facts.answer_bytes == len(answer.body)
    framings = len(answer.all("content-length")) + len(answer.all("transfer-encoding"))
    ends_by_close = not silent and how == "unknown" and version == (1, 0)
    if status == 204:
        assert framings == 0
    elif how != "unknown":
        assert (answer.get("content-length"), framings) == (b"5", 1)
    else:
        assert framings == (0 if silent or ends_by_close else 1)
    assert reply.keeps_alive is not (wants_close or ends_by_close)
    said = answer.get("connection")
    if wants_close or ends_by_close:
        assert said == b"close"
    else:
        assert said == (b"keep-alive" if version == (1, 0) else None)


@given(st.lists(st.binary(max_size=3 * SMALL_PIECE), max_size=6))
def test_chunks_read_back(pieces: list[bytes]) -> None:
    arrival = FakeArrival()
    reply, facts = a_reply(arrival)
    reply.start(200, b"OK", b"", length=None)
    for piece in pieces:
        reply.write(piece)
    reply.finish()
    answer = answer_of(arrival)
    assert (answer.body, answer.whole) == (b"".join(pieces), True)
    assert facts.answer_bytes == len(answer.body)


@pytest.mark.parametrize("size", [0, 1, SMALL_PIECE, SMALL_PIECE + 1, 1 << 20])
def test_a_whole_answer_is_one_write(size: int) -> None:
    arrival = FakeArrival()
    reply, _ = a_reply(arrival)
    reply.start(200, b"OK", b"", length=size, body=bytes(size))
    reply.finish()
    assert len(sent(arrival).written) == 1
    assert answer_of(arrival).body == bytes(size)


def test_header_lines_stay_as_they_are() -> None:
    arrival = FakeArrival()
    reply, _ = a_reply(arrival)
    lines = [(b"Set-Cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"X-Title", b"caf\xe9"), (b"x-empty", b"")]
    reply.start(200, b"Tr\xe8s bien", lines_of(lines), length=0, body=b"")
    answer = answer_of(arrival)
    assert (answer.phrase, answer.headers[:4]) == (b"Tr\xe8s bien", tuple(lines))


@pytest.mark.parametrize("why", ["draining", "server closes", "body unread"])
def test_a_connection_that_will_not_be_used_again_says_so(why: str) -> None:
    arrival = FakeArrival(closing=why == "server closes", unread=why == "body unread")
    reply, _ = a_reply(arrival, closing=why == "draining", upload=object() if why == "body unread" else None)
    reply.start(200, b"OK", b"", length=0, body=b"")
    assert answer_of(arrival).get("connection") == b"close"
    assert not reply.keeps_alive


@pytest.mark.parametrize("length", [1000, None])
def test_an_aborted_answer_can_be_seen_to_be_cut_and_is_still_delivered(length: int | None) -> None:
    arrival = FakeArrival()
    reply, _ = a_reply(arrival)
    reply.start(200, b"OK", b"", length=length)
    reply.write(b"part")
    reply.abort()
    reply.finish()
    answer = answer_of(arrival)
    assert (answer.body, answer.whole, reply.keeps_alive) == (b"part", False, False)
    assert sent(arrival).end == "closed"


def test_an_aborted_answer_that_ends_with_its_connection_is_reset_not_closed() -> None:
    arrival = FakeArrival()
    reply, _ = a_reply(arrival, version=(1, 0))
    reply.start(200, b"OK", b"", length=None)
    reply.write(b"part")
    reply.abort()
    assert sent(arrival).end == "aborted"


def test_an_aborted_answer_to_a_client_that_does_not_read_is_not_waited_for() -> None:
    arrival = FakeArrival()
    reply, _ = a_reply(arrival)
    reply.start(200, b"OK", b"", length=None)
    arrival.paused = True
    reply.abort()
    assert sent(arrival).end == "aborted"


def test_nothing_is_written_after_the_end_of_the_connection() -> None:
    arrival = FakeArrival()
    reply, _ = a_reply(arrival)
    reply.start(200, b"OK", b"", length=None)
    before = sent(arrival).data
    reply.abort()
    reply.write(b"late")
    reply.write(bytes(SMALL_PIECE * 2))
    reply.finish()
    assert sent(arrival).data == before


def test_a_lost_connection_is_written_to_without_a_failure() -> None:
    arrival = FakeArrival()
    arrival.transport = None
    reply, _ = a_reply(arrival)
    reply.start(200, b"OK", b"", length=None)
    reply.write(b"x")
    reply.write(bytes(SMALL_PIECE * 2))
    reply.finish()
    reply.abort()
    assert reply.started


def an_attempt(number: int, **changes: object) -> Attempt:
    attempt = Attempt(number=number, tier=number, provider="alpha", model="m", limits=LIMITS)
    attempt.started_at, attempt.ended_at, attempt.kind = 10.0, 10.25, OutcomeKind.RATE_LIMITED
    attempt.key_id, attempt.status = "a1", 429
    for name, value in changes.items():
        setattr(attempt, name, value)
    return attempt


def test_every_answer_is_stamped() -> None:
    arrival = FakeArrival()
    reply, facts = a_reply(arrival)
    facts.provider, facts.tier, facts.attempts = "alpha", 2, [an_attempt(1), an_attempt(2)]
    reply.start(200, b"OK", b"", length=0, body=b"")
    answer = answer_of(arrival)
    stamps = {name: value for name, value in answer.headers if name.startswith(b"x-sponson")}
    assert stamps == {
        b"x-sponson-request-id": b"r1",
        b"x-sponson-provider": b"alpha",
        b"x-sponson-tier": b"2",
        b"x-sponson-attempts": b"2",
    }


def test_an_answer_that_no_provider_gave_names_none() -> None:
    arrival = FakeArrival()
    reply, _ = a_reply(arrival)
    reply.start(404, b"Not Found", b"", length=0, body=b"")
    answer = answer_of(arrival)
    assert (answer.get("x-sponson-attempts"), answer.get("x-sponson-provider")) == (b"0", None)
    assert answer.get("x-sponson-trail") is None


def test_the_trail_is_given_to_who_asks_for_it() -> None:
    arrival = FakeArrival()
    reply, facts = a_reply(arrival, headers=[("X-Sponson-Trail", "1")])
    facts.attempts = [an_attempt(1), an_attempt(2, status=0, key_id="", kind=OutcomeKind.CONNECT_TIMEOUT)]
    reply.start(504, b"Gateway Timeout", b"", length=0, body=b"")
    assert answer_of(arrival).get("x-sponson-trail") == (
        b"tier=1;provider=alpha;key=a1;status=429;reason=rate_limited;ms=250, "
        b"tier=2;provider=alpha;key=-;status=-;reason=connect_timeout;ms=250"
    )


def test_the_attempt_whose_answer_this_is_has_not_ended_yet() -> None:
    facts = Facts(request_id="r1", arrived_at=9.0, arrived_ns=0)
    facts.first_byte_at = 10.5
    facts.attempts = [an_attempt(1, ended_at=0.0, status=200, kind=OutcomeKind.BUG)]
    assert trail(facts) == "tier=1;provider=alpha;key=a1;status=200;reason=ok;ms=500"
