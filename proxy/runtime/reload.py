"""Hot reload: watch, settle, parse in a thread, swap one reference (`semantics.md` §7).

The watcher may die, be deaf, or see nothing; a hash of the contents, compared every second, decides. A bad policy
never harms a running proxy: the last good one stays and the problem is visible.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proxy.clock import Clock
from proxy.observer import Observer, PolicyLoaded, PolicyRejected
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError, PolicyUnreadable
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes, read_policy
from proxy.runtime.secrets import Secrets
from proxy.runtime.watcher import changes

SETTLE_SECONDS = 0.4
BETWEEN_RELOADS_SECONDS = 1.0

_log = logging.getLogger("sponson.policy")


@dataclass(slots=True, kw_only=True)
class PolicyState:
    """What `/policy` shows. Times are monotonic seconds."""

    path: str
    revision: int = 0
    digest: str = ""
    seen_digest: str = ""
    loaded_at: float = 0.0
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    rejected: int = 0
    watching: str = "starting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A policy that was read and understood, with its secrets read: ready to be assembled."""

    snapshot: PolicySnapshot
    digest: str


class PolicyKeeper:
    """Keeps the live policy equal to what is written, as far as that is good."""

    def __init__(
        self,
        path: Path,
        *,
        secrets: Secrets,
        apply: Callable[[PolicySnapshot], None],
        observer: Observer,
        clock: Clock,
        instance_index: int | None = None,
    ) -> None:
        self._path = path
        self._secrets = secrets
        self._apply = apply
        self._observer = observer
        self._clock = clock
        self._index = instance_index
        self._identity: object = None
        self._secret_digest = ""
        self._asked = asyncio.Event()
        self.state = PolicyState(path=str(path))

    def first(self) -> None:
        """Loads the policy at start. Raises `PolicyUnreadable`, `PolicyError`: at start a bad policy is fatal."""
        data = read_policy(self._path)
        self._identity = _identity(self._path)
        self._live(self._understand(data), began=self._clock.now())

    def ask(self) -> None:
        """Looks at the policy now (SIGHUP)."""
        self._asked.set()

    async def run(self) -> None:
        """Follows the policy until cancelled."""
        watch = changes(self._path, self._asked, self._watching)
        async with contextlib.aclosing(watch):
            async for _ in watch:
                if await self._check():
                    await self._clock.sleep(BETWEEN_RELOADS_SECONDS)

    def _watching(self, how: str) -> None:
        self.state.watching = how

    async def _check(self) -> bool:
        """Compares what is written with what is live; returns True when a policy went live."""
        began = self._clock.now()
        try:
            data = await self._settled()
        except PolicyUnreadable as problem:
            self._reject("", (str(problem),))
            return False
        if data is None:
            return False
        try:
            candidate = await asyncio.to_thread(self._understand, data)
        except PolicyError as error:
            self._reject(data.digest, tuple(map(str, error.problems)))
            return False
        self._live(candidate, began=began)
        return True

    async def _settled(self) -> PolicyBytes | None:
        """Returns what is written when it is new and whole; None when nothing is to be done.

        A rename or a swap shows another file: it acts at once. A write in place acts when two reads are equal.
        """
        data = await asyncio.to_thread(read_policy, self._path)
        if data.digest == self.state.seen_digest:
            if data.digest == self.state.digest:
                self.state.problems = () if self.state.problems else self.state.problems
                return data if await self._secrets_changed() else None
            return None
        identity = _identity(self._path)
        if identity == self._identity:
            while True:
                await self._clock.sleep(SETTLE_SECONDS)
                again = await asyncio.to_thread(read_policy, self._path)
                if again.digest == data.digest:
                    break
                data = again
        self._identity = identity
        return data

    async def _secrets_changed(self) -> bool:
        snapshot = self._snapshot
        await asyncio.to_thread(self._secrets.read, snapshot)
        return self._secrets.digest() != self._secret_digest

    def _understand(self, data: PolicyBytes) -> Candidate:
        snapshot = load_policy(data, instance_index=self._index)
        problems = self._secrets.read(snapshot)
        if problems:
            raise PolicyError(problems)
        return Candidate(snapshot=snapshot, digest=data.digest)

    def _live(self, candidate: Candidate, *, began: float) -> None:
        self._apply(candidate.snapshot)
        self._snapshot = candidate.snapshot
        self._secret_digest = self._secrets.digest()
        state = self.state
        state.revision += 1
        state.digest = state.seen_digest = candidate.digest
        state.loaded_at = self._clock.now()
        state.problems = ()
        state.warnings = candidate.snapshot.warnings
        seconds = state.loaded_at - began
        self._observer.happened(PolicyLoaded(revision=state.revision, digest=candidate.digest, seconds=seconds))

    def _reject(self, digest: str, problems: tuple[str, ...]) -> None:
        state = self.state
        if (digest and digest == state.seen_digest) or (not digest and problems == state.problems):
            return
        state.seen_digest = digest or state.seen_digest
        state.problems = problems
        state.rejected += 1
        self._observer.happened(PolicyRejected(digest=digest, problems=problems))


def _identity(path: Path) -> object:
    """Returns what changes when files are swapped or renamed over, and stays when they are written in place."""
    real = os.path.realpath(path)
    swapped = os.path.join(real, "..data")
    base = os.path.realpath(swapped) if os.path.isdir(swapped) else real
    try:
        if not os.path.isdir(base):
            return base, os.stat(base).st_ino
        entries = sorted(entry.name for entry in os.scandir(base) if not entry.name.startswith("."))
        return base, tuple((name, os.stat(os.path.join(base, name)).st_ino) for name in entries)
    except OSError:
        return None
