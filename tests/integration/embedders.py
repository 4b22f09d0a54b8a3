"""A provider that embeds texts as themselves, one call at a time, and callers who wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.integration.caller import Answer, Headers
from tests.integration.doors import leaves_nothing, waiting
from tests.integration.harness import Lab, route
from tests.integration.messages import answers
from tests.integration.scripted import Exchange

OF_THREE = {"window": "1s", "max": 3}
PATIENT = {"timeouts": {"queue": "60s", "quota_wait": "60s"}}
ONE = {"breaker": "off", "limits": {"concurrency": 1}, **PATIENT}
KEYED = {**ONE, "keys": [{"id": "k1", "env": "KEY_1"}]}
ENV = {"KEY_1": "sk-1"}
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {"from": [{"header": "x-who"}]},
    "providers": {"alpha": KEYED, "beta": KEYED, "own": ONE},
    "routes": [
        route("m", "alpha", "beta", merge=OF_THREE, retry={"attempts": 1}),
        route("together", "alpha", merge={**OF_THREE, "scope": "route"}),
        route("own", "own", merge={**OF_THREE, "scope": "route"}),
    ],
}
EMBEDDINGS = "/v1/embeddings"


class Model:
    """Embeds texts as themselves, last one first. Refuses `poison`.

    One call at a time: while one of another kind is under way, the lane's first one waits for its place, and all who
    come after it wait for each other, however long that takes.
    """

    def __init__(self, lab: Lab, name: str = "alpha", *, model: str = "m") -> None:
        self.lab = lab
        self.name, self.model = name, model
        self.provider = lab[name]
        self.provider.script = self.embeds
        self.first, self.merged = asyncio.Event(), asyncio.Event()
        self.merged.set()
        self.calls: list[Any] = []
        self.before: list[asyncio.Task[Answer]] = []

    async def embeds(self, exchange: Exchange) -> None:
        """Answers one call."""
        asked = exchange.request.json()["input"]
        self.calls.append(asked)
        texts = asked if isinstance(asked, list) else [asked]
        if len(self.calls) == 1:
            await self.first.wait()
        elif len(texts) > 1:
            await self.merged.wait()
        if "poison" in texts:
            await answers(400)(exchange)
            return
        data = [{"object": "embedding", "index": i, "embedding": text} for i, text in enumerate(texts)]
        used = 7 * len(texts)
        usage = {"prompt_tokens": used, "total_tokens": used}
        await exchange.reply(200, {"object": "list", "data": data[::-1], "usage": usage})

    async def busy(self, **rest: Any) -> None:
        """From now on callers wait for each other."""
        if not self.before:
            self.before.append(self.ask("blocker", user="blocker", **rest))
            await self.provider.has_seen(1)
        self.before.append(self.ask("first", **rest))
        await self.queued(len(self.before) - 1)

    def hold_merged(self) -> None:
        """Merged calls are not answered until `merged` is set."""
        self.merged.clear()

    async def queued(self, count: int) -> None:
        """Waits until so many calls wait for their turn."""
        await self.lab.proxy.until(lambda status: waiting(status, self.name) == count, within=20)

    def ask(self, value: Any, *, headers: Headers = (), **rest: Any) -> asyncio.Task[Answer]:
        """Sends a request."""
        body = {"model": self.model, "input": value, **rest}
        return asyncio.ensure_future(self.lab.call(EMBEDDINGS, body, headers=headers))

    async def gathered(self, count: int) -> None:
        """Waits until so many requests wait for others."""
        await self.lab.proxy.until(lambda status: status["merging"]["waiting"] == count, within=20)

    async def together(self, *values: Any, **rest: Any) -> list[Answer]:
        """Lets these travel together."""
        tasks = [self.ask(value, **rest) for value in values]
        await self.queued(2)
        self.first.set()
        return await all_of(tasks)

    async def over(self) -> None:
        """Lets the first calls end, too; nothing is left."""
        self.first.set()
        assert [answer.status for answer in await all_of(self.before)] == [200] * len(self.before)
        await leaves_nothing(self.lab)
        assert (await self.lab.proxy.status())["merging"]["waiting"] == 0


def texts(answer: Answer) -> list[Any]:
    """What was embedded, by its index."""
    assert answer.status == 200, answer
    data = sorted(answer.json()["data"], key=lambda one: one["index"])
    assert [one["index"] for one in data] == list(range(len(data)))
    return [one["embedding"] for one in data]


async def all_of(tasks: Sequence[asyncio.Task[Answer]]) -> list[Answer]:
    """Waits for these answers."""
    return list(await asyncio.gather(*tasks))
