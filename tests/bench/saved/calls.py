"""Those who call here: any path, one attempt, and every answer checked against what was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import aiohttp
import orjson

from proxy.simulation.provider.answers import embedding
from tests.bench.report import percentile

BROKEN = 0
"""The status of a call whose connection ended before its answer did."""
MODEL = "bench"
DIMENSIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked; `right` tells whether an answer's body belongs to it."""

    path: str
    body: bytes
    right: Callable[[bytes], bool]
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Call:
    """One call; times of `perf_counter`, which is finer than the loop's clock; `ended` is 0 while it has none.

    `cache` is what `x-sponson-cache` said.
    """

    began: float
    ended: float = 0.0
    status: int = BROKEN
    cache: str = ""
    right: bool = False

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.began


class Caller:
    """Calls one address, and remembers all calls."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self.calls: list[Call] = []

    async def call(self, asked: Question) -> Call:
        """Makes one call; a broken one is over too."""
        call = Call(began=perf_counter())
        self.calls.append(call)
        try:
            async with self._session.post(self._url + asked.path, data=asked.body, headers=asked.fields) as answer:
                body = await answer.read()
        except aiohttp.ClientError:
            call.ended = perf_counter()
            return call
        call.ended = perf_counter()
        call.status, call.cache = answer.status, answer.headers.get("x-sponson-cache", "")
        call.right = call.status == 200 and _belongs(body, asked)
        return call


def _belongs(body: bytes, asked: Question) -> bool:
    try:
        return asked.right(body)
    except (LookupError, TypeError, ValueError):
        return False  # It has another shape.


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """How the calls of some seconds went: those begun then, how long they took that got the right answer, and the
    others; right answers a second that came then, whenever they were asked for.
    """

    calls: int
    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int

    @classmethod
    def of(cls, calls: Sequence[Call], began: float, ended: float) -> Taken:
        """Counts what happened from then to then; all calls have ended."""
        begun = [call for call in calls if began <= call.began < ended]
        taken = [call.seconds * 1000 for call in begun if call.right]
        came = sum(call.right and began <= call.ended < ended for call in calls)
        return cls(
            calls=len(begun),
            per_second=came / (ended - began),
            p50_ms=percentile(taken, 0.5),
            p99_ms=percentile(taken, 0.99),
            failed=len(begun) - len(taken),
        )


def vector_question(number: int) -> Question:
    """Asks for the vector of one short text, unlike that of any other number, and as long: each has its equal share of
    the tokens of a merged call.
    """
    text = f"text {number:07d}"
    body = orjson.dumps({"model": MODEL, "input": text, "dimensions": DIMENSIONS})
    return Question(path="/v1/embeddings", body=body, right=lambda answer: is_vector_of(text, answer))


def vector_questions(start: int = 0) -> Iterator[Question]:
    """Yields one after the other, for ever."""
    while True:
        yield vector_question(start)
        start += 1


def is_vector_of(text: str, answer: bytes) -> bool:
    """Whether an answer is whole and has the vector of this text alone."""
    document = orjson.loads(answer)
    (found,) = document["data"]
    wanted = embedding(text, model=MODEL, dimensions=DIMENSIONS)
    tokens = -(-len(text) // 4)
    return found["index"] == 0 and tuple(found["embedding"]) == wanted and document["usage"]["total_tokens"] == tokens


def said(text: str) -> bytes:
    """The body of a chat whose last message is this text."""
    return orjson.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}]})
