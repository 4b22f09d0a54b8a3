"""Callers: so many requests a second, a quarter of them streams, every answer checked; and those who queue in turn."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from time import monotonic

import aiohttp

from tests.soak.changes import STEADY_PART
from tests.soak.promises import Book, Promise
from tests.soak.provider import EVENTS, TURN_HEADER, UNORDERED
from tests.soak.rough import FILES, PREFIX

CHAT = "/v1/chat/completions"
STREAMS = 0.25
MODELS = ("m0", "m1", "m2", "moving", "broken", "keyed")
WEIGHTS = (STEADY_PART / 3, STEADY_PART / 3, STEADY_PART / 3, 0.1, 0.05, 0.1)
IN_TURN = 6
"""Callers in the queue: each asks again when it is answered, so that they come one by one, in a known order."""
AT_A_RATE = 3
REST_SECONDS = 0.05
"""Callers at the metered provider, who ask for more than it grants: its bucket is empty, and somebody waits for it."""
GIVE_UP_SECONDS = 300.0


class Callers:
    """Asks through the proxy; what is not answered well is a breach."""

    def __init__(self, port: int, book: Book) -> None:
        self._url = f"http://127.0.0.1:{port}{CHAT}"
        self._book = book
        self._session, self._in_turn = _session(), _session()
        self.answers: Counter[str] = Counter()
        self.streams = 0
        self.slowest = 0.0

    async def close(self) -> None:
        """Ends the connections."""
        await self._session.close()
        await self._in_turn.close()

    async def hang_up(self) -> None:
        """Ends the connections; the next call makes new ones."""
        await self.close()
        self._session, self._in_turn = _session(), _session()

    async def ask(self, model: str, *, stream: bool = False, turn: int | None = None) -> None:
        """Makes one call and judges its answer."""
        document = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": stream}
        session = self._session if turn is None else self._in_turn
        headers = {} if turn is None else {TURN_HEADER: str(turn)}
        began = monotonic()
        try:
            async with session.post(self._url, json=document, headers=headers) as answer:
                body, status = await answer.text(), answer.status
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            self._book.breach(Promise.NO_FAILURE, f"{model}: {error!r}")
            return
        whole = body.count('"delta"') == EVENTS and body.endswith("data: [DONE]\n\n") if stream else "hello" in body
        if status != 200 or not whole:
            self._book.breach(Promise.NO_FAILURE, f"{model}: {status} {body[-300:]}")
            return
        self.answers[model] += 1
        self.streams += stream
        self.slowest = max(self.slowest, monotonic() - began)

    async def try_once(self, model: str) -> None:
        """Makes one call of the rough provider and judges nothing; calls without a model of their own send a file."""
        document = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        url = self._url if model.startswith(PREFIX) else self._url.replace(CHAT, FILES)
        async with self._session.post(url, json=document) as answer:
            await answer.read()


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=GIVE_UP_SECONDS)
    )


class Traffic:
    """Calls by the clock, whatever becomes of earlier ones, and a queue of callers before a single place."""

    def __init__(self, callers: Callers, *, rate: float, draw: random.Random) -> None:
        self._callers = callers
        self._rate = rate
        self._draw = draw
        self._calls: set[asyncio.Task[None]] = set()
        self._running: list[asyncio.Task[None]] = []
        self._stopping = False
        self._turn = 0

    def start(self) -> None:
        """Begins to ask."""
        self._stopping = False
        self._running = [
            asyncio.create_task(self._ask_by_the_clock()),
            *(asyncio.create_task(self._ask_in_turn()) for _ in range(IN_TURN)),
            *(asyncio.create_task(self._ask_at_a_rate()) for _ in range(AT_A_RATE)),
        ]

    async def stop(self) -> None:
        """Asks no more, and waits for every answer."""
        self._stopping = True
        await asyncio.gather(*self._running)
        await asyncio.gather(*self._calls)

    async def _ask_by_the_clock(self) -> None:
        due = monotonic()
        while not self._stopping:
            await asyncio.sleep(max(0.0, due - monotonic()))
            due += 1 / self._rate
            (model,) = self._draw.choices(MODELS, WEIGHTS)
            call = asyncio.create_task(self._callers.ask(model, stream=self._draw.random() < STREAMS))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    async def _ask_in_turn(self) -> None:
        """Calls again and again; the first one, which has to connect, has no place in the order."""
        await self._callers.ask("narrow", turn=UNORDERED)
        while not self._stopping:
            turn, self._turn = self._turn, self._turn + 1
            await self._callers.ask("narrow", turn=turn)

    async def _ask_at_a_rate(self) -> None:
        while not self._stopping:
            await self._callers.ask("metered")
            await asyncio.sleep(REST_SECONDS)
