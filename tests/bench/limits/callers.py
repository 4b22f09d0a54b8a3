"""Those who call: with an official SDK's habits, in a closed loop or by the clock; how each call ended.

A refused connection, a lost answer and a status of 408, 409, 429 or 5xx are tried again, twice at most: after the
Retry-After of the answer where it is at most a minute, else after 0.5 s, then 1 s, each less up to a quarter.
`x-should-retry: false` ends it. No limit of time, as good as the ten minutes that SDKs have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

import aiohttp
from multidict import CIMultiDictProxy

from tests.bench.overload.application import RETRIED

PATH = "/v1/chat/completions"
LOST = 0
"""The status of an attempt that got none."""
LONGEST_RETRY_AFTER_SECONDS = 60.0
BACK_OFF_SECONDS = 0.5
RETRIES = 2
_FILLER = "the quick brown fox jumps over the lazy dog and carries on, "


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked; `fields` are the caller's own header fields."""

    body: bytes
    fields: Mapping[str, str]


@dataclass(slots=True, kw_only=True)
class Call:
    """One call with all its attempts; times of the loop's clock, `ended` is 0 while it has none."""

    began: float
    ended: float = 0.0
    statuses: list[int] = field(default_factory=list)
    reason: str = ""

    @property
    def seconds(self) -> float:
        """How long it took, waits for another attempt included."""
        return self.ended - self.began

    @property
    def answered(self) -> bool:
        """Whether the model's answer came in the end."""
        return bool(self.ended) and self.statuses[-1] == 200


def request(number: int, *, prompt: int, max_tokens: int, fields: Mapping[str, str] | None = None) -> Request:
    """A chat request unlike any with another number, whose prompt has about so many tokens of four characters."""
    text = f"{number:08d} " + _FILLER * (prompt * 4 // len(_FILLER) + 1)
    content = text[: prompt * 4]
    body = (
        f'{{"model":"bench","max_tokens":{max_tokens},"messages":[{{"role":"user","content":"{content}"}}]}}'
    ).encode()
    return Request(body=body, fields=dict(fields or {}))


class Caller:
    """Calls one address."""

    def __init__(self, session: aiohttp.ClientSession, url: str, *, random: Random, retries: int = RETRIES) -> None:
        self._session = session
        self._url = url + PATH
        self._random = random
        self._retries = retries
        self._loop = asyncio.get_running_loop()
        self.calls: list[Call] = []

    async def call(self, asked: Request) -> Call:
        """Makes a call, and remembers it."""
        call = Call(began=self._loop.time())
        self.calls.append(call)
        while True:
            wait = await self._attempt(call, asked)
            if wait is None or len(call.statuses) > self._retries:
                call.ended = self._loop.time()
                return call
            await asyncio.sleep(wait)

    async def _attempt(self, call: Call, asked: Request) -> float | None:
        """Makes one attempt; returns after how long another one is due, None for none."""
        try:
            async with self._session.post(self._url, data=asked.body, headers=asked.fields) as answer:
                await answer.read()
        except aiohttp.ClientError:
            call.statuses.append(LOST)
            return self._back_off(call)
        call.statuses.append(answer.status)
        call.reason = answer.headers.get("x-sponson-reason", "")
        if not _worth_another(answer.status, answer.headers):
            return None
        told = retry_after(answer.headers)
        return self._back_off(call) if told is None else told

    def _back_off(self, call: Call) -> float:
        return BACK_OFF_SECONDS * 2.0 ** (len(call.statuses) - 1) * (1 - 0.25 * self._random.random())


@asynccontextmanager
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Connections for any number of calls at once."""
    fields = {"content-type": "application/json", "authorization": "Bearer sk-bench-caller"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None), headers=fields
    ) as made:
        yield made


def retry_after(fields: CIMultiDictProxy[str] | Mapping[str, str]) -> float | None:
    """The seconds that an answer asks to wait, None where it asks for none, or for more than an SDK would wait."""
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        try:
            seconds = float(fields.get(name, "")) * unit
        except ValueError:
            continue
        if 0 < seconds <= LONGEST_RETRY_AFTER_SECONDS:
            return seconds
    return None


def _worth_another(status: int, fields: CIMultiDictProxy[str]) -> bool:
    if fields.get("x-should-retry") in ("true", "false"):
        return fields["x-should-retry"] == "true"
    return status in RETRIED or status >= 500
