"""Puts telemetry together: `build_telemetry(env, wall_ns=...)` gives one `Telemetry`.

Owns the life of the export threads. They are daemons and registered nowhere, so that none of them can hold
the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final

from otel.environment import Environment, read_environment
from otel.exporters import RareWarnings, metric_exporter, span_exporter
from otel.metrics import Metrics
from otel.prometheus import Exposition
from proxy.observer import GaugeSource, Observer, Observers, Reading

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from otel.push import MetricsPush
    from proxy.trace_context import Sampler

_READING_SECONDS: Final = 1.0
"""How long an export waits for the event loop to read the gauges; then it goes without them."""


class Gauges:
    """All sources of gauges as one; they are always read on the event loop's thread."""

    def __init__(self) -> None:
        self._sources: list[GaugeSource] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def watch(self, source: GaugeSource) -> None:
        """Adds a source."""
        self._sources.append(source)

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Says which loop other threads must ask."""
        self._loop = loop

    def read(self) -> list[Reading]:
        """Returns all readings; on the loop's thread."""
        return [reading for source in self._sources for reading in source()]

    def read_from_thread(self) -> Iterable[Reading]:
        """Returns all readings, none when the loop is busy for longer than a second."""
        answer: Future[list[Reading]] = Future()
        if self._loop is None:
            return ()
        try:
            self._loop.call_soon_threadsafe(lambda: answer.set_result(self.read()))
            return answer.result(_READING_SECONDS)
        except (RuntimeError, TimeoutError):  # the loop is closed, or busy
            return ()


class Telemetry:
    """What the runtime needs of OpenTelemetry: an observer, a sampler, `/metrics`, and a bounded end."""

    def __init__(self, environment: Environment, *, wall_ns: Callable[[], int]) -> None:
        self.sampler: Sampler = environment.sampler
        self._gauges = Gauges()
        self._metrics = Metrics(environment.genai, wall_ns=wall_ns)
        self._exposition = Exposition(self._metrics.instruments, self._gauges.read)
        self._closers: list[Callable[[], None]] = []
        self._ending: set[asyncio.Future[None]] = set()
        self._push: MetricsPush | None = None
        self._undo = ExitStack()
        observers: list[Observer] = [self._metrics]
        if environment.traces or environment.metrics:
            self._undo.enter_context(RareWarnings())
            resource = _resource(environment)
            if environment.traces:
                observers += self._build_spans(environment, resource, wall_ns)
            if environment.metrics:
                self._push = self._build_push(environment, resource, wall_ns)
        self.observer: Observer = observers[0] if len(observers) == 1 else Observers(observers)

    def watch(self, source: GaugeSource) -> None:
        """Reads the gauges of `source` from now on, whenever somebody looks, on the event loop's thread."""
        self._gauges.watch(source)

    def prometheus(self) -> tuple[str, bytes]:
        """Returns content type and body of `/metrics`; on the event loop's thread."""
        return self._exposition.render()

    def start(self) -> None:
        """Starts to export metrics; on the event loop."""
        self._gauges.bind(asyncio.get_running_loop())
        if self._push is not None:
            self._push.start()

    async def shutdown(self, seconds: float) -> None:
        """Exports what is left, for at most `seconds`; what hangs then is left to its daemon thread.

        May be called again, to wait longer.
        """
        closers, self._closers = self._closers, []
        self._ending |= {_in_daemon(close) for close in closers}
        if self._ending:
            _, self._ending = await asyncio.wait(self._ending, timeout=seconds)
        # An exporter that still hangs has something to complain about later.
        if not self._ending:
            self._undo.close()

    def _build_spans(self, environment: Environment, resource: Resource, wall_ns: Callable[[], int]) -> list[Observer]:
        from otel.losses import CountedBatches
        from otel.moments import Moments
        from otel.spans import Spans

        exporters = [span_exporter(name, timeout_seconds=environment.traces_timeout) for name in environment.traces]
        counts, size = self._metrics.instruments, environment.queue_size
        processors = [CountedBatches(exporter, counts, size=size) for exporter in exporters]
        self._closers += [processor.shutdown for processor in processors]
        observers: list[Observer] = [Spans(processors, resource=resource, version=_version())]
        if environment.sampler.ratio > 0:
            observers.append(Moments(processors, resource=resource, wall_ns=wall_ns, version=_version()))
        return observers

    def _build_push(self, environment: Environment, resource: Resource, wall_ns: Callable[[], int]) -> MetricsPush:
        from otel.push import MetricsPush, Translation

        translation = Translation(self._metrics.instruments, resource=resource, version=_version(), since_ns=wall_ns())
        push = MetricsPush(
            [metric_exporter(name, timeout_seconds=environment.metrics_timeout) for name in environment.metrics],
            translation,
            readings=self._gauges.read_from_thread,
            interval_seconds=environment.interval_seconds,
            wall_ns=wall_ns,
        )
        self._closers.append(push.close)
        return push


def build_telemetry(env: Mapping[str, str], *, wall_ns: Callable[[], int]) -> Telemetry:
    """Builds telemetry as OTEL_* in `env` say; `wall_ns` gives nanoseconds since the epoch, in any thread.

    Raises ValueError that names the variable.
    """
    return Telemetry(read_environment(env), wall_ns=wall_ns)


def _resource(environment: Environment) -> Resource:
    from opentelemetry.sdk.resources import Resource

    sdk = {
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.language": "python",
        "telemetry.sdk.version": version("opentelemetry-sdk"),
    }
    own = {"service.version": _version()} if _version() else {}
    return Resource({**sdk, **own, **environment.resource})


def _version() -> str:
    try:
        return version("sponson")
    except PackageNotFoundError:
        return ""


def _in_daemon(work: Callable[[], None]) -> asyncio.Future[None]:
    """Runs `work` in a daemon thread; the future is done when it has ended."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        try:
            work()
        finally:
            try:
                loop.call_soon_threadsafe(finish)
            except RuntimeError:  # the loop is closed: nobody waits any more
                pass

    threading.Thread(target=run, name="sponson-telemetry-end", daemon=True).start()
    return done
