"""Everything that one `sponson run` is made of: how it starts, what it does by the clock, how it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from proxy.clock import Clock, Timer
from proxy.decisions.admission import Admission
from proxy.decisions.answers import Answers
from proxy.decisions.breaker import Breaker
from proxy.decisions.cached import Cached
from proxy.downstream.admin import AdminServer, AdminSources
from proxy.downstream.forward import ForwardServer
from proxy.downstream.rescue import rescue
from proxy.downstream.server import DataServer
from proxy.observer import GaugeSource, Observer, Observers, Reading
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes
from proxy.ports import Bits
from proxy.runtime.alarm import Alarm
from proxy.runtime.assembly import Runtime, Surroundings, assemble
from proxy.runtime.batching import BatchedObserver
from proxy.runtime.forwarding import Forwarding
from proxy.runtime.kept_state import Closable, KeptState
from proxy.runtime.lifecycle import KILLED, Phase, Signals, drain
from proxy.runtime.listeners import Listeners, OwnPorts, bound_to
from proxy.runtime.log_line import RequestLog
from proxy.runtime.machine import most_connections, most_waiting, open_files, shortages
from proxy.runtime.models import OTHER
from proxy.runtime.reload import PolicyKeeper
from proxy.runtime.secrets import Secrets
from proxy.runtime.status import StatusReader, policy_document
from proxy.settings import ProcessSettings
from proxy.stages.refreshing import Refreshes
from proxy.tasks import start_task
from proxy.trace_context import Sampler
from proxy.upstream.aside import Aside
from proxy.upstream.pool import Pool

FAILED = 1
TICK_SECONDS = 0.05
BEAT_LIMIT_SECONDS = 5.0
FLUSH_SECONDS = 2.0
FLUSH_PART = 0.2
"""Of the whole shutdown, when that is short: a drain of a second or two must not go to the flush alone."""
GC_THRESHOLD = 20_000
SETTLE_SECONDS = 0.5
"""After this the collector looks at what the start has left, once, and then never again."""

Understand = Callable[[PolicyBytes], PolicySnapshot]
"""Turns the bytes of a policy into a snapshot; blocks, and raises what makes the policy unfit."""

_log = logging.getLogger("sponson")


class Telemetry(Protocol):
    """What the process needs of telemetry; `otel.setup` has it."""

    observer: Observer
    sampler: Sampler

    def watch(self, source: GaugeSource) -> None:
        """Reads these gauges whenever somebody looks."""
        ...

    def prometheus(self) -> tuple[str, bytes]:
        """Returns content type and body of `/metrics`."""
        ...

    def start(self) -> None:
        """Starts to export."""
        ...

    async def shutdown(self, seconds: float) -> None:
        """Exports what is left, for at most `seconds`."""
        ...


class Process:
    """The proxy, put together."""

    def __init__(
        self, settings: ProcessSettings, understand: Understand, *, telemetry: Telemetry, clock: Clock
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.telemetry = telemetry
        self.phase = Phase.STARTING
        self.request_log = RequestLog()
        self._counted = BatchedObserver(telemetry.observer, clock=clock)
        self.observer = Observers([self.request_log, self._counted])
        self.kept = KeptState()
        self.admission = Admission()
        self._alarm = Alarm(self.admission.tick, clock)
        self.admission.alarm = self._alarm.set
        bits = random.Random(os.urandom(32)).getrandbits
        self._own = OwnPorts()
        self._around = Surroundings(
            kept=self.kept,
            admission=self.admission,
            observer=self.observer,
            rescue=rescue,
            clock=clock,
            bits=bits,
            pseudonym=f"sponson-{bits(48):012x}",
            own=self._own if settings.forward is not None else None,
        )
        self._secrets = Secrets(settings.environ)
        self.keeper = self._keeper(understand)
        self._runtime: Runtime | None = None
        self.server = DataServer(self._current, sampler=telemetry.sampler, clock=clock, bits=bits)
        self.server.pseudonym = self._around.pseudonym
        self.forward = self._forward_server(bits) if settings.forward is not None else None
        self.listeners = Listeners([self.server] if self.forward is None else [self.server, self.forward])
        self.status = StatusReader(self.kept, clock, self._label, admission=self.admission)
        self.admin = AdminServer(self._admin_sources())
        self._beat = clock.now()
        self._background: list[asyncio.Task[Any]] = []
        self._closing: list[asyncio.Task[None]] = []
        self._settling: Timer | None = None

    def _forward_server(self, bits: Bits) -> ForwardServer:
        server = ForwardServer(self._forwarding, sampler=self.telemetry.sampler, clock=self.clock, bits=bits)
        server.pseudonym = self._around.pseudonym
        return server

    def _keeper(self, understand: Understand) -> PolicyKeeper:
        return PolicyKeeper(
            self.settings.policy,
            secrets=self._secrets,
            apply=self._apply,
            observer=self.observer,
            clock=self.clock,
            understand=understand,
        )

    async def start(self) -> None:
        """Loads the policy and binds the listeners. Raises what makes a start impossible."""
        await self.keeper.first()
        data = bound_to("--listen", self.settings.listen)
        admin = bound_to("--admin", self.settings.admin)
        forward = bound_to("--forward", self.settings.forward) if self.settings.forward is not None else []
        self._own.add([*data, *admin, *forward])
        self.admin.listen(admin)
        self._take_measure()
        await self.server.listen(data)
        if self.forward is not None:
            await self.forward.listen(forward)
        self.telemetry.watch(self._gauges)
        self.telemetry.start()
        self._background = [
            start_task(self.keeper.run(), name="policy keeper"),
            start_task(self._tick(), name="ticker"),
        ]
        self.phase = Phase.READY
        gc.enable()
        gc.set_threshold(GC_THRESHOLD)
        self._settling = self.clock.call_at(self.clock.now() + SETTLE_SECONDS, _settle_memory)

    def _take_measure(self) -> None:
        """Takes no more clients than this machine has files for, and says where its limits are tight."""
        files = open_files()
        most = most_connections(files)
        if self.forward is not None:
            self.forward.protocols.connections.most = most = most // 2
        self.server.protocols.connections.most = most
        for shortage in shortages(files, most_waiting()):
            _log.warning("%s", shortage)

    async def stop(self, signals: Signals) -> int:
        """Drains, flushes and closes; a second signal cuts it short. Returns the exit code."""
        self.phase = Phase.DRAINING
        ending = start_task(self._end(), name="end")
        killed = start_task(signals.kill.wait(), name="second signal")
        await asyncio.wait({ending, killed}, return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if not ending.done():
            _log.warning("a second signal: ending at once, with %d requests under way", self.listeners.in_flight)
            return KILLED
        if ending.exception() is not None:
            return FAILED
        self.phase = Phase.EXITED
        _log.info("stopped")
        return 0

    async def _end(self) -> None:
        whole = self.settings.drain_seconds
        flush = min(FLUSH_SECONDS, whole * FLUSH_PART)
        await drain(self.listeners, linger=self.settings.linger_seconds, limit=whole - flush, clock=self.clock)
        for _, refreshes, _ in self.kept.all(Refreshes):
            refreshes.stop()
        for task in self._background:
            task.cancel()
        self._alarm.stop()
        self._counted.flush()
        await self.telemetry.shutdown(flush)
        await self.listeners.close()
        self.admin.close()
        for core in self.kept.closable():
            await core.close()

    def _current(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    def _forwarding(self) -> Forwarding:
        forwarding = self._current().forwarding
        assert forwarding is not None
        return forwarding

    def _label(self, provider: str, model: str) -> str:
        """Names a model in metrics, by the live policy; a provider that it does not have has no names."""
        found = next((one for one in self._current().providers if one.snapshot.name == provider), None)
        return found.label(model) if found is not None else OTHER

    def _metrics(self) -> tuple[str, bytes]:
        self._counted.flush()
        return self.telemetry.prometheus()

    def _gauges(self) -> Iterator[Reading]:
        yield Reading("http.server.active_requests", self.listeners.in_flight)
        yield Reading("sponson.fleet.size", self._current().snapshot.fleet.size)
        yield from self.status.gauges()

    def _apply(self, snapshot: PolicySnapshot) -> None:
        """Swaps the policy: one assignment, after everything was built."""
        runtime = assemble(snapshot, self._around, self._secrets)
        runtime.go_live(self.clock.now())
        self._runtime = runtime
        self.request_log.log_successes = snapshot.telemetry.log_successes

    async def _tick(self) -> None:
        """Moves on what time alone decides, and beats for `/livez`."""
        rounds = 0
        while True:
            await self.clock.sleep(TICK_SECONDS)
            now = self._beat = self.clock.now()
            rounds += 1
            try:
                self.admission.tick(now)
                for _, breaker, _ in self.kept.all(Breaker):
                    breaker.tick(now)
                if rounds % 10 == 0:
                    self._sweep(now)
            except Exception:  # noqa: BLE001 - every queue's and breaker's time hangs on this loop
                _log.exception("the ticker met a bug")

    def _sweep(self, now: float) -> None:
        for _, pool, used in self.kept.all(Pool):
            pool.sweep(now)
            if used:
                pool.keep_warm(now)
        for _, aside, _ in self.kept.all(Aside):
            aside.pool.sweep(now)
        for _, answers, _ in self.kept.all(Answers):
            answers.expire(now)
        for _, cached, _ in self.kept.all(Cached):
            cached.expire(now)
        for core in self.kept.expire(now):
            if isinstance(core, Closable):
                self._closing.append(start_task(core.close(), name="close what no policy uses"))
        self._closing = [task for task in self._closing if not task.done()]

    def _admin_sources(self) -> AdminSources:
        return AdminSources(
            live=lambda: self.clock.now() - self._beat < BEAT_LIMIT_SECONDS,
            ready=lambda: self.phase is Phase.READY,
            started=lambda: self.phase is not Phase.STARTING,
            metrics=self._metrics,
            policy=lambda: policy_document(self.keeper.state, self.clock.now()),
            status=self._status,
        )

    def _status(self) -> dict[str, Any]:
        clients = self.server.protocols.status()
        return {
            "phase": self.phase.value,
            "in_flight": self.listeners.in_flight,
            "clients": clients,
            **({"forwarded_clients": self.forward.protocols.status()} if self.forward is not None else {}),
            **self.status.status(),
        }


def _settle_memory() -> None:
    gc.collect()
    gc.freeze()
