"""All of the demo, from the first check to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import textwrap
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from rich.console import Console
from rich.text import Text

from proxy.clock import SystemClock
from proxy.simulation.demo.advice import advice, near
from proxy.simulation.demo.callers import Callers
from proxy.simulation.demo.children import Children
from proxy.simulation.demo.log_reader import LogReader, bug_in
from proxy.simulation.demo.metrics import Metrics
from proxy.simulation.demo.narrator import Narrator
from proxy.simulation.demo.play import Play
from proxy.simulation.demo.ports import check_ports
from proxy.simulation.demo.problem import FAILED, DemoProblem
from proxy.simulation.demo.providers import Providers, flags
from proxy.simulation.demo.report import operation_rows, provider_rows, surprises
from proxy.simulation.demo.settings import DemoSettings
from proxy.simulation.demo.shipped import policy_file
from proxy.simulation.demo.staying import sentence
from proxy.simulation.demo.tables import STYLES, breakers_table, print_report
from proxy.simulation.demo.timeline import Timeline
from proxy.tasks import start_task

INTERRUPTED = 130
LOOK_SECONDS = 0.1
PROXY_LOG = "proxy.log"
SHOWN_BUGS = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_demo(settings: DemoSettings, console: Console, errors: Console) -> int:
    """Runs the demo until it is over or a signal comes; returns the exit code. `errors` shows what ended it early."""
    try:
        check_ports(settings)
        with TemporaryDirectory(prefix="sponson-demo-") as folder:
            async with Children(Path(folder), settings.environ) as children:
                return await Demo(settings, console, children, Path(folder)).run()
    except DemoProblem as problem:
        errors.print(Text(str(problem), style="bold red"), soft_wrap=True)
        if problem.log:
            errors.print(Text("The end of its log:"))
            errors.print(Text(problem.log, style="dim"), soft_wrap=True)
        return problem.code


class Demo:
    """One demo, once its ports are free; `folder` is for what is written and not kept."""

    def __init__(self, settings: DemoSettings, console: Console, children: Children, folder: Path) -> None:
        self._settings = settings
        self._console = console
        self._children = children
        self._policy = policy_file(settings.base_port, folder)
        self._log = LogReader(folder / PROXY_LOG)
        self._bugs: dict[str, None] = {}
        self._clock = SystemClock()
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Runs it until it is over or a signal comes; a second signal kills the processes at once."""
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        code = await self._unless_stopped(self._perform())
        if code is None:
            return INTERRUPTED
        if self._settings.stay:
            await self._unless_stopped(self._stay())
            self._print("\nEnding the proxy and the providers.")
        return code

    def _on_signal(self) -> None:
        if self._stop.is_set():
            self._children.kill()
        self._stop.set()

    async def _unless_stopped(self, work: Coroutine[Any, Any, int | None]) -> int | None:
        """Returns what the work does, None when a signal came first; DemoProblem when a process ended."""
        tasks: list[asyncio.Task[Any]] = [
            start_task(_caught(work), name="demo"),
            start_task(self._children.until_one_ends(), name="watch processes"),
            start_task(self._stop.wait(), name="wait for a signal"),
        ]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.wait(tasks)
        if tasks[2] in done:
            return None
        result: int | DemoProblem | None = tasks[1 if tasks[1] in done else 0].result()
        if isinstance(result, DemoProblem):
            raise result
        return result

    async def _perform(self) -> int:
        """Starts the processes, sends the traffic and reports; returns the exit code."""
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            providers = Providers(session, self._settings)
            await self._start(session, providers)
            callers = Callers(session, f"http://{self._settings.listen}", self._clock)
            timeline, began = Timeline(), self._seconds()
            with Narrator(self._console, began) as narrator:
                play = Play(
                    callers,
                    providers,
                    timeline,
                    clock=self._clock,
                    say=lambda text: narrator.tell(text, at=self._seconds(), style="bold"),
                )
                async with self._following(callers, timeline, narrator):
                    await play.perform(self._settings.seconds)
            metrics = Metrics(await _text(session, f"http://{self._settings.admin}/metrics"))
            rows = operation_rows(callers.samples), provider_rows(metrics, await providers.peaks())
        print_report(self._console, *rows, breakers_table(timeline, began=began))
        return self._verdict(callers, timeline)

    async def _start(self, session: aiohttp.ClientSession, providers: Providers) -> None:
        settings, children = self._settings, self._children
        self._print(f"Starting three simulated providers and the proxy, with the policy {near(self._policy)}")
        simulated = await children.start("The provider simulator", *flags(settings), log="simulator.log")
        await children.until_ready(simulated, providers.ready)
        addresses = ("--listen", settings.listen, "--admin", settings.admin)
        times = ("--linger", "0", "--drain", "5s")
        policy = ("--policy", str(self._policy), "--log-format", "json")
        proxy = await children.start("The proxy", "run", *policy, *addresses, *times, log=PROXY_LOG)
        await children.until_ready(proxy, lambda: _answers(session, f"http://{settings.admin}/readyz"))

    @contextlib.asynccontextmanager
    async def _following(self, callers: Callers, timeline: Timeline, narrator: Narrator) -> AsyncIterator[None]:
        """While the block runs, tells what breakers do and how many requests there were."""

        def look() -> None:
            lines = list(self._log.new_lines())
            self._bugs.update({bug: None for line in lines if (bug := bug_in(line))})
            for change in timeline.read(lines):
                narrator.tell(change.sentence, at=change.at, style=STYLES.get(change.state, ""))
            narrator.show(_progress(callers, timeline))

        async def follow() -> None:
            while True:
                look()
                await self._clock.sleep(LOOK_SECONDS)

        following = start_task(follow(), name="follow the log")
        try:
            yield
            await self._clock.sleep(LOOK_SECONDS)
        finally:
            following.cancel()
        look()

    def _verdict(self, callers: Callers, timeline: Timeline) -> int:
        """Says whether all went as it should; returns the exit code."""
        problems = [f"{what} × {count}" for what, count in surprises(callers.samples).items()]
        problems += [f"breaker of {name}, long after the provider was well again" for name in timeline.not_closed]
        self._console.print()
        if not problems:
            self._print("Every request was answered, but for those of the burst that found no place.", "green")
            return 0
        self._print("This should not have happened:", "bold red")
        for line in [*problems, *itertools.islice(self._bugs, SHOWN_BUGS)]:
            self._print(textwrap.indent(line, "  "))
        return FAILED

    async def _stay(self) -> None:
        """Says what to try, and then what the proxy does."""
        self._print(
            f"\nThe proxy stays up on http://{self._settings.listen}. Ctrl-C ends it and the providers.", "bold"
        )
        for heading, lines in advice(self._settings, self._policy):
            self._print(f"\n{heading}:")
            for line in lines:
                self._print(f"  {line}", "cyan")
        self._print("\nWhat happens from now on:")
        while True:
            for told in self._log.new_lines():
                self._print(sentence(told), "dim")
            await self._clock.sleep(LOOK_SECONDS)

    def _seconds(self) -> float:
        return self._clock.wall_ns() / 1e9

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)


def _progress(callers: Callers, timeline: Timeline) -> str:
    ok = sum(sample.ok for sample in callers.samples)
    counts = f"{len(callers.samples)} requests, {ok} ok, {callers.in_flight} in flight"
    return "; breaker of ".join([counts, *timeline.not_closed])


async def _caught(work: Coroutine[Any, Any, int | None]) -> int | DemoProblem | None:
    """Returns a problem as a value: a task that raises is reported as a bug."""
    try:
        return await work
    except DemoProblem as problem:
        return problem
    except aiohttp.ClientError as error:
        return DemoProblem(f"A simulated provider or the proxy cannot be reached: {error}", code=FAILED)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def _text(session: aiohttp.ClientSession, url: str) -> str:
    async with session.get(url) as response:
        return await response.text()
