"""Hot reload: watch, settle, parse in a thread, swap one reference (`semantics.md` §7).

The watcher may die, be deaf, or see nothing; a hash of the contents, compared every second, decides. A bad policy
never harms a running proxy: the last good one stays and the problem is visible.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from proxy.clock import Clock
from proxy.observer import Observer, PolicyLoaded, PolicyRejected
from proxy.policy.problem import PolicyError, PolicyUnreadable
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes, read_policy
from proxy.runtime.compiler import CompilerFailed
from proxy.runtime.secrets import Secrets
from proxy.runtime.settling import Standing, came_whole, mounted_alone, standing
from proxy.runtime.watcher import changes

SETTLE_SECONDS = 0.4
BETWEEN_RELOADS_SECONDS = 1.0
HANGS_SECONDS = 5.0
"""A reading that takes longer, as of a network's file system that does not answer, is told of while it goes on."""

T = TypeVar("T")

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
        understand: Callable[[PolicyBytes], PolicySnapshot],
    ) -> None:
        self._path = path
        self._secrets = secrets
        self._apply = apply
        self._observer = observer
        self._clock = clock
        self._parse = understand
        self._standing: Standing | None = None
        self._stands = ""
        self._stands_since = -math.inf
        self._not_before = -math.inf
        self._live_snapshot: PolicySnapshot | None = None
        self._waits_for_secrets: PolicySnapshot | None = None
        self._secret_digest = ""
        self._rejected: tuple[str, ...] = ()
        self._asked = asyncio.Event()
        self.state = PolicyState(path=str(path))

    async def first(self) -> None:
        """Loads the policy at start, when a bad one is fatal.

        Raises `PolicyUnreadable`, `PolicyError`, `CompilerFailed`.
        """
        began = self._clock.now()
        candidate = await asyncio.to_thread(self._read_first)
        self._live(candidate, began=began)

    def _read_first(self) -> Candidate:
        self._standing = standing(self._path)
        for name in mounted_alone(self._standing):
            _log.warning("%s is mounted by itself (a subPath): changes may never arrive; mount its directory", name)
        return self._understand(read_policy(self._path))

    def ask(self) -> None:
        """Looks at the policy now (SIGHUP), also at one that was rejected."""
        if self.state.seen_digest != self.state.digest:
            self.state.seen_digest = ""
        self._asked.set()

    async def run(self) -> None:
        """Follows the policy until cancelled."""
        watch = changes(self._path, self._asked, self._watching)
        async with contextlib.aclosing(watch):
            async for _ in watch:
                await self._check()

    def _watching(self, how: str) -> None:
        self.state.watching = how

    async def _check(self) -> None:
        """Compares what is written with what is live, and takes what is new, whole and good."""
        began = self._clock.now()
        digest = ""
        try:
            data = await self._news()
            if data is None:
                return
            digest = data.digest
            self._not_before = self._clock.now() + BETWEEN_RELOADS_SECONDS
            candidate = await asyncio.to_thread(self._understand, data)
            self._live(candidate, began=began)
        except PolicyUnreadable as problem:
            self._reject(digest, (str(problem),))
        except PolicyError as error:
            self._reject(digest, tuple(map(str, error.problems)))
        except CompilerFailed as error:
            # Nothing was said of the policy: the next look tries again.
            self._reject("", (f"{self._path}: {error}",))
        except Exception as error:  # noqa: BLE001 - whatever fails here, the last good policy stays and it is told
            _log.exception("the policy met a bug")
            self._reject(digest, (f"{self._path}: a bug ({type(error).__name__}, see the log); the last policy stays",))

    async def _news(self) -> PolicyBytes | None:
        """Returns what is written once it is whole and its turn has come, the newest; None when it is no news.

        A rename or a swap is whole at once. A write in place is whole when two reads `SETTLE_SECONDS` apart are equal.
        """
        while True:
            data = await self._look()
            due = self._not_before
            if data.digest == self.state.digest:
                if not await self._other_secrets(data):
                    return None
            elif data.digest == self.state.seen_digest:
                self.state.problems = self._rejected
                if not await self._secrets_came():
                    return None
            else:
                due = max(due, self._stands_since + SETTLE_SECONDS)
            wait = due - self._clock.now()
            if wait <= 0:
                return data
            await self._clock.sleep(wait)

    async def _look(self) -> PolicyBytes:
        """Reads what is written, and notes since when the same is read; for ever, if it came at one stroke."""
        before, self._stands = self._stands, ""
        place, data = await self._reading(lambda: (standing(self._path), read_policy(self._path)))
        self._stands = data.digest
        if self._stands != before:
            self._stands_since = -math.inf if came_whole(self._standing, place) else self._clock.now()
        self._standing = place
        return data

    async def _other_secrets(self, data: PolicyBytes) -> bool:
        """Whether what is live stands there, perhaps again, and its secrets are others."""
        self.state.seen_digest = data.digest
        assert self._live_snapshot is not None
        await self._reading(partial(self._secrets.read, self._live_snapshot))
        if self._secrets.digest(self._live_snapshot) != self._secret_digest:
            return True
        if self.state.problems:
            _log.info("what is written is again the policy in force, revision %d", self.state.revision)
        self.state.problems = ()
        return False

    async def _secrets_came(self) -> bool:
        """Whether a policy that was rejected only for its secrets has them all now."""
        waiting = self._waits_for_secrets
        return waiting is not None and not await self._reading(partial(self._secrets.read, waiting))

    async def _reading(self, read: Callable[[], T]) -> T:
        """Reads in a thread, for as long as it takes: another one would hang as well."""
        reading = asyncio.get_running_loop().run_in_executor(None, read)
        if (await asyncio.wait({reading}, timeout=HANGS_SECONDS))[1]:
            self._reject("", (f"{self._path}: the policy, or a secret of it, cannot be read: no answer yet",))
        try:
            return await reading
        finally:
            # What it raises refers to what stands here, by its traceback: both would wait for the garbage collector.
            del reading

    def _understand(self, data: PolicyBytes) -> Candidate:
        self._waits_for_secrets = None
        snapshot = self._parse(data)
        problems = self._secrets.read(snapshot)
        if problems:
            self._waits_for_secrets = snapshot
            raise PolicyError(problems)
        return Candidate(snapshot=snapshot, digest=data.digest)

    def _live(self, candidate: Candidate, *, began: float) -> None:
        self._apply(candidate.snapshot)
        self._live_snapshot = candidate.snapshot
        self._secrets.forget_others(candidate.snapshot)
        self._secret_digest = self._secrets.digest(candidate.snapshot)
        state = self.state
        state.revision += 1
        state.digest = state.seen_digest = candidate.digest
        state.loaded_at = self._clock.now()
        state.problems = ()
        state.warnings = candidate.snapshot.warnings
        seconds = state.loaded_at - began
        snapshot = candidate.snapshot
        self._observer.happened(
            PolicyLoaded(
                revision=state.revision,
                digest=candidate.digest,
                seconds=seconds,
                providers=len(snapshot.providers),
                routes=len(snapshot.routes or ()),
                warnings=snapshot.warnings,
            )
        )

    def _reject(self, digest: str, problems: tuple[str, ...]) -> None:
        """Shows why what is written was not taken; the same again is no news. `digest` is "" for what is unreadable."""
        state = self.state
        if problems == state.problems and digest in ("", state.seen_digest):
            return
        if digest:
            state.seen_digest = digest
            self._rejected = problems
        state.problems = problems
        state.rejected += 1
        self._observer.happened(PolicyRejected(digest=digest, problems=problems))
