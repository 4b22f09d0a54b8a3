"""Owns the sentences of answers that the proxy makes itself: what happened, then the cure."""

from __future__ import annotations

from typing import Final

from proxy.outcome import STATUS, Reason

MAX_CHARACTERS: Final = 2000

_ADVICE: Final[dict[Reason, str]] = {
    Reason.BAD_REQUEST: "The request could not be read. Send well-formed HTTP and a JSON object.",
    Reason.FORBIDDEN_TARGET: "This target is not allowed. Add it to the policy, or call an allowed one.",
    Reason.NO_ROUTE: "No route matches this path and model. Add a route to the policy, or correct the path.",
    Reason.IDEMPOTENCY_CONFLICT: "This idempotency key belongs to another request. Use a new key.",
    Reason.BODY_TOO_LARGE: "The body is larger than the policy allows. Send less, or raise `body.max`.",
    Reason.CONTEXT_TOO_LONG: "The prompt is longer than this tenant may send. Shorten it.",
    Reason.MISDIRECTED: "The host of the request is not the host of its connection. Open a new connection.",
    Reason.QUEUE_FULL: "Too many requests wait for this provider already. Try again later.",
    Reason.QUEUE_TIMEOUT: "No place became free in time. Try again later.",
    Reason.QUOTA_EXHAUSTED: "The quota for this provider is used up. Try again later.",
    Reason.KEYS_RESTING: "Every key for this provider rests after a rate limit. Try again later.",
    Reason.TENANT_LIMIT: "This tenant has reached its limit. Send less at a time, or try again later.",
    Reason.UPSTREAM_UNREACHABLE: "The provider could not be reached or broke off. Try again.",
    Reason.KEYS_UNUSABLE: "The provider accepts none of the configured keys. Replace the keys in the policy.",
    Reason.BREAKER_OPEN: "The provider is failing and rests for a while. Try again later.",
    Reason.SHUTTING_DOWN: "This instance is shutting down. Try again; another instance will answer.",
    Reason.CONNECT_TIMEOUT: "The provider did not accept a connection in time. Try again.",
    Reason.FIRST_BYTE_TIMEOUT: "The provider sent no content in time. Try again, or raise `first_byte`.",
    Reason.ANSWER_TIMEOUT: "The provider did not answer in time. Try again, or raise `answer`.",
    Reason.IDLE_TIMEOUT: "The provider stopped sending. Try again, or raise `idle`.",
    Reason.TOTAL_TIMEOUT: "The time for this request is over. Try again, or raise `total`.",
    Reason.MAYBE_EXECUTED: "The provider may have executed this. Check its effect before sending it again.",
    Reason.LOOP_DETECTED: "The request came back to the proxy that sent it. Correct the provider's address.",
}
_ELSE: Final = "The answer broke off. Try again."


def advice(reason: str) -> str:
    """Returns the standing sentence for a reason."""
    known = _reason(reason)
    return _ELSE if known is None else _ADVICE[known]


def status_of(reason: str) -> int:
    """Returns the HTTP status that stands for a reason; 500 for an unknown one."""
    known = _reason(reason)
    return 500 if known is None else STATUS[known]


def sentence(reason: str, message: str) -> str:
    """Returns `message`, or the standing advice when it is empty; always encodable and bounded."""
    text = message or advice(reason)
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode()


def _reason(reason: str) -> Reason | None:
    try:
        return Reason(reason)
    except ValueError:
        return None
