"""One provider behind `async with`: its sockets, its faults at run time, and what it saw."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from aiohttp import web

from proxy.simulation.provider.control import Control
from proxy.simulation.provider.faults import Fault
from proxy.simulation.provider.grammar import parse_fault
from proxy.simulation.provider.ledger import Received, Stats
from proxy.simulation.provider.listener import Listener
from proxy.simulation.provider.service import Service
from proxy.simulation.provider.settings import SimulatorSettings
from proxy.tasks import start_task

_BODY_BYTES = 1 << 30
_STOP_SECONDS = 0.05


class ProviderSimulator:
    """A simulated provider, to be used as an async context manager inside a running loop."""

    def __init__(self, settings: SimulatorSettings | None = None) -> None:
        self.settings = settings or SimulatorSettings()
        self._started: _Started | None = None

    def __repr__(self) -> str:
        state = repr(self._started.listener) if self._started is not None else "stopped"
        return f"ProviderSimulator({self.settings.name}, {state})"

    async def __aenter__(self) -> Self:
        self._started = await _start(self.settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started is not None:
            await self._started.stop()

    @property
    def _running(self) -> _Started:
        if self._started is None:
            raise RuntimeError("the simulator runs inside `async with` only")
        return self._started

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._running.listener.port

    @property
    def base_url(self) -> str:
        """`http://host:port`; the OpenAI SDK wants `/v1` behind it, the Anthropic SDK and a policy do not."""
        host = self.settings.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def requests(self) -> tuple[Received, ...]:
        """The last 1000 requests, oldest first; records of open ones go on changing."""
        return self._running.service.ledger.requests

    def stats(self) -> Stats:
        """Returns the counts of this moment."""
        return self._running.service.ledger.stats()

    def reset_stats(self) -> None:
        """Forgets requests and counts."""
        self._running.service.ledger.reset()

    def set_faults(self, faults: Iterable[Fault | str]) -> None:
        """Replaces the faults, given as such or as texts; windows and counts begin now. Raises FaultError."""
        read = [parse_fault(fault) if isinstance(fault, str) else fault for fault in faults]
        self._running.service.set_faults(read)
        self._running.changed.set()

    @property
    def control(self) -> Control:
        """The /sim pages, to be added to another application too."""
        return self._running.control


class _Started:
    """What exists while a simulator runs."""

    def __init__(self, settings: SimulatorSettings) -> None:
        self.now = asyncio.get_running_loop().time
        self.changed = asyncio.Event()
        self.service = Service(settings, now=self.now)
        self.control = Control(settings.name, self.service, self.changed.set)
        self.runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,
            auto_decompress=False,
            access_log=None,
            keepalive_timeout=settings.keepalive_seconds,
            shutdown_timeout=_STOP_SECONDS,
            max_line_size=65536,
            max_field_size=65536,
            max_headers=256,
        )
        self.listener = Listener(self.runner, settings.host, settings.port)
        self.follower: asyncio.Task[None] | None = None

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=_BODY_BYTES)
        self.control.add_routes(application.router)
        application.router.add_route("*", "/{path:.*}", self.service.handle)
        return application

    async def follow_refusals(self) -> None:
        """Shuts and opens the listener as the faults say, for ever."""
        while True:
            self.changed.clear()
            now, schedule = self.now(), self.service.schedule
            if schedule.refuses(now):
                await self.listener.shut(busy=self.service.busy)
            else:
                await self.listener.open()
            next_change = schedule.next_change(now)
            try:
                async with asyncio.timeout_at(next_change):
                    await self.changed.wait()
            except TimeoutError:
                pass

    async def stop(self) -> None:
        """Closes everything; calls that still run are cancelled."""
        self.service.stopping = True
        if self.follower is not None:
            self.follower.cancel()
            await asyncio.wait([self.follower])
        await self.runner.cleanup()
        self.listener.drop()


async def _start(settings: SimulatorSettings) -> _Started:
    started = _Started(settings)
    try:
        await started.runner.setup()
        await started.listener.open()
    except BaseException:
        await started.stop()
        raise
    started.follower = start_task(started.follow_refusals(), name=f"refusals of {settings.name}")
    return started
