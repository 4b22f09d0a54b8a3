"""A model server with a number of slots and an unbounded queue: `python -m tests.bench.overload.model`.

A call takes a slot for a lognormal time, or waits for one, first come first served. A caller that leaves gives
its slot or its place back at once. `GET /` tells what happened so far, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from math import log, sqrt
from random import Random
from typing import Protocol, cast

import uvloop

from tests.bench import traffic
from tests.bench.provider import BAD_REQUEST
from tests.bench.report import percentile

VARIATION = 0.3
BACKLOG = 4096


@dataclass(slots=True, kw_only=True)
class Events:
    """What a model counts; `late` are the seconds by which answers missed their time, the machine's fault."""

    answered: int = 0
    left_while_waiting: int = 0
    left_while_running: int = 0
    longest_queue: int = 0
    late: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The same, told to others; `late_p99_ms` says whether the machine kept up."""

    answered: int
    left_while_waiting: int
    left_while_running: int
    longest_queue: int
    late_p99_ms: float


def lognormal_seconds(mean: float, random: Random) -> Callable[[], float]:
    """Service times with this mean and a coefficient of variation of 0.3."""
    sigma = sqrt(log(1 + VARIATION**2))
    mu = log(mean) - sigma**2 / 2
    return lambda: random.lognormvariate(mu, sigma)


class Caller(Protocol):
    """Who waits for a slot."""

    @property
    def gone(self) -> bool:
        """Whether it has left: it needs no slot any more."""

    def serve(self, seconds: float) -> None:
        """Occupy a slot for this long, then give it back by `Model.end`."""


class Model:
    """The slots and the queue; connections come to it with their calls."""

    def __init__(self, *, slots: int, service_seconds: Callable[[], float]) -> None:
        self._free = slots
        self._service_seconds = service_seconds
        self._queue: deque[Caller] = deque()
        self._waiting = 0
        self._events = Events()

    def __repr__(self) -> str:
        return f"Model(free={self._free}, waiting={self._waiting})"

    def statistics(self) -> Statistics:
        """What happened so far."""
        events = self._events
        return Statistics(
            answered=events.answered,
            left_while_waiting=events.left_while_waiting,
            left_while_running=events.left_while_running,
            longest_queue=events.longest_queue,
            late_p99_ms=percentile(events.late or [0.0], 0.99) * 1e3,
        )

    def arrive(self, caller: Caller) -> None:
        """Serve a call now or when its turn comes."""
        if self._free:
            self._free -= 1
            caller.serve(self._service_seconds())
            return
        self._queue.append(caller)
        self._waiting += 1
        self._events.longest_queue = max(self._events.longest_queue, self._waiting)

    def end(self, late: float) -> None:
        """A call has been answered, `late` seconds after its time; the next one gets its slot."""
        self._events.answered += 1
        self._events.late.append(late)
        self._next()

    def leave(self, *, running: bool) -> None:
        """A caller went away before its answer."""
        if running:
            self._events.left_while_running += 1
            self._next()
        else:
            self._events.left_while_waiting += 1
            self._waiting -= 1

    def _next(self) -> None:
        while self._queue:
            caller = self._queue.popleft()
            if not caller.gone:
                self._waiting -= 1
                caller.serve(self._service_seconds())
                return
        self._free += 1


class ModelConnection(asyncio.Protocol):
    """One connection; its calls come one after another."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._loop = asyncio.get_running_loop()
        self._reader = traffic.MessageReader()
        self._transport: asyncio.WriteTransport
        self._mark: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._reader.feed(data):
            return
        head, body = self._reader.head, self._reader.body
        self._reader.forget()
        self._mark = traffic.find_mark(body)
        if self._mark is not None:
            self._model.arrive(self)
        elif head.startswith(b"GET / "):
            self._tell()
        else:
            self._transport.write(BAD_REQUEST)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if self._mark is not None:
            self._model.leave(running=self._timer is not None)
        if self._timer is not None:
            self._timer.cancel()

    def serve(self, seconds: float) -> None:
        """Occupy the slot that the model gave for this long, then answer."""
        due = self._loop.time() + seconds
        self._timer = self._loop.call_at(due, self._answer, due)

    def _answer(self, due: float) -> None:
        assert self._mark is not None
        self._transport.write(traffic.answer(self._mark))
        self._mark = self._timer = None
        self._model.end(self._loop.time() - due)

    def _tell(self) -> None:
        told = json.dumps(asdict(self._model.statistics())).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(told) + told)


def allow_many_connections() -> int:
    """Raise this process's limit of open files to the most that it may have, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


async def serve(model: Model) -> None:
    """Serve until cancelled; the port goes to standard output."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(ModelConnection, model), "127.0.0.1", 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve with the given slots and mean time until terminated."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--mean", type=float, required=True, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    allow_many_connections()
    service_seconds = lognormal_seconds(options.mean, Random(options.seed))
    uvloop.run(serve(Model(slots=options.slots, service_seconds=service_seconds)))


if __name__ == "__main__":
    main()
