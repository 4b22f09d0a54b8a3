"""The proxy as a process, the model servers and the callers around it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from tests.integration.harness import ProxyProcess
from tests.soak.changes import Size, first
from tests.soak.hands import Hands
from tests.soak.policies import PROVIDERS, Around, Wanted, text
from tests.soak.promises import Book, Promise
from tests.soak.provider import Rules, Server
from tests.soak.traffic import Callers, Traffic

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.02
SETTLED_SECONDS = 0.5
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What the proxy holds while nobody asks."""

    mib: float
    descriptors: int


class Bench:
    """Everything that a run needs, behind `async with`."""

    def __init__(self, *, rate: float, draw: random.Random) -> None:
        self.book = Book(monotonic)
        self.rules = Rules(self.book)
        self.size = Size.of(rate)
        self.wanted: Wanted = first(self.size)
        judges = {"broken": self.rules.broken, "keyed": self.rules.keyed, "narrow": self.rules.narrow}
        judges["metered"] = self.rules.metered
        self.servers = {
            name: Server(name, self.book, addresses=2 if name == "moving" else 1, judge=judges.get(name))
            for name in PROVIDERS
        }
        self._rate = rate
        self._draw = draw
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for server in self.servers.values():
                stack.push_async_callback(server.stop)
                await server.start()
            # Its own policy file is never read: the policies of a run have a directory.
            self.proxy = ProxyProcess("", flags=("--linger", "0s"))
            place = self.proxy.folder / "policies"
            self.around = Around(
                ports={name: server.ports for name, server in self.servers.items()},
                secrets=self.proxy.folder / "secrets",
            )
            for folder in (place, self.around.secrets):
                folder.mkdir()
            for key in ("good", "other", "resting", "parked"):
                (self.around.secrets / key).write_text(f"{key}\n")
            self.hands = Hands(place)
            self.hands.rename(text(self.wanted, self.around).encode())
            self.proxy.policy_path = place
            self.book.expect(self.wanted.limits())
            await stack.enter_async_context(self.proxy)
            self.callers = Callers(self.proxy.port, self.book)
            stack.push_async_callback(self.callers.close)
            self.traffic = Traffic(self.callers, rate=self._rate, draw=self._draw)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def policy(self) -> Any:
        """What `/policy` shows."""
        return (await self.proxy.get("/policy")).json()

    def hang_up(self) -> None:
        """Sends the signal that asks for a look."""
        self.proxy.signal(signal.SIGHUP)

    async def quiet(self) -> Footprint:
        """Waits until nothing is under way and every connection is closed; returns what is held then."""
        await self.proxy.until(_at_rest, within=PATIENCE_SECONDS)
        await self.callers.hang_up()
        before = self._footprint()
        while True:
            await asyncio.sleep(SETTLED_SECONDS)
            now = self._footprint()
            if now.descriptors >= before.descriptors:
                return now
            before = now

    def _footprint(self) -> Footprint:
        home = Path(f"/proc/{self.proxy.process.pid}")
        pages = int((home / "statm").read_text().split()[1])
        return Footprint(
            mib=pages * os.sysconf("SC_PAGE_SIZE") / MIB,
            descriptors=sum(1 for _ in (home / "fd").iterdir()),
        )

    async def until(self, holds: Callable[[Any], bool], promise: Promise, what: str) -> Any:
        """Waits until `/policy` shows something and returns it; a breach if it never does."""
        until = monotonic() + PATIENCE_SECONDS
        while not holds(shown := await self.policy()):
            if monotonic() > until:
                self.book.breach(promise, f"{what}: /policy still shows {shown}")
                break
            await asyncio.sleep(LOOK_SECONDS)
        return shown


def _at_rest(status: Any) -> bool:
    return (
        status["in_flight"] == 0
        and all(row["in_use"] == 0 for row in status["permits"])
        and all(row["waiting"] == 0 for row in status["queues"])
        and all(row["idle"] == 0 for row in status["connections"])
    )
