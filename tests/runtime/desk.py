"""A policy keeper over a place that tests write to; time moves only as far as the keeper sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from proxy.observer import PolicyRejected
from proxy.policy.load import load_policy
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes
from proxy.runtime.compiler import CompilerFailed
from proxy.runtime.reload import PolicyKeeper
from proxy.runtime.secrets import Secrets
from tests.fakes import FakeClock
from tests.scripted import ManualObserver

WAIT_SECONDS = 20.0


def text(concurrency: int) -> str:
    """A policy whose limit tells which one is live; cut anywhere in the number it is a valid policy, too."""
    return f"version: 1\nproviders: {{a: {{base_url: 'http://h/v1', limits: {{concurrency: {concurrency}}}}}}}\n"


BAD = text(-5)
TORN_BLOCK = "version: 1\nproviders:\n  a:\n    base_url: http://h/v1\n    limits:\n      concurrency: "
"""A policy in block style: without its last digits it is still a valid one."""


class Desk:
    """A keeper over a place; time moves only as far as the keeper sleeps.

    `parsed` counts how often a policy was to be understood; of `compiler_failures` each time one happens instead.
    """

    def __init__(self, path: Path, *, environ: dict[str, str] | None = None) -> None:
        self.path = path
        self.clock = FakeClock()
        self.observer = ManualObserver()
        self.live: list[PolicySnapshot] = []
        self.fails = False
        self.parsed = 0
        self.compiler_failures: list[CompilerFailed] = []
        self.keeper = PolicyKeeper(
            path,
            secrets=Secrets(environ or {}),
            apply=self._apply,
            observer=self.observer,
            clock=self.clock,
            understand=self._understand,
        )

    def _understand(self, data: PolicyBytes) -> PolicySnapshot:
        self.parsed += 1
        if self.compiler_failures:
            raise self.compiler_failures.pop()
        return load_policy(data)

    def _apply(self, snapshot: PolicySnapshot) -> None:
        if self.fails:
            raise LookupError("a bug in assembly")
        self.live.append(snapshot)

    async def check(self, *, between: Iterable[Callable[[], object]] = ()) -> float:
        """Has the keeper look once; before each of its sleeps ends the next of `between` is done. Returns the wait."""
        began, steps = self.clock.now(), iter(between)
        task = asyncio.ensure_future(self.keeper._check())
        async with asyncio.timeout(WAIT_SECONDS):
            while not task.done():
                if (due := self.clock.next_due) is not None:
                    next(steps, lambda: None)()
                    self.clock.advance(due - self.clock.now())
                await asyncio.sleep(0.001)
        task.result()
        return self.clock.now() - began

    @property
    def limits(self) -> list[int | None]:
        """The limit of every policy that went live, in order."""
        return [snapshot.providers[0].concurrency for snapshot in self.live]

    @property
    def rejections(self) -> list[PolicyRejected]:
        """What was told of policies that were not taken."""
        return [event for event in self.observer.events if isinstance(event, PolicyRejected)]


def with_key(file: Path, concurrency: int = 1) -> str:
    """A policy with a key from this file."""
    return text(concurrency).replace("limits:", f"keys: [{{id: k, file: {file}}}], limits:")
