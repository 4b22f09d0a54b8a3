"""One `sponson run`, from the first signal handler to the exit code; a start that fails is told in a line."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from proxy.clock import Clock, SystemClock
from proxy.downstream.listen import CannotListen
from proxy.policy.problem import PolicyError, PolicyUnreadable
from proxy.runtime.compiler import CompilerFailed, PolicyCompiler
from proxy.runtime.lifecycle import Signals
from proxy.runtime.log_format import log_handler
from proxy.runtime.process import Process, Telemetry
from proxy.settings import ProcessSettings
from proxy.tasks import start_task

CANNOT_START = 2

_log = logging.getLogger("sponson")


async def run(
    settings: ProcessSettings, compiler: PolicyCompiler, build_telemetry: Callable[[Clock], Telemetry]
) -> int:
    """Runs the proxy until it is asked to end; returns the exit code (2: it could not start)."""
    signals = Signals()
    signals.install(asyncio.get_running_loop())
    _set_up_logging(settings.log_format)
    clock = SystemClock()
    try:
        process = Process(settings, compiler, telemetry=build_telemetry(clock), clock=clock)
        signals.on_hangup = process.keeper.ask
        if not await _started(process, signals):
            return 0
    except PolicyError as error:
        return _cannot_start(*map(str, error.problems))
    except (PolicyUnreadable, CompilerFailed, CannotListen, ValueError, OSError) as error:
        return _cannot_start(str(error))
    _log.info("ready on %s, admin on %s, policy %s", settings.listen, settings.admin, settings.policy)
    await signals.stop.wait()
    _log.info("draining")
    return await process.stop(signals)


async def _started(process: Process, signals: Signals) -> bool:
    """Starts the process; False when it was asked to end before it was ready. Raises what makes a start impossible."""
    starting = start_task(_failure(process.start()), name="start")
    stopped = start_task(signals.stop.wait(), name="signal while starting")
    await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not starting.done():
        return False
    if (failure := await starting) is not None:
        raise failure
    return True


async def _failure(work: Coroutine[Any, Any, None]) -> Exception | None:
    """Returns the exception that `work` ends with: it is told by whoever waits, not by the task."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 - it is raised again at once
        return error
    return None


def _cannot_start(*lines: str) -> int:
    with contextlib.suppress(OSError):  # nobody reads it
        sys.stderr.write("".join(f"{line}\n" for line in lines))
    return CANNOT_START


def _set_up_logging(style: str) -> None:
    root = logging.getLogger()
    root.handlers[:] = [log_handler(sys.stderr, style=style)]
    root.setLevel(logging.INFO)
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
