"""Calls with names, at a provider that answers each when it is told to: who goes, who waits, and in which order."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.integration.caller import Answer, Headers
from tests.integration.harness import Lab
from tests.integration.messages import CHAT, said
from tests.integration.scripted import Exchange

LATE = 60.0
"""No call of these ends by its caller's impatience."""


class Doors:
    """A provider, and calls to it. `model` is what the calls ask for; with it, or a header, they choose a route."""

    def __init__(self, lab: Lab, provider: str, *, model: str | None = None) -> None:
        self.lab = lab
        self.provider = lab[provider]
        self.name = provider
        self.model = model or provider
        self.tasks: dict[str, asyncio.Task[Answer]] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._all = asyncio.Event()
        self.came: list[str] = []
        self.running: set[str] = set()
        self.provider.forget()
        self.provider.script = self._script

    async def _script(self, exchange: Exchange) -> None:
        name = exchange.request.json()["user"]
        self.came.append(name)
        self.running.add(name)
        try:
            await self._ends.setdefault(name, asyncio.Event()).wait()
        finally:
            self.running.discard(name)
        await exchange.reply(200, said(name))

    def call(self, name: str, *, headers: Headers = (), **body: Any) -> asyncio.Task[Answer]:
        """Sends a call of this name."""
        document = {**CHAT, "model": self.model, "user": name, **body}
        self.tasks[name] = asyncio.ensure_future(self.lab.call(body=document, headers=headers, within=LATE))
        return self.tasks[name]

    async def runs(self, name: str, *, headers: Headers = (), **body: Any) -> None:
        """Sends a call and waits until it has come to the provider."""
        self.call(name, headers=headers, **body)
        await self.has(name)

    async def waits(self, name: str, *, headers: Headers = (), **body: Any) -> None:
        """Sends a call and waits until it waits."""
        before = await self.waiting()
        self.call(name, headers=headers, **body)
        await self.lab.proxy.until(lambda status: waiting(status, self.name) == before + 1)
        assert name not in self.came

    async def waiting(self) -> int:
        """How many wait for this provider."""
        return waiting(await self.lab.proxy.status(), self.name)

    async def has(self, *names: str, within: float = 10.0) -> None:
        """Waits until these calls have come to the provider."""
        try:
            async with asyncio.timeout(within):
                while not set(names) <= set(self.came):
                    await asyncio.sleep(0.005)
        except TimeoutError:
            ended = {
                name: (task.result().status, task.result().reason) for name, task in self.tasks.items() if task.done()
            }
            raise AssertionError(
                f"{set(names) - set(self.came)} did not come, but {self.came}; ended: {ended}"
            ) from None

    async def end(self, *names: str) -> list[Answer]:
        """Lets these calls be answered; returns the answers."""
        for name in names:
            self._ends.setdefault(name, asyncio.Event()).set()
        return [await self.tasks[name] for name in names]

    async def end_all(self, *, every: bool = True) -> list[Answer]:
        """Lets all calls be answered, those that wait one after the other; every one must be."""
        for name in self.tasks:
            self._ends.setdefault(name, asyncio.Event()).set()
        answers = [await task for task in self.tasks.values()]
        if every:
            assert Counter(answer.status for answer in answers) == {200: len(answers)}, [a.reason for a in answers]
        return answers


def waiting(status: Any, provider: str) -> int:
    """How many wait for a provider."""
    found: list[int] = [row["waiting"] for row in status["queues"] if row["provider"] == provider]
    return sum(found)


def klass(name: str) -> Headers:
    """The header by which a caller says its class."""
    return [("x-sponson-class", name)]


async def leaves_nothing(lab: Lab) -> None:
    """Checks that nobody holds anything, and nobody waits."""
    await lab.idle()
    status = await lab.proxy.status()
    assert (status["permits_out"], status["holders"]) == (0, [])
    for row in status["permits"]:
        assert all(part["in_use"] == 0 for part in row.get("reserved", {}).values()), row
    for row in status["queues"]:
        assert (row["waiting"], row["bytes"], sum(row["by_target"].values())) == (0, 0, 0)
