"""The agents of a profile: each with a connection of its own and a timetable; every answer is checked and timed.

The provider tells in each answer how long it took to begin, and in a stream also to the first token. What a caller
waited beyond that is the delay of the way and of the callers' own process; some agents go to the provider directly and
say how much of it is not the proxy's. Of streams the first token counts: what comes before it may be held back.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic

from proxy.simulation.provider.profiles import Agents, Profile
from tests.bench.traffic import MessageReader
from tests.soak.promises import Book, Promise

MODEL = "agents-large"
PATH = "/v1/chat/completions"
PATIENCE_SECONDS = 120.0
LATE_SECONDS = 0.5
FRESH_SECONDS = 30.0
"""Who has not asked for so long connects anew, as clients do: their connection may just be ended."""
HEARTBEAT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
WORD = "word "
TOKEN_BYTES = 4
_DURATIONS = re.compile(rb";dur=([0-9.]+)")

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(slots=True)
class Seen:
    """What a group of agents has seen; `delays` are seconds to the first token beyond the provider's own."""

    calls: int = 0
    streams: int = 0
    heartbeats: int = 0
    late: int = 0
    open: int = 0
    most_open: int = 0
    delays: list[float] = field(default_factory=list)

    def delay(self, part: float) -> float:
        """The delay that so large a part of the calls stays below, in milliseconds."""
        if not self.delays:
            return 0.0
        ordered = sorted(self.delays)
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))] * 1000


def timetable(profile: Profile, kind: Agents, draw: random.Random, *, within: float) -> Iterator[float]:
    """Yields the seconds at which an agent asks: in runs, from somewhere in its first period, or `within` less."""
    period = profile.period_seconds(kind)
    begin = draw.uniform(0.0, min(period, within))
    while True:
        for number in range(kind.run):
            yield begin + number * kind.run_seconds
        begin += period


class Agent:
    """One agent: asks when its timetable says so, or as soon as it has the answer before. `task` is its work now."""

    def __init__(self, task: str, profile: Profile, kind: Agents, *, seen: Seen, draw: random.Random) -> None:
        self._task = task
        self._name = task.partition("/")[0]
        self._profile = profile
        self._kind = kind
        self._seen = seen
        self._draw = draw
        self._operation = 0
        self._reader = MessageReader()

    async def go_on(self, port: int, book: Book, ends: asyncio.Event, *, within: float = math.inf) -> None:
        """Asks until the event, and then to the end of the answer; every surprise is a breach."""
        began = asked_at = monotonic()
        line: Line | None = None
        try:
            line = await asyncio.open_connection("127.0.0.1", port)
            for due in timetable(self._profile, self._kind, self._draw, within=within):
                self._seen.late += monotonic() > began + due + LATE_SECONDS
                if await _ended(ends, began + due):
                    return
                if monotonic() - asked_at > FRESH_SECONDS:
                    line[1].close()
                    line = await asyncio.open_connection("127.0.0.1", port)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._ask(*line, book)
                asked_at = monotonic()
        except (OSError, TimeoutError) as error:
            book.breach(Promise.AGENTS, f"{self._name}, {self._kind.name}: {error!r}")
        finally:
            if line is not None:
                line[1].close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, book: Book) -> None:
        seen = self._seen
        seen.open += 1
        seen.most_open = max(seen.most_open, seen.open)
        writer.write(self._request())
        sent_at, first_at = monotonic(), 0.0
        whole = False
        while not whole:
            data = await reader.read(1 << 16)
            if not data:
                raise ConnectionError("the connection ended before the answer did")
            whole = self._reader.feed(data)
            if not first_at and (whole or self._has_begun()):
                first_at = monotonic()
        seen.open -= 1
        seen.calls += 1
        self._judge(book, first_at - sent_at)
        self._reader.forget()

    def _has_begun(self) -> bool:
        """Whether the first token of a stream is there; the role comes before it."""
        return self._kind.stream and self._reader.body.count(b'"content"') > 1

    def _request(self) -> bytes:
        kind, draw = self._kind, self._draw
        tokens = kind.large_tokens if draw.random() < kind.large_part else kind.context_tokens
        document = {
            "model": MODEL,
            "messages": [{"role": "user", "content": (WORD * tokens)[: tokens * TOKEN_BYTES]}],
            "max_tokens": kind.output_tokens,
            "stream": kind.stream,
        }
        body = json.dumps(document).encode()
        self._operation += 1
        key = f"idempotency-key: {self._task}/{self._operation}\r\n" if kind.writes else ""
        head = f"POST {PATH} HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\nx-agent-id: {self._name}\r\n"
        return f"{head}{key}content-length: {len(body)}\r\n\r\n".encode() + body

    def _judge(self, book: Book, waited: float) -> None:
        reader, seen = self._reader, self._seen
        if reader.status != 200:
            book.breach(Promise.AGENTS, f"{self._kind.name}: {reader.status} {reader.body[:300]!r}")
            return
        told = sum(map(float, _DURATIONS.findall(reader.head)))
        seen.delays.append(waited - told / 1000)
        if not self._kind.stream:
            json.loads(reader.body)
            return
        seen.streams += 1
        seen.heartbeats += reader.body.count(HEARTBEAT)
        if not reader.body.endswith(DONE) or reader.body.count(b'"content"') <= self._kind.output_tokens:
            book.breach(Promise.AGENTS, f"a stream is not whole: {reader.body[-300:]!r}")


async def _ended(ends: asyncio.Event, at: float) -> bool:
    """Waits until then; returns whether the event came first."""
    try:
        async with asyncio.timeout(max(0.0, at - monotonic())):
            await ends.wait()
    except TimeoutError:
        pass
    return ends.is_set()


class Crowd:
    """All agents of a profile at the proxy, and some more of them at the provider itself."""

    def __init__(self, profile: Profile, book: Book, *, port: int, provider: int, direct: int, seed: int) -> None:
        self.profile = profile
        self._book = book
        self._ports = {False: port, True: provider}
        self._direct = direct
        self._seed = seed
        self._ends = asyncio.Event()
        self._round = 0
        self._running: list[asyncio.Task[None]] = []
        self.through, self.direct = Seen(), Seen()

    def start(self, *, within: float = math.inf) -> None:
        """Begins to ask; each agent has asked after so many seconds, or after its period."""
        self._ends.clear()
        self._round += 1
        for directly, count, seen in ((False, self.profile.agents, self.through), (True, self._direct, self.direct)):
            for number in range(count):
                kind = _kind_of(self.profile, number, count)
                draw = random.Random(f"{self._seed}/{directly}/{number}")
                task = f"agent-{number + directly * self.profile.agents}/task-{self._round}"
                agent = Agent(task, self.profile, kind, seen=seen, draw=draw)
                self._running.append(
                    asyncio.create_task(agent.go_on(self._ports[directly], self._book, self._ends, within=within))
                )

    async def stop(self) -> None:
        """Asks no more, and waits for every answer."""
        self._ends.set()
        await asyncio.gather(*self._running)
        self._running.clear()

    def forget(self) -> None:
        """Counts from now on."""
        self.through, self.direct = Seen(), Seen()


def _kind_of(profile: Profile, number: int, count: int) -> Agents:
    """The kind of agent number `number` of `count`: as many of each as their parts say."""
    place, least = (number + 0.5) / count, 0.0
    for kind in profile.kinds:
        least += kind.part
        if place < least:
            return kind
    return profile.kinds[-1]
