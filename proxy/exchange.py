"""One request on its way: where the answer goes (`Reply`), what was measured (`Facts`), and what stages share.

Mutable slotted objects, one writer at a time: the task that runs the exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from proxy.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy.observer import CacheUse, ExchangeEvent
    from proxy.outcome import OutcomeKind, Reason
    from proxy.trace_context import TraceContext


class CancelCause(StrEnum):
    """Who cancelled an exchange; set before the cancellation, so that the verdict never guesses."""

    CLIENT_LEFT = "client_left"
    DRAIN = "drain"
    STALLED = "stalled"
    """The client stopped reading its answer for too long."""


class ReaderGone(Exception):
    """Nobody reads the answer any more; raised by `Reply.drain`."""


class Reply(Protocol):
    """Where the answer goes. The transport, `rescue` and recordings of shared calls write it in the same way.

    Call `start` once, then `write` any number of times, then `finish` or `abort` once; all but `drain` are
    synchronous. `started` turns True at `start`: from then on nothing else can be answered (the commit rule).
    """

    @property
    def started(self) -> bool:
        """True once a head was written."""
        ...

    @property
    def paused(self) -> bool:
        """True while the reader is too slow: await `drain` before the next `write`."""
        ...

    @property
    def open_ended(self) -> bool:
        """True when no length was promised: then bytes of our own can be told from a completed answer."""
        ...

    def start(
        self,
        status: int,
        phrase: bytes,
        lines: bytes,
        *,
        length: int | None,
        body: bytes | None = None,
    ) -> None:
        """Writes the head. `lines` are end-to-end fields without Content-Length; `length` is the body's or None.

        With `body` the answer is complete, and is written at once.
        """
        ...

    def write(self, piece: bytes) -> None:
        """Passes a piece of the body on."""
        ...

    async def drain(self) -> None:
        """Returns when the reader has caught up. Raises `ReaderGone`."""
        ...

    def finish(self) -> None:
        """Ends the answer cleanly."""
        ...

    def abort(self) -> None:
        """Ends the answer so that its reader sees that it is not whole."""
        ...


class Usage:
    """Tokens, as the provider reported them; `estimated` when they are our own guess."""

    __slots__ = ("cached_input", "estimated", "input", "output")

    def __init__(self, input: int = 0, output: int = 0, cached_input: int = 0, *, estimated: bool = False) -> None:
        self.input = input
        self.output = output
        self.cached_input = cached_input
        self.estimated = estimated

    def __repr__(self) -> str:
        return f"<Usage in {self.input} (cached {self.cached_input}), out {self.output}{' estimated' * self.estimated}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Usage):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLimits:
    """Seconds that each phase of one attempt may take on the wire (`policy.md`, timeouts)."""

    connect: float
    first_byte: float
    answer: float
    idle: float
    stream: float


class Credential:
    """A key chosen for an attempt: its id for people, its header line for the wire. Never log `line`.

    `audience` are the addresses that it was written down for.
    """

    __slots__ = ("audience", "key_id", "line")

    def __init__(self, *, key_id: str, header: tuple[bytes, bytes] | None, audience: tuple[str, ...] = ()) -> None:
        self.key_id = key_id
        self.audience = audience
        self.line = b"%b: %b\r\n" % header if header is not None else b""

    def __repr__(self) -> str:
        return f"<Credential {self.key_id}>"


class Progress(Protocol):
    """Who wants to know of an attempt's milestones as they happen (the breaker's probes and slow calls)."""

    def on_wire(self, now: float) -> None:
        """The attempt has started to use the network."""
        ...

    def first_content(self, now: float) -> None:
        """The first content of the answer has come."""
        ...


class BodyLedger(Protocol):
    """Who counts the bytes of bodies that are in memory."""

    def give_back(self, size: int) -> None:
        """These bytes are not needed any more."""
        ...


class Attempt:
    """One upstream call: what it was to do, and what was measured. Times are monotonic seconds, 0.0 for never.

    `rates` is what the answer's head said of rate limits (`dialects/rate_limits`), None where it said nothing.
    """

    __slots__ = (
        "address", "answer_bytes", "connected_at", "ended_at", "first_content_at", "head_at", "key_id", "kind",
        "limits", "model", "number", "provider", "rates", "reason", "redials", "reused", "sent_bytes", "span_id",
        "started_at", "status", "tier", "usage",
    )  # fmt: skip

    def __init__(self, number: int, tier: int, provider: str, model: str, limits: PhaseLimits) -> None:
        self.number = number
        self.tier = tier
        self.provider = provider
        self.model = model
        self.limits = limits
        self.key_id = ""
        self.address: tuple[str, int] = ("", 0)
        self.span_id = 0
        self.started_at = self.connected_at = self.head_at = self.first_content_at = self.ended_at = 0.0
        self.status = self.sent_bytes = self.answer_bytes = self.redials = 0
        self.reused = False
        self.kind: OutcomeKind | None = None
        self.reason: Reason | None = None
        self.usage: Usage | None = None
        self.rates: Any = None

    def __repr__(self) -> str:
        return f"<Attempt {self.number} tier {self.tier} {self.provider}/{self.model} {self.kind} {self.status}>"


class Facts:
    """What was measured of one exchange; observers read it once, when it has ended.

    `model` and `route` are safe as metric labels (from closed sets); `requested_model` is the caller's own word.
    `queued_seconds` sums all waits in admission, over all attempts. `cache` is None where no cache took part. `saved`
    are the tokens of an answer that another call has spent: never a part of `usage`.
    """

    __slots__ = (
        "answer_bytes", "arrived_at", "arrived_ns", "attempts", "cache", "detail", "ended_at", "events",
        "first_byte_at", "kind", "klass", "model", "operation", "provider", "queued_seconds", "reason",
        "request_bytes", "request_id", "requested_model", "route", "saved", "status", "stream", "tenant", "tier",
        "trace", "usage",
    )  # fmt: skip

    def __init__(self, request_id: str, arrived_at: float, arrived_ns: int) -> None:
        self.request_id = request_id
        self.arrived_at = arrived_at
        self.arrived_ns = arrived_ns
        self.trace: TraceContext | None = None
        self.route = self.model = self.requested_model = self.operation = self.provider = self.detail = ""
        self.klass, self.tenant = "P1", "default"
        self.tier = self.status = self.request_bytes = self.answer_bytes = 0
        self.stream = False
        self.attempts: list[Attempt] = []
        self.events: list[tuple[float, ExchangeEvent]] = []
        self.first_byte_at = self.ended_at = self.queued_seconds = 0.0
        self.kind: OutcomeKind | None = None
        self.reason: Reason | None = None
        self.usage: Usage | None = None
        self.saved: Usage | None = None
        self.cache: CacheUse | None = None


class Exchange:
    """One request on its way through the pipeline.

    `deadline_at` (monotonic) binds every wait until the commit. `replaceable`: another attempt or tier remains, so a
    failing head is worth holding back. `payload` is the body that the current tier sends, None while it still arrives.
    `first_target` is True while the tier is the one that the caller meant: only there may the caller's own credential
    go along. `answered`: a stream's own end was passed on. `told_error`: an error event of the provider's was.
    `takes_event`: what the caller was given of a stream ends between two events, so that one of ours can follow.
    `hides_usage`: the current tier asks for usage that the caller did not ask for, and must not see. `attempts_left` in
    all, of which `attempts_kept` belong to later tiers. `repeatable`: it may be executed twice. `replayable`: its body
    may be sent a second time. `body_bytes`
    are counted in `bodies`, the process's ledger. `demand` is what the body asks for in tokens (`dialects/demand`),
    None while nobody wanted to know. `first_tier`: the tier to begin with, from 1. `idempotency_key`: what makes the
    request the same as another one, None for none. `alike` names what equal requests have in common: None while nobody
    asked, b"" for a request that shares nothing with any other. `on_attempt` is told when an attempt begins: its waits
    are over. `towards`: where a forwarded request goes, with its path as it is; None for every other one.
    """

    __slots__ = (
        "alike", "answered", "attempt", "attempts_kept", "attempts_left", "bodies", "body_bytes", "cancel_cause",
        "credential", "deadline_at", "demand", "dialect", "document", "facts", "first_target", "first_tier",
        "hides_usage", "idempotency_key", "later_tiers", "model", "on_attempt", "operation", "payload", "plan",
        "progress", "repeatable", "replaceable", "replayable", "reply", "request", "takes_event", "told_error",
        "towards", "tried_keys", "upstream_path",
    )  # fmt: skip

    bodies: BodyLedger

    def __init__(self, request: Request, reply: Reply, facts: Facts) -> None:
        self.request, self.reply, self.facts = request, reply, facts
        self.plan: Any = None
        self.dialect: Any = None
        self.operation: Any = None
        self.document: dict[str, Any] | None = None
        self.model: str | None = None
        self.payload: bytes | None = None
        self.upstream_path = ""
        self.deadline_at = float("inf")
        self.cancel_cause: CancelCause | None = None
        self.later_tiers, self.attempts_kept, self.attempts_left = 0, 0, 1
        self.demand: Any = None
        self.first_tier = 1
        self.idempotency_key: str | None = None
        self.alike: bytes | None = None
        self.towards: str | None = None
        self.on_attempt: Callable[[], None] | None = None
        self.first_target = self.repeatable = self.replayable = True
        self.body_bytes = 0
        self.replaceable = self.answered = self.told_error = self.takes_event = self.hides_usage = False
        self.tried_keys: set[str] | None = None
        self.credential: Credential | None = None
        self.attempt: Attempt | None = None
        self.progress: Progress | None = None

    @property
    def resendable(self) -> bool:
        """Whether the body could be sent once more: it was kept for that, or nothing of it was passed on."""
        return self.replayable and not self.request.upload_taken

    def forget_body(self) -> None:
        """Lets the body go: it was sent, and will not be sent again. Its bytes go back to the ledger, once."""
        self.payload = self.document = self.request.body = None
        if self.body_bytes:
            self.bodies.give_back(self.body_bytes)
            self.body_bytes = 0

    def note(self, at: float, event: ExchangeEvent) -> None:
        """Keeps a rare event of this exchange for the observer."""
        self.facts.events.append((at, event))
