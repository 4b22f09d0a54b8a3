from __future__ import annotations

import orjson
import pytest

from proxy.dialects.lookup import dialect_named, operation_of
from proxy.downstream.rescue import PHRASES, reason_of, rescue
from proxy.exchange import Exchange
from proxy.fields import pairs_of
from proxy.outcome import LOCAL_REASON, STATUS, KeptAnswer, Outcome, OutcomeKind, Reason, refused
from tests.fakes import Ask, FakeReply, make_exchange

DIALECTS = ["openai", "anthropic", "opaque"]
KEPT = KeptAnswer(status=529, phrase=b"Overloaded", lines=b"x-up: 1\r\nX-Should-Retry: true\r\n", body=b'{"error":{}}')
UNAUTHORIZED = KeptAnswer(status=401, phrase=b"Unauthorized", lines=b"", body=b'{"error":{"message":"bad sk-ours"}}')
# Outcomes that carry an answer or have begun one; nobody is answered for them.
NEVER_LOCAL = {OutcomeKind.OK, OutcomeKind.ANSWERED, OutcomeKind.CLIENT_LEFT, OutcomeKind.REFUSED, OutcomeKind.BUG}


def an_exchange(dialect: str | None = "openai", *, stream: bool = False, method: str = "POST") -> Exchange:
    exchange = make_exchange(Ask(stream=stream, method=method))
    exchange.dialect = dialect_named(dialect) if dialect is not None else None
    return exchange


def rescued(exchange: Exchange, outcome: Outcome) -> FakeReply:
    rescue(exchange, outcome)
    assert isinstance(exchange.reply, FakeReply)
    return exchange.reply


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_status_its_header_and_a_body_in_the_caller_s_dialect(
    reason: Reason, dialect: str
) -> None:
    outcome = refused(reason, retry_after=1.2, detail="do this")
    reply = rescued(an_exchange(dialect), outcome)
    assert (reply.status, reply.phrase, reply.end) == (STATUS[reason], PHRASES[STATUS[reason]], "finished")
    assert reply.header(b"x-sponson-reason") == reason.value.encode()
    assert reply.header(b"content-type") == b"application/json"
    assert reply.header(b"retry-after") == b"2"
    never_again = reason in (Reason.MAYBE_EXECUTED, Reason.IDEMPOTENCY_CONFLICT, Reason.LOOP_DETECTED)
    assert reply.header(b"x-should-retry") == (b"false" if never_again else None)
    document = orjson.loads(reply.body)
    assert (document["error"]["code"], document["error"]["message"]) == (reason.value, "do this")
    assert document["request_id"] == "r1"
    assert (document.get("type") == "error") is (dialect == "anthropic")


@pytest.mark.parametrize("reason", [Reason.TENANT_LIMIT, Reason.QUOTA_EXHAUSTED])
def test_a_limit_that_no_wait_cures_says_so_to_callers_that_retry(reason: Reason) -> None:
    reply = rescued(an_exchange("openai"), refused(reason, detail="more than a minute's tokens"))
    assert (reply.status, reply.header(b"retry-after"), reply.header(b"x-should-retry")) == (429, None, b"false")


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind in LOCAL_REASON])
def test_every_failure_without_an_answer_has_a_reason_and_says_what_to_do(kind: OutcomeKind) -> None:
    reply = rescued(an_exchange(), Outcome(kind, detail="ServerDisconnectedError before the head"))
    reason = LOCAL_REASON[kind]
    assert (reply.status, reply.header(b"x-sponson-reason")) == (STATUS[reason], reason.value.encode())
    message = orjson.loads(reply.body)["error"]["message"]
    assert message
    assert "Error" not in message


def test_no_kind_of_failure_was_forgotten() -> None:
    without = {kind for kind in OutcomeKind if reason_of(Outcome(kind)) is None}
    assert without <= NEVER_LOCAL


def test_a_caller_s_own_error_is_a_bad_request() -> None:
    reply = rescued(an_exchange(), Outcome(OutcomeKind.CALLER_ERROR, detail="the request's body: cut"))
    assert (reply.status, reply.header(b"x-sponson-reason")) == (400, b"bad_request")


def test_a_bug_is_a_plain_500_that_tells_nothing() -> None:
    reply = rescued(an_exchange(), Outcome(OutcomeKind.BUG, detail="KeyError: 'secret'"))
    assert (reply.status, reply.header(b"x-sponson-reason")) == (500, None)
    assert b"secret" not in reply.body


def test_a_caller_of_no_known_dialect_is_answered_in_the_most_common_one() -> None:
    assert orjson.loads(rescued(an_exchange(None), refused(Reason.NO_ROUTE)).body)["error"]["code"] == "no_route"


@pytest.mark.parametrize(("seconds", "said"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.01, b"2"), (59.5, b"60")])
def test_a_wait_is_told_in_whole_seconds_and_never_too_early(seconds: float, said: bytes) -> None:
    assert rescued(an_exchange(), refused(Reason.KEYS_RESTING, retry_after=seconds)).header(b"retry-after") == said


def test_an_unknown_wait_is_not_told() -> None:
    assert rescued(an_exchange(), refused(Reason.QUEUE_FULL)).header(b"retry-after") is None


def test_the_reason_that_was_told_is_recorded() -> None:
    outcome = Outcome(OutcomeKind.UNREACHABLE)
    rescued(an_exchange(), outcome)
    assert outcome.reason is Reason.UPSTREAM_UNREACHABLE


def test_a_kept_answer_is_relayed_as_it_came() -> None:
    reply = rescued(an_exchange(), Outcome(OutcomeKind.UPSTREAM_ERROR, status=529, answer=KEPT))
    assert (reply.status, reply.phrase, reply.body) == (529, b"Overloaded", KEPT.body)
    assert (reply.headers, reply.length, reply.end) == (pairs_of(KEPT.lines), len(KEPT.body), "finished")


@pytest.mark.parametrize("answer", [KEPT, None])
def test_when_retries_were_spent_the_caller_is_told_not_to_retry(answer: KeptAnswer | None) -> None:
    outcome = Outcome(OutcomeKind.UPSTREAM_ERROR, status=529, answer=answer)
    outcome.retries_spent = True
    reply = rescued(an_exchange(), outcome)
    hints = [value for name, value in reply.headers if name.lower() == b"x-should-retry"]
    assert hints == [b"false"]


def rejected(*, fault: bool = True, own_key: bool = True, status: int = 401) -> FakeReply:
    outcome = Outcome(OutcomeKind.CREDENTIAL_REJECTED, status=status, answer=UNAUTHORIZED, key_fault=fault)
    outcome.own_key = own_key
    return rescued(an_exchange(), outcome)


def test_our_key_s_401_never_reaches_the_caller() -> None:
    reply = rejected()
    assert (reply.status, reply.header(b"x-sponson-reason")) == (502, b"keys_unusable")
    assert b"sk-ours" not in reply.body


def test_the_caller_s_own_401_is_the_caller_s() -> None:
    assert rejected(own_key=False).status == 401


def test_a_403_that_does_not_blame_the_key_is_relayed() -> None:
    assert rejected(fault=False, status=403).status == UNAUTHORIZED.status


@pytest.mark.parametrize("length", [None, 0, 4711])
def test_a_failing_answer_to_head_claims_the_length_that_it_came_with(length: int | None) -> None:
    answer = KeptAnswer(status=500, phrase=b"Oh", lines=b"", body=b"", length=length)
    exchange = an_exchange(method="HEAD")
    reply = rescued(exchange, Outcome(OutcomeKind.UPSTREAM_ERROR, status=500, answer=answer))
    assert (reply.length, reply.body) == (length, b"")


@pytest.mark.parametrize(("status", "phrase"), [(414, b"URI Too Long"), (431, b"Request Header Fields Too Large")])
def test_a_refusal_may_have_a_status_that_says_more_than_its_reason(status: int, phrase: bytes) -> None:
    reply = rescued(an_exchange(), refused(Reason.BAD_REQUEST, detail="send less", status=status))
    assert (reply.status, reply.phrase) == (status, phrase)
    assert (b"x-sponson-reason", b"bad_request") in reply.headers
    assert orjson.loads(reply.body)["error"]["type"] == "invalid_request_error"


def test_a_failing_answer_whose_body_came_has_the_length_of_that() -> None:
    answer = KeptAnswer(status=500, phrase=b"Oh", lines=b"", body=b"four", length=9)
    assert rescued(an_exchange(), Outcome(OutcomeKind.UPSTREAM_ERROR, status=500, answer=answer)).length == 4


def begun(*, stream: bool, dialect: str | None = "openai") -> Exchange:
    exchange = an_exchange(dialect, stream=stream)
    exchange.reply.start(200, b"OK", b"", length=None)
    exchange.reply.write(b"data: {}\n\n")
    exchange.takes_event = stream
    return exchange


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_cannot_go_on_ends_with_an_error_event_and_an_abort(dialect: str) -> None:
    reply = rescued(begun(stream=True, dialect=dialect), Outcome(OutcomeKind.DRAINED))
    assert reply.end == "aborted"
    event = reply.body.removeprefix(b"data: {}\n\n")
    data = next(line for line in event.split(b"\n") if line.startswith(b"data: "))
    assert orjson.loads(data[6:])["error"]["code"] == "shutting_down"
    assert event.endswith(b"\n\n")
    assert b"[DONE]" not in event


def test_the_event_has_the_shape_of_the_operation() -> None:
    exchange = begun(stream=True)
    exchange.operation = operation_of("/v1/responses")
    event = rescued(exchange, Outcome(OutcomeKind.DRAINED)).body.removeprefix(b"data: {}\n\n")
    assert event.startswith(b'event: error\ndata: {"type":"error",')


def test_half_an_event_is_not_completed_by_ours() -> None:
    exchange = begun(stream=True)
    exchange.takes_event = False
    reply = rescued(exchange, Outcome(OutcomeKind.DRAINED))
    assert (reply.body, reply.end) == (b"data: {}\n\n", "aborted")


@pytest.mark.parametrize(("stream", "dialect"), [(False, "openai"), (True, None)])
def test_another_answer_that_cannot_go_on_is_aborted_without_words(stream: bool, dialect: str | None) -> None:
    reply = rescued(begun(stream=stream, dialect=dialect), Outcome(OutcomeKind.BUG))
    assert (reply.body, reply.end) == (b"data: {}\n\n", "aborted")


def test_no_event_is_put_into_a_stream_whose_length_was_promised() -> None:
    exchange = an_exchange(stream=True)
    exchange.takes_event = True
    exchange.reply.start(200, b"OK", b"", length=5000)
    exchange.reply.write(b"data: {}\n\n")
    reply = rescued(exchange, Outcome(OutcomeKind.DRAINED))
    assert (reply.body, reply.end) == (b"data: {}\n\n", "aborted")


def test_an_answer_that_was_relayed_is_left_alone() -> None:
    exchange = begun(stream=True)
    exchange.reply.finish()
    reply = rescued(exchange, Outcome(OutcomeKind.OK, status=200, committed=True))
    assert (reply.body, reply.end) == (b"data: {}\n\n", "finished")
