"""Several providers in one process, and a control address that stays reachable while a provider refuses."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from aiohttp import web

from proxy.simulation.provider.listener import Listener
from proxy.simulation.provider.settings import SettingsError, SimulatorSettings
from proxy.simulation.provider.simulator import ProviderSimulator


class SimulatorGroup:
    """Providers of different names; the control address has `/<name>/sim/...` and `/<name>/health` of each.

    Raises SettingsError for equal names and for faults of a provider that is not there, OSError when an
    address cannot be had.
    """

    def __init__(self, settings: Sequence[SimulatorSettings], *, control: tuple[str, int] | None = None) -> None:
        _check(settings)
        self._control = control
        self._stack = contextlib.AsyncExitStack()
        self.providers = {each.name: ProviderSimulator(each) for each in settings}
        self.control_port: int | None = None

    def __repr__(self) -> str:
        return f"SimulatorGroup({list(self.providers.values())!r})"

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            for provider in self.providers.values():
                await stack.enter_async_context(provider)
            if self._control is not None:
                await self._serve_control(stack, *self._control)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _serve_control(self, stack: contextlib.AsyncExitStack, host: str, port: int) -> None:
        application = web.Application()
        for name, provider in self.providers.items():
            provider.control.add_routes(application.router, f"/{name}")
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        listener = Listener(runner, host, port)
        await listener.open()
        self.control_port = listener.port


def _check(settings: Sequence[SimulatorSettings]) -> None:
    names = [each.name for each in settings]
    if len(set(names)) < len(names):
        raise SettingsError(f"two providers have the same name: {', '.join(names)}")
    for fault in (fault for each in settings for fault in each.faults):
        if fault.select.provider not in (None, *names):
            raise SettingsError(f"no provider is named {fault.select.provider}: known are {', '.join(names)}")
