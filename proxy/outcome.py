"""How an attempt or a whole exchange ended: closed sets that double as metric labels.

Owns the words: `OutcomeKind`, `Blame`, `Reason` and the reason table of `policy.md` rule 9. An `Outcome` is a
value; exceptions mean a bug or a cancellation, never an expected failure.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Final


class Blame(StrEnum):
    """Whose fault an outcome is; decides breaker health, status family and objective counting."""

    NOBODY = "nobody"
    CLIENT = "client"
    PROXY = "proxy"
    UPSTREAM = "upstream"


class OutcomeKind(StrEnum):
    """Every way in which an attempt or an exchange can end."""

    OK = "ok"
    """A 1xx-3xx answer, relayed to its last byte."""
    CALLER_ERROR = "caller_error"
    """A 4xx (or 501, 505) that another attempt would meet again; the provider is alive."""
    RATE_LIMITED = "rate_limited"
    """429: the key rests."""
    CREDENTIAL_REJECTED = "credential_rejected"
    """401, 402 or 403."""
    UPSTREAM_ERROR = "upstream_error"
    """408, 500, 502, 503, 504, 529 and every other 5xx but 501 and 505."""
    ERROR_IN_ANSWER = "error_in_answer"
    """An error object in a 200, or an error event before or after the first content."""
    UNREACHABLE = "unreachable"
    """DNS, connect or TLS: nothing was sent."""
    CONNECT_TIMEOUT = "connect_timeout"
    DISCONNECTED = "disconnected"
    """Reset or end of the connection before the head of the answer."""
    BAD_ANSWER = "bad_answer"
    """Bytes that are not a well-formed HTTP answer."""
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    ANSWER_TIMEOUT = "answer_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    STREAM_TIMEOUT = "stream_timeout"
    """The longest allowed stream."""
    TOTAL_TIMEOUT = "total_timeout"
    """The exchange's own deadline."""
    STREAM_BROKEN = "stream_broken"
    """The answer ended before its end, after its head."""
    CLIENT_LEFT = "client_left"
    REFUSED = "refused"
    """Refused here, before any provider was asked; `Outcome.reason` says why."""
    ANSWERED = "answered"
    """The policy's own `answer` tier."""
    DRAINED = "drained"
    """Ended by the shutdown's deadline."""
    BUG = "bug"

    # Enum hashes by a Python function; these are looked up in tables several times a request.
    __hash__ = str.__hash__


BLAME: Final[dict[OutcomeKind, Blame]] = {
    OutcomeKind.OK: Blame.NOBODY,
    OutcomeKind.ANSWERED: Blame.NOBODY,
    OutcomeKind.CALLER_ERROR: Blame.CLIENT,
    OutcomeKind.CLIENT_LEFT: Blame.CLIENT,
    OutcomeKind.REFUSED: Blame.PROXY,
    OutcomeKind.TOTAL_TIMEOUT: Blame.PROXY,
    OutcomeKind.DRAINED: Blame.PROXY,
    OutcomeKind.BUG: Blame.PROXY,
    OutcomeKind.CREDENTIAL_REJECTED: Blame.PROXY,
    OutcomeKind.RATE_LIMITED: Blame.UPSTREAM,
    OutcomeKind.UPSTREAM_ERROR: Blame.UPSTREAM,
    OutcomeKind.ERROR_IN_ANSWER: Blame.UPSTREAM,
    OutcomeKind.UNREACHABLE: Blame.UPSTREAM,
    OutcomeKind.CONNECT_TIMEOUT: Blame.UPSTREAM,
    OutcomeKind.DISCONNECTED: Blame.UPSTREAM,
    OutcomeKind.BAD_ANSWER: Blame.UPSTREAM,
    OutcomeKind.FIRST_BYTE_TIMEOUT: Blame.UPSTREAM,
    OutcomeKind.ANSWER_TIMEOUT: Blame.UPSTREAM,
    OutcomeKind.IDLE_TIMEOUT: Blame.UPSTREAM,
    OutcomeKind.STREAM_TIMEOUT: Blame.PROXY,
    OutcomeKind.STREAM_BROKEN: Blame.UPSTREAM,
}


class Reason(StrEnum):
    """Why the proxy made an answer itself; the value of `x-sponson-reason` (`policy.md` rule 9)."""

    BAD_REQUEST = "bad_request"
    FORBIDDEN_TARGET = "forbidden_target"
    NO_ROUTE = "no_route"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    BODY_TOO_LARGE = "body_too_large"
    CONTEXT_TOO_LONG = "context_too_long"
    MISDIRECTED = "misdirected"
    QUEUE_FULL = "queue_full"
    QUEUE_TIMEOUT = "queue_timeout"
    QUOTA_EXHAUSTED = "quota_exhausted"
    KEYS_RESTING = "keys_resting"
    TENANT_LIMIT = "tenant_limit"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    KEYS_UNUSABLE = "keys_unusable"
    BREAKER_OPEN = "breaker_open"
    SHUTTING_DOWN = "shutting_down"
    CONNECT_TIMEOUT = "connect_timeout"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    ANSWER_TIMEOUT = "answer_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    MAYBE_EXECUTED = "maybe_executed"
    LOOP_DETECTED = "loop_detected"

    __hash__ = str.__hash__


STATUS: Final[dict[Reason, int]] = {
    Reason.BAD_REQUEST: 400,
    Reason.FORBIDDEN_TARGET: 403,
    Reason.NO_ROUTE: 404,
    Reason.IDEMPOTENCY_CONFLICT: 409,
    Reason.BODY_TOO_LARGE: 413,
    Reason.CONTEXT_TOO_LONG: 413,
    Reason.MISDIRECTED: 421,
    Reason.QUEUE_FULL: 429,
    Reason.QUEUE_TIMEOUT: 429,
    Reason.QUOTA_EXHAUSTED: 429,
    Reason.KEYS_RESTING: 429,
    Reason.TENANT_LIMIT: 429,
    Reason.UPSTREAM_UNREACHABLE: 502,
    Reason.KEYS_UNUSABLE: 502,
    Reason.BREAKER_OPEN: 503,
    Reason.SHUTTING_DOWN: 503,
    Reason.CONNECT_TIMEOUT: 504,
    Reason.FIRST_BYTE_TIMEOUT: 504,
    Reason.ANSWER_TIMEOUT: 504,
    Reason.IDLE_TIMEOUT: 504,
    Reason.TOTAL_TIMEOUT: 504,
    Reason.MAYBE_EXECUTED: 504,
    Reason.LOOP_DETECTED: 508,
}

LOCAL_REASON: Final[dict[OutcomeKind, Reason]] = {
    OutcomeKind.UNREACHABLE: Reason.UPSTREAM_UNREACHABLE,
    OutcomeKind.DISCONNECTED: Reason.UPSTREAM_UNREACHABLE,
    OutcomeKind.BAD_ANSWER: Reason.UPSTREAM_UNREACHABLE,
    OutcomeKind.STREAM_BROKEN: Reason.UPSTREAM_UNREACHABLE,
    OutcomeKind.ERROR_IN_ANSWER: Reason.UPSTREAM_UNREACHABLE,
    OutcomeKind.UPSTREAM_ERROR: Reason.UPSTREAM_UNREACHABLE,
    OutcomeKind.RATE_LIMITED: Reason.KEYS_RESTING,
    OutcomeKind.CREDENTIAL_REJECTED: Reason.KEYS_UNUSABLE,
    OutcomeKind.CONNECT_TIMEOUT: Reason.CONNECT_TIMEOUT,
    OutcomeKind.FIRST_BYTE_TIMEOUT: Reason.FIRST_BYTE_TIMEOUT,
    OutcomeKind.ANSWER_TIMEOUT: Reason.ANSWER_TIMEOUT,
    OutcomeKind.IDLE_TIMEOUT: Reason.IDLE_TIMEOUT,
    OutcomeKind.STREAM_TIMEOUT: Reason.TOTAL_TIMEOUT,
    OutcomeKind.TOTAL_TIMEOUT: Reason.TOTAL_TIMEOUT,
    OutcomeKind.DRAINED: Reason.SHUTTING_DOWN,
}
"""What the client is told when an attempt failed and no provider's own answer can be relayed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """A provider's failing answer, held back: relayed as it came if nothing better comes.

    `lines` are its end-to-end fields; `body` is whole (at most 64 KiB). `length` is what its head told, also where no
    body came (HEAD).
    """

    status: int
    phrase: bytes
    lines: bytes
    body: bytes
    length: int | None = None
    events: bool = False
    """True when `body` is the beginning of an event stream that failed before its first content."""


@dataclass(slots=True, repr=False, eq=False)
class Outcome:
    """How an attempt or an exchange ended; written once by its maker, read by everybody above.

    `status` is the HTTP status the provider gave (0: none; of a refusal, the one to be given). `retry_after` is in
    seconds from now. `maybe_executed`: bytes of the request reached the wire and no head came back. `should_retry` is
    the provider's own hint (`x-should-retry`), None where it gave none. `key_fault`: the credential is to blame,
    another one might pass; `own_key`: it was one of ours.
    `committed`: bytes of this answer reached the client's connection.
    """

    kind: OutcomeKind
    _: KW_ONLY
    reason: Reason | None = None
    status: int = 0
    retry_after: float | None = None
    answer: KeptAnswer | None = None
    maybe_executed: bool = False
    should_retry: bool | None = None
    key_fault: bool = False
    own_key: bool = False
    committed: bool = False
    detail: str = ""
    retries_spent: bool = False

    @property
    def blame(self) -> Blame:
        """Whose fault it is."""
        return BLAME[self.kind]

    @property
    def local(self) -> bool:
        """True when no provider was asked: never recorded by breakers, never retried."""
        return self.kind is OutcomeKind.REFUSED

    def __repr__(self) -> str:
        why = f", {self.reason}" if self.reason else ""
        return f"<Outcome {self.kind}{why}, status {self.status}{', committed' if self.committed else ''}>"


def refused(reason: Reason, *, retry_after: float | None = None, detail: str = "", status: int = 0) -> Outcome:
    """Returns the outcome of a local refusal; `detail` is for people and names the cure.

    `status`: the one to answer with, where it says more than the reason's own.
    """
    return Outcome(OutcomeKind.REFUSED, reason=reason, retry_after=retry_after, detail=detail, status=status)


HEALTHY_5XX: Final = frozenset({501, 505})


def kind_of_status(status: int) -> OutcomeKind:
    """Classifies a provider's status by the table of `semantics.md` §1."""
    if status < 400:
        return OutcomeKind.OK
    if status == 429:
        return OutcomeKind.RATE_LIMITED
    if status in (401, 402, 403):
        return OutcomeKind.CREDENTIAL_REJECTED
    if status == 408 or (status >= 500 and status not in HEALTHY_5XX):
        return OutcomeKind.UPSTREAM_ERROR
    return OutcomeKind.CALLER_ERROR
