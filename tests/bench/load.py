"""The load generator: N keep-alive connections in a closed loop, every answer compared byte for byte.

Each connection sends its next request when the last one has been answered. Counting is limited to a window in
the middle of the run; what happens before and after is warm-up and draining.

Streams are begun by the clock instead: the pieces of different streams are then spread evenly over the gap
between two pieces, in every run alike. How many happen to arrive together decides what a piece costs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

from tests.bench import traffic

DRAIN_SECONDS = 10.0
PROBLEMS_KEPT = 5
# 64 connections that begin 53/64 of a gap apart have 64 different phases; a stream itself takes 50 gaps.
STREAM_PERIOD_SECONDS = 53 * traffic.EVENT_GAP_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How much traffic goes to which port of 127.0.0.1, and for how long it is counted."""

    port: int
    connections: int
    seconds: float
    warm_up_seconds: float = 0.3
    stream: bool = False


@dataclass(slots=True)
class Tally:
    """What the connections of one run count together; times in seconds."""

    counting: bool = False
    stopping: bool = False
    answers: int = 0
    events: int = 0
    latencies: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    problem_count: int = 0
    problems: list[str] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def report(self, problem: str) -> None:
        """Count something that must not happen, and keep the first few descriptions."""
        self.problem_count += 1
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One finished run; times in seconds, `probed` is what the probe grew by within the window."""

    seconds: float
    answers: int
    events: int
    latencies: list[float]
    first_bytes: list[float]
    probed: float
    problem_count: int
    problems: list[str]


class Client(asyncio.Protocol):
    """One connection in its closed loop."""

    def __init__(self, tally: Tally, *, stream: bool) -> None:
        self._tally = tally
        self._stream = stream
        self._due = 0.0
        self._loop = asyncio.get_running_loop()
        self._reader = traffic.MessageReader()
        self._transport: asyncio.WriteTransport | None = None
        self._mark = b""
        self._sent_at = 0.0
        self._events = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def begin(self, due: float) -> None:
        """Send the first request when the loop's clock shows `due`."""
        self._due = due
        self._loop.call_at(due, self.send)

    def send(self) -> None:
        """Send the next request, unless the run is ending or the connection is gone."""
        if self._tally.stopping or self._transport is None:
            self.idle.set()
            return
        self.idle.clear()
        self._mark = traffic.mark_of(next(self._tally.numbers))
        self._events = 0
        request = traffic.request(self._mark, stream=self._stream)
        self._sent_at = perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        now = perf_counter()
        complete = self._reader.feed(data)
        if self._stream:
            self._count_events(now)
        if complete:
            self._finish(now)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if not self.idle.is_set():
            self._tally.report(f"connection lost before the answer was complete: {exc or 'closed'}")
            self.idle.set()

    def close(self) -> None:
        """End the connection, whatever it is doing."""
        if self._transport is not None:
            self.idle.set()
            self._transport.abort()

    def _count_events(self, now: float) -> None:
        seen = self._reader.body.count(b"\n\n")
        if self._tally.counting:
            self._tally.events += seen - self._events
            if seen and not self._events:
                self._tally.first_bytes.append(now - self._sent_at)
        self._events = seen

    def _finish(self, now: float) -> None:
        self._check()
        self._reader.forget()
        if self._tally.counting:
            self._tally.answers += 1
            self._tally.latencies.append(now - self._sent_at)
        if self._stream:
            self.idle.set()
            self.begin(max(self._due + STREAM_PERIOD_SECONDS, self._loop.time()))
        else:
            self.send()

    def _check(self) -> None:
        reader = self._reader
        expected = traffic.stream_body(self._mark) if self._stream else traffic.answer_body(self._mark)
        if reader.status != 200:
            self._tally.report(f"status {reader.status}: {reader.body[:200]!r}")
        elif reader.body != expected:
            self._tally.report(f"wrong answer to {self._mark!r}, {len(reader.body)} bytes: {reader.body[:200]!r}")


def _nothing() -> float:
    return 0.0


async def drive(plan: LoadPlan, *, probe: Callable[[], float] = _nothing) -> Load:
    """Run the plan to its end; `probe` is read where the counting window begins and ends."""
    loop = asyncio.get_running_loop()
    tally = Tally()
    clients = [Client(tally, stream=plan.stream) for _ in range(plan.connections)]
    for client in clients:
        await loop.create_connection(lambda made=client: made, "127.0.0.1", plan.port)  # type: ignore[misc]
    try:
        spread = STREAM_PERIOD_SECONDS if plan.stream else 0.0
        began = loop.time()
        for index, client in enumerate(clients):
            client.begin(began + spread * index / len(clients))
        await asyncio.sleep(spread + plan.warm_up_seconds)
        tally.counting, before, began = True, probe(), perf_counter()
        await asyncio.sleep(plan.seconds)
        tally.counting, probed, seconds = False, probe() - before, perf_counter() - began
        tally.stopping = True
        await _drain(clients, tally)
    finally:
        for client in clients:
            client.close()
    return Load(
        seconds=seconds,
        answers=tally.answers,
        events=tally.events,
        latencies=tally.latencies,
        first_bytes=tally.first_bytes,
        probed=probed,
        problem_count=tally.problem_count,
        problems=tally.problems,
    )


async def _drain(clients: list[Client], tally: Tally) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            for client in clients:
                await client.idle.wait()
    except TimeoutError:
        tally.report(f"an answer was still missing {DRAIN_SECONDS:.0f} s after the last request")
