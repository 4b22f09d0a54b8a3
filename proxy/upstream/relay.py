"""Passing an answer on: hold-back, pieces as they come, breaks that can be seen (`semantics.md` §6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from proxy.body import Body
from proxy.dialects.base import Operation
from proxy.dialects.injection import UsageFilter
from proxy.dialects.stream import StreamScanner
from proxy.exchange import ReaderGone
from proxy.fields import Fields, lines_of, pairs_of
from proxy.outcome import LOCAL_REASON, KeptAnswer, Outcome, OutcomeKind, Reason, kind_of_status
from proxy.upstream.keep import judge, read_bounded
from proxy.upstream.meter import BodyMeter, Meter, PackedEvents, plain_copy
from proxy.upstream.pieces import Pieces
from proxy.upstream.whole import error_inside, kept, length_of, relay_whole

if TYPE_CHECKING:
    from proxy.upstream.call import Call

HELD_BYTES: Final = 65536
HELD_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.02
PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
NO_BODY: Final = frozenset({204, 304})
STREAMS: Final = (
    "text/event-stream",
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/json-seq",
    "application/vnd.amazon.eventstream",
)
"""Media types of answers that go on while there is something to say."""


class Relay:
    """One answer on its way to the caller."""

    __slots__ = (
        "_call",
        "_packed",
        "_readable",
        "events",
        "lines",
        "held",
        "hides",
        "meter",
        "operation",
        "payload",
        "streams",
    )

    def __init__(self, call: Call, lines: bytes) -> None:
        self._call = call
        self.lines = lines
        self.payload: Body = call.payload
        self.held: list[bytes] = []
        self.meter: Meter | None = None
        fields = call.message.headers
        kind = fields.get("content-type", "").lower()
        self.events = kind.startswith("text/event-stream")
        self.streams = call.exchange.facts.stream or kind.startswith(STREAMS)
        codings = _codings(fields) if "content-encoding" in fields else ()
        self._packed, self._readable = bool(codings), _readable(codings)
        self.operation: Operation | None = call.exchange.operation
        if call.message.code >= 300 or not (self.events or "json" in kind) or not self._readable:
            self.operation = None
        self.hides: UsageFilter | None = None
        if call.exchange.hides_usage and self.events and not self._packed and call.message.code < 300:
            self.hides = UsageFilter()

    async def run(self) -> Outcome:
        """Relays the answer to its last byte. Raises what broke it."""
        call, payload = self._call, self.payload
        if call.message.code in NO_BODY or call.exchange.request.method == "HEAD":
            return self._bodiless()
        if payload.is_eof() and not self.events:
            return self._whole(payload.taken())
        if self.operation is not None:
            self.meter = self._meter(self.operation)
            if call.exchange.replaceable:
                if (outcome := await self._hold()) is not None:
                    return outcome
                if payload.at_eof() and not self.events:
                    return self._whole(b"".join(self.held))
        return await self._pieces()

    def start(self) -> None:
        """Commits: from here on the answer cannot be replaced."""
        call = self._call
        message = call.message
        call.exchange.facts.first_byte_at = call.clock.now()
        length = length_of(message) if self.hides is None else None
        call.exchange.reply.start(message.code, message.phrase, self.lines, length=length)

    def kept(self, body: bytes) -> KeptAnswer:
        """Returns the answer as something to relay later."""
        return kept(self._call.message, self.lines, body, events=self.events)

    async def failing(self) -> Outcome:
        """Keeps a failing answer; one too large or too slow to keep is passed on, unless it could be replaced."""
        call = self._call
        body, complete = await read_bounded(self.payload)
        outcome = judge(call.message, self._plain(body), wall_seconds=call.clock.wall_ns() / 1e9)
        call.attempt.answer_bytes = len(body)
        if complete or call.exchange.request.method == "HEAD":
            outcome.answer = self.kept(body)
        elif self._may_be_replaced(outcome):
            about_it = [field for field in pairs_of(self.lines) if not field[0].lower().startswith(b"content-")]
            self.lines = lines_of(about_it)
            outcome.answer = self.kept(b"")
        else:
            self.meter, self.held = None, [body]
            await self._pieces()
            outcome.committed = True
        return outcome

    def _plain(self, body: bytes) -> bytes:
        """Returns what a failing answer says: SDKs let errors come packed, too."""
        return plain_copy(body) if self._packed and self._readable else body

    def _may_be_replaced(self, outcome: Outcome) -> bool:
        """Whether another answer may still come: no upload went out, and no credential of the caller's failed."""
        exchange = self._call.exchange
        ours = exchange.credential is not None or outcome.kind is not OutcomeKind.CREDENTIAL_REJECTED
        return exchange.replaceable and ours and not exchange.request.upload_taken

    def _meter(self, operation: Operation) -> Meter:
        if self.events:
            scanner = operation.dialect.scanner(operation)
            return PackedEvents(scanner) if self._packed else scanner
        return BodyMeter(operation, packed=self._packed)

    def _bodiless(self) -> Outcome:
        self.start()
        self._call.exchange.reply.finish()
        return self._ended()

    def _whole(self, body: bytes) -> Outcome:
        call = self._call
        return relay_whole(call, self.lines, self.operation, body, now=call.clock.now(), packed=self._packed)

    async def _hold(self) -> Outcome | None:
        """Holds the beginning back while it could still be replaced; None when it is to be passed on."""
        call, meter = self._call, self.meter
        assert meter is not None
        size = 0
        try:
            async with asyncio.timeout(HELD_SECONDS if self.events else None) as limit:
                while size <= HELD_BYTES and (piece := await self.payload.readany()):
                    if not self.events and not self.held:
                        limit.reschedule(asyncio.get_running_loop().time() + LOOK_SECONDS)
                    self.held.append(piece)
                    size += len(piece)
                    meter.feed(piece)
                    if self.events and (meter.content or meter.error is not None):
                        break
        except TimeoutError:
            return None
        if self.events and self.payload.at_eof() and not meter.content and meter.error is None:
            meter.finish()
        if self.events and meter.error is not None and not meter.content:
            rest, _ = await read_bounded(self.payload)
            return error_inside(meter.error, self.kept(self._last_of(b"".join((*self.held, rest)))))
        if meter.content:
            call.content_came(call.clock.now())
        return None

    async def _pieces(self) -> Outcome:
        """Passes pieces on as they come."""
        call = self._call
        try:
            self.start()
            call.exchange.forget_body()
            deadline_at = float("inf") if self.streams else call.exchange.deadline_at
            await Pieces(call, self.meter, hides=self.hides, deadline_at=deadline_at).pass_on(self.held)
        except ReaderGone:
            self._count()
            return Outcome(OutcomeKind.CLIENT_LEFT, status=call.attempt.status, committed=True)
        except asyncio.CancelledError:
            self._left()
            raise
        except Exception:
            self._show_break()
            raise
        if self.hides is not None:
            call.exchange.reply.write(self._last_of(b""))
        call.exchange.reply.finish()
        return self._ended()

    def _last_of(self, rest: bytes) -> bytes:
        """Returns what the caller gets of the last bytes, and of those that could have been something to hide."""
        return rest if self.hides is None else self.hides.feed(rest) + self.hides.finish()

    def _left(self) -> None:
        """The caller has gone: what it had until then is counted, and a stream whose last event it had was whole."""
        if self.hides is not None:
            self._call.exchange.reply.write(self._last_of(b""))
        self._call.exchange.takes_event = self._takes_event
        self._count()
        if self.meter is not None:
            self._call.exchange.told_error = self.meter.error is not None
            self._call.exchange.answered = self.meter.done and self.meter.error is None

    def _count(self) -> None:
        """What was told until now was used, though the rest is missing."""
        if self.meter is not None:
            self.meter.finish()
            self._call.attempt.usage = self._call.exchange.facts.usage = self.meter.usage

    def _show_break(self) -> None:
        """The caller must see that the answer is not whole: an error event in its dialect, then an abort."""
        call = self._call
        reply = call.exchange.reply
        if self.hides is not None:
            reply.write(self._last_of(b""))
        if self._takes_event and self.operation is not None and reply.open_ended:
            reason = LOCAL_REASON.get(call.watch.expired or OutcomeKind.STREAM_BROKEN, Reason.UPSTREAM_UNREACHABLE)
            reply.write(self.operation.dialect.error_event(reason=reason, message="", operation=self.operation))
        self._count()
        reply.abort()

    @property
    def _takes_event(self) -> bool:
        """Whether an event of ours can be read here: half an event would be completed by it, and be read with it."""
        return isinstance(self.meter, StreamScanner) and self.meter.between_events

    def _ended(self) -> Outcome:
        """The answer has come to its end; an error event in it is a failure all the same."""
        call, meter = self._call, self.meter
        status = call.message.code
        kind = kind_of_status(status)
        if meter is not None:
            meter.finish()
            call.attempt.usage = meter.usage
            if meter.error is not None:
                kind = OutcomeKind.ERROR_IN_ANSWER
        call.exchange.facts.usage = call.attempt.usage
        return Outcome(kind, status=status, committed=True)


def _codings(fields: Fields) -> tuple[str, ...]:
    """Returns what a body is packed in, in order and in lower case (RFC 9110 §8.4); `identity` is nothing."""
    named = (name.strip().lower() for line in fields.getall("content-encoding") for name in line.split(","))
    return tuple(name for name in named if name not in ("", "identity"))


def _readable(codings: tuple[str, ...]) -> bool:
    return not codings or (len(codings) == 1 and codings[0] in PACKED)
