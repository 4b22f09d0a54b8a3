"""The proxy as a process, with a spy in it; the model servers and the callers around it."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from tests.integration.harness import ProxyProcess
from tests.soak.agents import Crowd
from tests.soak.changes import Size, first
from tests.soak.footprint import Footprint, Spy, footprint
from tests.soak.hands import Hands
from tests.soak.plan import Plan
from tests.soak.policies import PROVIDERS, Around, Wanted, text
from tests.soak.promises import Book, Promise
from tests.soak.provider import Rules, Server
from tests.soak.rough import Rough
from tests.soak.simulated import SimulatorProcess
from tests.soak.traffic import Callers, Traffic
from tests.soak.visitors import Visitors

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.02
SETTLED_SECONDS = 0.5
QUIET_LOOKS = 2
INSIDE = (sys.executable, "-m", "tests.soak.inside")


class Bench:
    """Everything that a run needs, behind `async with`."""

    def __init__(self, plan: Plan, *, draw: random.Random) -> None:
        self.plan = plan
        self.book = Book(monotonic)
        self.rules = Rules(self.book)
        self.size = Size.of(plan.rate)
        self.wanted: Wanted = first(self.size)
        judges = {"broken": self.rules.broken, "keyed": self.rules.keyed, "narrow": self.rules.narrow}
        judges["metered"] = self.rules.metered
        self.servers = {
            name: Server(name, self.book, addresses=2 if name == "moving" else 1, judge=judges.get(name))
            for name in PROVIDERS
        }
        self.rough = Rough(random.Random(draw.random()))
        self.simulator = SimulatorProcess(plan.profile)
        self._draw = draw
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start_providers(stack)
            await self._start_proxy(stack)
            self.callers = Callers(self.proxy.port, self.book)
            stack.push_async_callback(self.callers.close)
            self._surround()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start_providers(self, stack: AsyncExitStack) -> None:
        for server in self.servers.values():
            stack.push_async_callback(server.stop)
            await server.start()
        await stack.enter_async_context(self.rough.provider)
        await stack.enter_async_context(self.simulator)

    async def _start_proxy(self, stack: AsyncExitStack) -> None:
        # Its own policy file is never read: the policies of a run have a directory.
        spy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sponson-soak-"))) / "spy"
        self.proxy = ProxyProcess("", flags=("--linger", "0s"), prefix=(*INSIDE, str(spy)))
        place = self.proxy.folder / "policies"
        ports = {name: server.ports for name, server in self.servers.items()}
        ports |= {"rough": (self.rough.provider.port,), "agents": (self.simulator.port,)}
        self.around = Around(ports=ports, secrets=self.proxy.folder / "secrets")
        for folder in (place, self.around.secrets):
            folder.mkdir()
        for key in ("good", "other", "resting", "parked"):
            (self.around.secrets / key).write_text(f"{key}\n")
        self.hands = Hands(place)
        self.hands.rename(text(self.wanted, self.around).encode())
        self.proxy.policy_path = place
        self.book.expect(self.wanted.limits())
        await stack.enter_async_context(self.proxy)
        self.spy = Spy(spy)
        stack.push_async_callback(self.spy.close)

    def _surround(self) -> None:
        """Makes the traffic, which nobody has begun yet."""
        plan, draw, port = self.plan, self._draw, self.proxy.port
        self.traffic = Traffic(self.callers, rate=plan.rate, draw=draw)
        self.visitors = Visitors(port, self.book, rate=plan.visits, draw=random.Random(draw.random()))
        self.crowd = Crowd(
            plan.profile, self.book, port=port, provider=self.simulator.port, direct=plan.direct, seed=plan.seed
        )

    async def policy(self) -> Any:
        """What `/policy` shows."""
        return (await self.proxy.get("/policy")).json()

    def hang_up(self) -> None:
        """Sends the signal that asks for a look."""
        self.proxy.signal(signal.SIGHUP)

    async def look(self, *, deep: bool = False) -> Footprint:
        """What the proxy holds now."""
        servers = {port for ports in self.around.ports.values() for port in ports}
        return await footprint(self.proxy.process.pid, self.spy, port=self.proxy.port, servers=servers, deep=deep)

    async def quiet(self) -> Footprint:
        """Waits until nothing is under way and every connection is closed; returns what is held then."""
        await self._recover()
        until = monotonic() + PATIENCE_SECONDS
        while wrong := at_work(await self.proxy.status()):
            if monotonic() > until:
                self.book.breach(Promise.REST, f"never at rest: {', '.join(wrong)}")
                break
            await asyncio.sleep(LOOK_SECONDS)
        await self.callers.hang_up()
        return await self._settled()

    async def _settled(self) -> Footprint:
        """Looks until nothing becomes less any more."""
        least, same = await self.look(), 0
        while same < QUIET_LOOKS:
            await asyncio.sleep(SETTLED_SECONDS)
            now = await self.look()
            held = (now.downstream, now.upstream, now.descriptors, now.tasks)
            same = same + 1 if held >= (least.downstream, least.upstream, least.descriptors, least.tasks) else 0
            least = now
        return await self.look(deep=True)

    async def _recover(self) -> None:
        """Lets the rough provider answer well until no breaker of its is open any more."""
        self.rough.calm = True
        until = monotonic() + PATIENCE_SECONDS
        while models := [row["model"] for row in (await self.proxy.status())["breakers"] if _is_tripped(row)]:
            if monotonic() > until:
                self.book.breach(Promise.REST, f"breakers stay open: {models}")
                break
            for model in models:
                await self.callers.try_once(model)
            await asyncio.sleep(LOOK_SECONDS)
        self.rough.calm = False

    async def until(self, holds: Callable[[Any], bool], promise: Promise, what: str) -> Any:
        """Waits until `/policy` shows something and returns it; a breach if it never does."""
        until = monotonic() + PATIENCE_SECONDS
        while not holds(shown := await self.policy()):
            if monotonic() > until:
                self.book.breach(promise, f"{what}: /policy still shows {shown}")
                break
            await asyncio.sleep(LOOK_SECONDS)
        return shown


def _is_tripped(row: Any) -> bool:
    return bool(row["provider"] == "rough" and row["state"] != "closed")


def at_work(status: Any) -> list[str]:
    """Names what is not at rest, as `/status` shows it."""
    found = {
        "requests": status["in_flight"],
        "permits": sum(row["in_use"] for row in status["permits"]),
        "permits out": status["permits_out"],
        "waiters": sum(row["waiting"] for row in status["queues"]),
        "waiting bytes": sum(row["bytes"] for row in status["queues"]),
        "keys in use": sum(row["in_use"] for row in status["keys"]),
        "bytes of bodies": status["bodies"]["bytes"],
        "busy connections": sum(row["in_use"] for row in status["connections"]),
        "idle connections": sum(row["idle"] for row in status["connections"]),
        "probes": sum(row["probes_running"] for row in status["breakers"]),
        "idempotent calls": status["idempotency"]["running"],
        "idempotent answers": status["idempotency"]["bytes"],
        "equal calls": status["single_flight"]["running"],
        "refreshes": status["refreshes"]["running"],
        "requests to be merged": status["merging"]["waiting"],
        "tenants at work": sum(row["in_flight"] for row in status["tenants"]),
    }
    return [f"{count} {name}" for name, count in found.items() if count]
