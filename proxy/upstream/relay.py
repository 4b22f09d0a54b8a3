"""Passing an answer on: hold-back, pieces as they come, breaks that can be seen (`semantics.md` §6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiohttp.streams import StreamReader

from proxy.dialects.errors import AnswerError
from proxy.exchange import ReaderGone
from proxy.outcome import LOCAL_REASON, KeptAnswer, Outcome, OutcomeKind, Reason, kind_of_status
from proxy.upstream.keep import judge, read_bounded
from proxy.upstream.meter import BodyMeter, EventMeter, Meter
from proxy.upstream.wire import salvage

if TYPE_CHECKING:
    from proxy.upstream.call import Call

HELD_BYTES: Final = 65536
HELD_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.02
UNREADABLE: Final = frozenset({"br", "zstd", "compress"})
PACKED: Final = frozenset({"gzip", "x-gzip", "deflate"})
NO_BODY: Final = frozenset({204, 304})


class Relay:
    """One answer on its way to the caller."""

    __slots__ = ("_call", "_deadline_at", "_stream_end", "events", "headers", "held", "meter", "payload")

    def __init__(self, call: Call, headers: list[tuple[bytes, bytes]]) -> None:
        self._call = call
        self.headers = headers
        self.payload: StreamReader = call.payload
        self.held: list[bytes] = []
        self.events = call.message.headers.get("content-type", "").startswith("text/event-stream")
        self.meter: Meter | None = self._meter() if call.message.code < 300 else None
        self._deadline_at = float("inf") if self.events else call.exchange.deadline_at
        self._stream_end = call.attempt.connected_at + call.attempt.limits.stream

    async def run(self) -> Outcome:
        """Relays the answer to its last byte. Raises aiohttp's errors when it breaks."""
        call, payload = self._call, self.payload
        if call.message.code in NO_BODY or call.exchange.request.method == "HEAD":
            return self._bodiless()
        if payload.is_eof():
            return self._whole(payload.read_nowait(-1))
        if self.meter is not None and (self.events or call.exchange.replaceable):
            if call.exchange.replaceable and (outcome := await self._hold()) is not None:
                return outcome
            if payload.at_eof() and not self.events:
                return self._whole(b"".join(self.held), looked=True)
        return await self._pieces()

    def start(self, *, body: bytes | None = None) -> None:
        """Commits: from here on the answer cannot be replaced."""
        call = self._call
        message = call.message
        call.exchange.facts.first_byte_at = call.clock.now()
        length = len(body) if body is not None else _length(message.headers.get("content-length"))
        call.exchange.reply.start(
            message.code,
            message.reason.encode("utf-8", "surrogateescape"),
            self.headers,
            length=length,
            body=body,
        )

    def kept(self, body: bytes, *, events: bool = False) -> KeptAnswer:
        """Returns the answer as something to relay later."""
        message = self._call.message
        phrase = message.reason.encode("utf-8", "surrogateescape")
        return KeptAnswer(status=message.code, phrase=phrase, headers=tuple(self.headers), body=body, events=events)

    async def failing(self) -> Outcome:
        """Keeps a failing answer; one too large or too slow to keep is passed on, unless it could be replaced."""
        call = self._call
        body, whole = await read_bounded(self.payload)
        outcome = judge(call.message, body, wall_seconds=call.clock.wall_ns() / 1e9)
        call.content_came(call.clock.now())
        call.attempt.answer_bytes = len(body)
        if whole or call.exchange.request.method == "HEAD":
            outcome.answer = self.kept(body)
        elif call.exchange.replaceable:
            self.headers = [field for field in self.headers if not field[0].lower().startswith(b"content-")]
            outcome.answer = self.kept(b"")
        else:
            self.meter, self.held = None, [body]
            await self._pieces()
            outcome.committed = True
        return outcome

    def _meter(self) -> Meter | None:
        call = self._call
        operation = call.exchange.operation
        coding = call.message.headers.get("content-encoding", "").strip().lower()
        if operation is None or (coding and coding not in PACKED):
            return None
        if self.events:
            return EventMeter(operation.dialect.scanner(operation), packed=bool(coding))
        if "json" in call.message.headers.get("content-type", ""):
            return BodyMeter(operation, packed=bool(coding))
        return None

    def _bodiless(self) -> Outcome:
        self.start()
        self._call.exchange.reply.finish()
        return self._ended()

    def _whole(self, body: bytes, *, looked: bool = False) -> Outcome:
        """The whole body is here: one look, one write."""
        call, meter = self._call, self.meter
        call.content_came(call.attempt.head_at)
        call.attempt.answer_bytes = len(body)
        if meter is not None:
            if not looked:
                meter.feed(body)
            meter.finish()
            call.attempt.usage = meter.usage
            if meter.error is not None:
                return self._error_inside(meter.error, body)
        self.start(body=body)
        return self._ended()

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
            return self._error_inside(meter.error, b"".join((*self.held, rest)))
        if meter.content:
            call.content_came(call.clock.now())
        return None

    def _error_inside(self, error: AnswerError, body: bytes) -> Outcome:
        """A 2xx that carries an error instead of content: replaceable, and no success."""
        status = error.status
        kind = kind_of_status(status)
        if kind is not OutcomeKind.RATE_LIMITED:
            kind = OutcomeKind.ERROR_IN_ANSWER
        return Outcome(kind, status=status, answer=self.kept(body, events=self.events), detail=error.code)

    async def _pieces(self) -> Outcome:
        """Passes pieces on as they come."""
        call = self._call
        try:
            await self._pass_on()
        except ReaderGone:
            return Outcome(OutcomeKind.CLIENT_LEFT, status=call.attempt.status, committed=True)
        except Exception:
            self._show_break()
            raise
        call.exchange.reply.finish()
        return self._ended()

    async def _pass_on(self) -> None:
        call, meter, payload = self._call, self.meter, self.payload
        reply, watch, clock = call.exchange.reply, call.watch, call.clock
        self.start()
        self._next(clock.now())
        for piece in self.held:
            reply.write(piece)
        size = sum(map(len, self.held))
        fed = bool(self.held)
        idle, end = call.attempt.limits.idle, min(self._deadline_at, self._stream_end)
        while piece := await payload.readany():
            now = clock.now()
            if meter is not None:
                meter.feed(piece)
            if not call.attempt.first_content_at and (meter is None or meter.content):
                call.content_came(now)
            reply.write(piece)
            size += len(piece)
            if reply.paused:
                await self._drain()
                now = clock.now()
            if now + idle < end:
                watch.due = now + idle
            else:
                self._next(now)
        call.attempt.answer_bytes = size
        if fed and not call.attempt.first_content_at:
            call.content_came(clock.now())

    def _next(self, now: float) -> None:
        """Starts to watch the time between pieces."""
        idle = now + self._call.attempt.limits.idle
        if self._stream_end < idle:
            self._call.watch.arm(self._stream_end, OutcomeKind.STREAM_TIMEOUT, deadline_at=self._deadline_at)
        else:
            self._call.watch.arm(idle, OutcomeKind.IDLE_TIMEOUT, deadline_at=self._deadline_at)

    async def _drain(self) -> None:
        """Waits for a slow reader; the provider waits too, and the watch ends a reader that has stopped."""
        call = self._call
        call.stalled = True
        call.watch.arm(call.clock.now() + call.attempt.limits.idle, OutcomeKind.CLIENT_LEFT)
        await call.exchange.reply.drain()
        call.stalled = False
        self._next(call.clock.now())

    def _show_break(self) -> None:
        """The caller must see that the answer is not whole: an error event in its dialect, then an aborted connection."""
        call = self._call
        reply = call.exchange.reply
        if rest := salvage(self.payload):
            reply.write(rest)
        if self.events and call.exchange.dialect is not None:
            reason = LOCAL_REASON.get(call.watch.expired or OutcomeKind.STREAM_BROKEN, Reason.UPSTREAM_UNREACHABLE)
            reply.write(b"\n\n" + call.exchange.dialect.error_event(reason=reason, message=""))
        reply.abort()

    def _ended(self) -> Outcome:
        """The answer has come to its end; an error event in it is a failure all the same."""
        call, meter = self._call, self.meter
        status = call.message.code
        kind = kind_of_status(status)
        if meter is not None and call.attempt.usage is None:
            meter.finish()
            call.attempt.usage = meter.usage
            if meter.error is not None:
                kind = OutcomeKind.ERROR_IN_ANSWER
        call.exchange.facts.usage = call.attempt.usage
        return Outcome(kind, status=status, committed=True)


def _length(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
