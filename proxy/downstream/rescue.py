"""Outcome → HTTP: every answer that the proxy makes itself, and the failing answers it kept (`policy.md` rule 9)."""

from __future__ import annotations

import math
from typing import Final

from proxy.dialects.lookup import dialect_named
from proxy.exchange import Exchange
from proxy.fields import lines_of, pairs_of
from proxy.outcome import LOCAL_REASON, STATUS, KeptAnswer, Outcome, OutcomeKind, Reason

PHRASES: Final = {
    400: b"Bad Request",
    403: b"Forbidden",
    404: b"Not Found",
    409: b"Conflict",
    413: b"Content Too Large",
    414: b"URI Too Long",
    421: b"Misdirected Request",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    508: b"Loop Detected",
}
TOO_MANY: Final = 429
NO_RETRY: Final = (b"x-should-retry", b"false")
NEVER_AGAIN: Final = frozenset({Reason.MAYBE_EXECUTED, Reason.IDEMPOTENCY_CONFLICT, Reason.LOOP_DETECTED})
"""What is answered in the same way however often it comes; SDKs repeat a 409 or 504 unless they are told."""


def rescue(exchange: Exchange, outcome: Outcome) -> None:
    """Answers with what was kept, or with our own reason; shows a break when an answer had begun already."""
    if exchange.reply.started:
        if not outcome.committed:
            _break(exchange, outcome)
        return
    if outcome.answer is not None and not _our_keys_fault(outcome):
        _relay(exchange, outcome, outcome.answer)
    else:
        _local(exchange, outcome)


def reason_of(outcome: Outcome) -> Reason | None:
    """Returns the reason that the caller is told; None for a bug."""
    if outcome.reason is not None:
        return outcome.reason
    if outcome.kind is OutcomeKind.CALLER_ERROR:
        return Reason.BAD_REQUEST
    return LOCAL_REASON.get(outcome.kind)


def _our_keys_fault(outcome: Outcome) -> bool:
    """A credential that the caller never saw is not the caller's fault."""
    return outcome.own_key and outcome.key_fault and outcome.kind is OutcomeKind.CREDENTIAL_REJECTED


def _relay(exchange: Exchange, outcome: Outcome, answer: KeptAnswer) -> None:
    lines = answer.lines
    if outcome.retries_spent:
        lines = lines_of([*(field for field in pairs_of(lines) if field[0].lower() != NO_RETRY[0]), NO_RETRY])
    reply, body = exchange.reply, answer.body
    if exchange.request.method == "HEAD":
        reply.start(answer.status, answer.phrase, lines, length=answer.length)
        reply.finish()
    else:
        reply.start(answer.status, answer.phrase, lines, length=len(body), body=body)


def _local(exchange: Exchange, outcome: Outcome) -> None:
    reason = reason_of(outcome)
    outcome.reason = reason
    status = STATUS[reason] if reason is not None else 500
    if outcome.local and outcome.status:
        status = outcome.status
    dialect = exchange.dialect or dialect_named("openai")
    body = dialect.error_body(
        status=status,
        reason=reason.value if reason is not None else "internal_error",
        message=outcome.detail if outcome.local else "",
        request_id=exchange.facts.request_id,
    )
    headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
    if reason is not None:
        headers.append((b"x-sponson-reason", reason.value.encode("ascii")))
    if outcome.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(outcome.retry_after))))
    if outcome.retries_spent or reason in NEVER_AGAIN or _no_wait_helps(outcome, status):
        headers.append(NO_RETRY)
    exchange.reply.start(status, PHRASES[status], lines_of(headers), length=len(body), body=body)


def _no_wait_helps(outcome: Outcome, status: int) -> bool:
    """Whether a limit of ours refuses this however late it comes again: it allows nothing, or less than this needs."""
    return outcome.local and status == TOO_MANY and outcome.retry_after is None


def _break(exchange: Exchange, outcome: Outcome) -> None:
    """An answer had begun, and cannot be ended: an error event in the caller's dialect, then an aborted connection.

    No event where half an event came before: ours would complete it, and be read as one with it.
    """
    if exchange.takes_event and exchange.reply.open_ended and exchange.dialect is not None:
        reason = reason_of(outcome) or Reason.UPSTREAM_UNREACHABLE
        told = exchange.dialect.error_event(reason=reason.value, message="", operation=exchange.operation)
        exchange.reply.write(told)
    exchange.reply.abort()
