"""The doubles that tests share: a clock that is moved by hand, a reply that records, a scripted terminal.

Each keeps to its port and fails on its misuse: a reply that is started twice fails the test that does it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from proxy.exchange import Attempt, Exchange, Facts, PhaseLimits, ReaderGone
from proxy.exchange import Reply as ReplyPort
from proxy.fields import fields_of, pairs_of
from proxy.outcome import Outcome, OutcomeKind
from proxy.request import BodyProblem, BodyTooLarge, Request, Upload

LIMITS = PhaseLimits(connect=5.0, first_byte=30.0, answer=600.0, idle=30.0, stream=3600.0)
SETTLING_ROUNDS = 50


async def settle() -> None:
    """Lets every task run until it waits for something that this loop iteration cannot give."""
    for _ in range(SETTLING_ROUNDS):
        await asyncio.sleep(0)


@dataclass(slots=True, eq=False)
class FakeTimer:
    """A call that a `FakeClock` will make."""

    when: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """Forgets the call."""
        self.cancelled = True


class FakeClock:
    """Time that moves only by `advance`. Timers fire in their order, each at its own time."""

    def __init__(self, now: float = 1000.0) -> None:
        self.seconds = now
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._count = 0

    def now(self) -> float:
        """Returns monotonic seconds."""
        return self.seconds

    def wall_ns(self) -> int:
        """Returns nanoseconds since the epoch: monotonic time, a billion seconds later."""
        return round((1_000_000_000 + self.seconds) * 1e9)

    async def sleep(self, seconds: float) -> None:
        """Returns when the clock has been advanced by `seconds`."""
        woken = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_at(self.seconds + seconds, wake)
        try:
            await woken
        finally:
            timer.cancel()

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        """Calls `callback` when the clock reaches `when`; at the next advance if that is past."""
        timer = FakeTimer(when, callback)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    @property
    def next_due(self) -> float | None:
        """When the next timer fires; None when none is set."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def advance(self, seconds: float) -> None:
        """Moves time and fires what falls due on the way."""
        end = self.seconds + seconds
        while (due := self.next_due) is not None and due <= end:
            _, _, timer = heapq.heappop(self._timers)
            self.seconds = max(self.seconds, due)
            timer.callback()
        self.seconds = end

    async def run(self, seconds: float, *, step: float = 1.0) -> None:
        """Moves time in steps, and lets the tasks act after each."""
        end = self.seconds + seconds
        await settle()
        while self.seconds < end:
            until = min(end, self.seconds + step)
            if (due := self.next_due) is not None:
                until = min(until, max(due, self.seconds))
            self.advance(until - self.seconds)
            await settle()


class FakeReply:
    """Records an answer; fails when it is written against the port's contract."""

    def __init__(self) -> None:
        self.started = False
        self.paused = False
        self.gone = False
        self.status = 0
        self.phrase = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.length: int | None = None
        self.pieces: list[bytes] = []
        self.end = ""
        self._caught_up = asyncio.Event()

    @property
    def open_ended(self) -> bool:
        """True when no length was promised."""
        return self.started and self.length is None

    def start(self, status: int, phrase: bytes, lines: bytes, *, length: int | None, body: bytes | None = None) -> None:
        """Records the head."""
        assert not self.started, "a second head"
        assert not self.end, f"a head after the answer was {self.end}"
        self.started = True
        self.status, self.phrase, self.headers, self.length = status, phrase, pairs_of(lines), length
        if body is not None:
            assert length == len(body), "another length than the body's"
            self.pieces.append(body)
            self.end = "finished"

    def write(self, piece: bytes) -> None:
        """Records a piece."""
        assert self.started, "a body without a head"
        assert not self.end, f"a piece after the answer was {self.end}"
        self.pieces.append(piece)

    async def drain(self) -> None:
        """Waits until `resume`, while `paused`. Raises `ReaderGone` once `gone`."""
        while self.paused and not self.gone:
            self._caught_up.clear()
            await self._caught_up.wait()
        if self.gone:
            raise ReaderGone

    def resume(self, *, gone: bool = False) -> None:
        """The reader has caught up, or has gone."""
        self.paused, self.gone = False, gone
        self._caught_up.set()

    def finish(self) -> None:
        """Records a clean end."""
        assert self.started, "an end without a head"
        assert self.end in ("", "finished"), f"a clean end after the answer was {self.end}"
        self.end = "finished"

    def abort(self) -> None:
        """Records a visible break."""
        self.end = self.end or "aborted"

    @property
    def body(self) -> bytes:
        """Everything that was written after the head."""
        return b"".join(self.pieces)

    def header(self, name: bytes) -> bytes | None:
        """Returns the first value of a field, by its lower-case name."""
        return next((value for field, value in self.headers if field.lower() == name), None)


class FakeUpload:
    """A body that arrives in pieces; `broken` fails after them, `gate` holds each piece back until it is set."""

    def __init__(
        self,
        pieces: Iterable[bytes],
        *,
        length: int | None = None,
        broken: bool = False,
        gate: asyncio.Event | None = None,
    ) -> None:
        self._pieces = list(pieces)
        self._broken = broken
        self._gate = gate
        self._read = 0
        self.length = length
        self.limit = 1 << 62

    @property
    def complete(self) -> bool:
        """True when nothing holds the rest back."""
        return not self._broken and (self._gate is None or self._gate.is_set())

    async def read(self) -> bytes:
        """Returns the next piece."""
        if self._gate is not None:
            await self._gate.wait()
        if not self._pieces:
            if self._broken:
                raise BodyProblem("it ended too early")
            return b""
        piece = self._pieces.pop(0)
        self._read += len(piece)
        if self._read > self.limit:
            raise BodyTooLarge
        return piece


async def whole_of(upload: Upload) -> bytes:
    """Returns the whole body."""
    whole = b""
    while piece := await upload.read():
        whole += piece
    return whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a test's caller asks; the defaults are a chat completion in JSON."""

    method: str = "POST"
    target: str = "/v1/chat/completions"
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),)
    body: bytes | None = b'{"model":"m1","messages":[]}'
    upload: Upload | None = None
    stream: bool = False
    klass: str = "P1"
    request_id: str = "r1"


CHAT = Ask()


def make_request(ask: Ask = CHAT) -> Request:
    """A request; its body has been read unless `upload` is given."""
    request = Request(
        ask.method,
        ask.target,
        fields_of((name.encode(), value.encode()) for name, value in ask.headers),
        upload=ask.upload,
    )
    if ask.upload is None:
        request.body = ask.body
    return request


def make_exchange(ask: Ask = CHAT, *, now: float = 1000.0, reply: ReplyPort | None = None) -> Exchange:
    """An exchange that has just arrived, with the payload that a tier would send of it."""
    facts = Facts(request_id=ask.request_id, arrived_at=now, arrived_ns=round(now * 1e9))
    facts.stream, facts.klass = ask.stream, ask.klass
    exchange = Exchange(make_request(ask), reply or FakeReply(), facts)
    exchange.payload = exchange.request.body
    return exchange


def with_attempt(exchange: Exchange, *, limits: PhaseLimits = LIMITS) -> Attempt:
    """Gives an exchange the attempt record that a transport expects."""
    attempt = Attempt(number=1, tier=1, provider="alpha", model="m1", limits=limits)
    exchange.attempt = attempt
    exchange.facts.attempts.append(attempt)
    return attempt


def answered(status: int = 200) -> Outcome:
    """The outcome of an answer that was relayed to its end."""
    return Outcome(OutcomeKind.OK, status=status, committed=True)


def counting_bits(count: int, /) -> int:
    """Randomness that is not random: always the same bits."""
    return (1 << (count - 1)) | 1
