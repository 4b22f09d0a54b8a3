"""An answer whose body has come whole: one look, one write. Most small ones have, with their head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proxy.dialects.base import Operation
from proxy.dialects.errors import AnswerError
from proxy.outcome import KeptAnswer, Outcome, OutcomeKind, kind_of_status
from proxy.upstream.answer import AnswerHead
from proxy.upstream.meter import look

if TYPE_CHECKING:
    from proxy.upstream.call import Call


def relay_whole(
    call: Call, lines: bytes, operation: Operation | None, body: bytes, *, now: float, packed: bool = False
) -> Outcome:
    """Relays it with its length, unless it carries an error instead of content. Without `operation` nobody looks."""
    attempt, exchange, message = call.attempt, call.exchange, call.message
    attempt.answer_bytes = len(body)
    if operation is not None:
        attempt.usage, error = look(operation, body, packed=packed)
        if error is not None:
            return error_inside(error, kept(message, lines, body))
        exchange.facts.usage = attempt.usage
    call.content_came(attempt.head_at)
    exchange.facts.first_byte_at = now
    exchange.reply.start(message.code, message.phrase, lines, length=len(body), body=body)
    return Outcome(kind_of_status(message.code), status=message.code, committed=True)


def error_inside(error: AnswerError, answer: KeptAnswer) -> Outcome:
    """Returns the outcome of a 2xx that carries an error instead of content: replaceable, and no success."""
    kind = kind_of_status(error.status)
    if kind is not OutcomeKind.RATE_LIMITED:
        kind = OutcomeKind.ERROR_IN_ANSWER
    return Outcome(
        kind,
        status=error.status,
        retry_after=error.delay,
        key_fault=error.spent and kind is OutcomeKind.RATE_LIMITED,
        answer=answer,
        detail=error.code,
    )


def kept(message: AnswerHead, lines: bytes, body: bytes, *, events: bool = False) -> KeptAnswer:
    """Returns an answer as something to relay later."""
    return KeptAnswer(
        status=message.code, phrase=message.phrase, lines=lines, body=body, length=length_of(message), events=events
    )


def length_of(message: AnswerHead) -> int | None:
    """Returns the length that a head tells; it may have no body all the same (RFC 9110 §8.6)."""
    text = message.headers.get("content-length")
    # A number of thousands of zeros would not be read (`int`), and needs no answer that repeats it.
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else None
