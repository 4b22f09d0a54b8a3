"""A Redis or Valkey server as a cache (`CacheStore`): an outage is a miss, and costs a request next to nothing.

One named task holds the session: connections are made in the background, and lost together. While there is no session
nobody is asked; attempts at a new one come at growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy.clock import Clock
from proxy.ports import Found, StoredAnswer
from proxy.store.lookups import Lookups
from proxy.store.server import Address, Server, Trouble, require_library, trouble
from proxy.store.writes import Writes
from proxy.tasks import start_task

if TYPE_CHECKING:
    from redis.asyncio import Redis

LOOKUP_CONNECTIONS = 4
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
STABLE_SECONDS = 5.0
"""A session that has lasted for so long ends the growth of pauses."""
CLOSE_SECONDS = 1.0

_log = logging.getLogger("sponson.cache")


class _Renewed(Exception):
    """Another password is to be used: the session ends, and this is no outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """What a server's cache tells of itself; counts are of its whole life. `late`: lookups that were given up."""

    up: bool
    pending: int
    pending_bytes: int
    written: int
    dropped: int
    late: int
    errors: Mapping[Trouble, int]


class RedisCache:
    """One server, shared by all routes that name it; kept across reloads.

    Raises `ValueError` for a URL that is none, and `LibraryMissing`. Connects when it is first used, or `reconfigure`d.
    `authorities` is a file of certificate authorities in place of the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        clock: Clock,
        authorities: str | None = None,
    ) -> None:
        require_library()
        self._server = Server(address=Address.of(url), username=username, password=password, authorities=authorities)
        self._clock = clock
        self._lookups = Lookups(clock)
        self._writes = Writes(clock)
        self._errors: Counter[Trouble] = Counter()
        self._refusing: dict[str, bool] = {}
        self._up = self._closed = False
        self._out_since: float | None = None
        self._renew = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RedisCache {self._server.address} {'up' if self._up else 'down'}>"

    async def find(self, name: bytes, now: float) -> Found | None:
        """Returns what is kept under a name; None also for every failure, and after 50 ms at the latest."""
        if not self._up:
            self._start()
            return None
        return self._writes.find(name, now) or await self._lookups.find(name, now)

    def keep(self, name: bytes, answer: StoredAnswer, *, owner: str, seconds: float, now: float) -> None:
        """Hands an answer to the task that writes; `owner` plays no part: the server bounds what it holds."""
        if not self._closed:
            self._writes.add(name, answer, seconds=seconds, now=now)
            self._start()

    def reconfigure(self, password: str | None) -> None:
        """Uses another password from now on; connects, if nobody has asked for that yet."""
        if password != self._server.password:
            self._server.password = password
            self._renew.set()
        self._start()

    def statistics(self) -> StoreStatistics:
        """Returns what is known of the server and of what waits for it."""
        return StoreStatistics(
            up=self._up,
            pending=len(self._writes),
            pending_bytes=self._writes.size,
            written=self._writes.written,
            dropped=self._writes.dropped,
            late=self._lookups.late,
            errors=dict(self._errors),
        )

    def stop(self) -> None:
        """Ends at once: what waits to be written is dropped. May be called more than once."""
        self._closed = True
        self._writes.clear()
        if self._task is not None:
            self._task.cancel()

    async def close(self, *, seconds: float = CLOSE_SECONDS) -> None:
        """Writes what waits, for so many seconds at most, and ends."""
        self._closed = True
        try:
            if self._up:
                async with asyncio.timeout(seconds):
                    await self._writes.drained()
        except TimeoutError:
            pass
        finally:
            self.stop()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)

    def _start(self) -> None:
        if self._task is None and not self._closed:
            self._task = start_task(self._run(), name=f"cache {self._server.address}")

    async def _run(self) -> None:
        """Holds one session after the other; pauses between failures grow."""
        pause = SHORTEST_PAUSE
        # A group that fails leaves its task's count of cancellations above zero in Python 3.11: it tells nothing here.
        while not self._closed:
            began = self._clock.now()
            try:
                await self._session()
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, it is an outage, and an outage is a miss
                self._went_down(trouble(error))
            if self._clock.now() - began >= STABLE_SECONDS:
                pause = SHORTEST_PAUSE
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _session(self) -> None:
        """Connects, and serves until another password is to be used. Raises what fails."""
        self._renew.clear()
        clients = [self._server.connection() for _ in range(1 + LOOKUP_CONNECTIONS)]
        try:
            for client in clients:
                await client.ping()
            if self._closed:
                return
            self._came_up()
            async with asyncio.TaskGroup() as group:
                name = f"cache {self._server.address}"
                group.create_task(self._write(clients[0]), name=f"{name} writes")
                for client in clients[1:]:
                    group.create_task(self._look_up(client), name=f"{name} lookups")
                group.create_task(self._renewed(), name=f"{name} password")
        except* _Renewed:
            pass
        finally:
            self._up = False
            self._lookups.clear()
            if self._closed:
                self._writes.clear()
            await asyncio.gather(*(client.aclose() for client in clients), return_exceptions=True)

    async def _write(self, client: Redis) -> None:
        while not _cancelled():
            self._note("writes", await self._writes.write(client, await self._writes.next()))

    async def _look_up(self, client: Redis) -> None:
        while not _cancelled():
            self._note("lookups", await self._lookups.serve(client, await self._lookups.next()))

    async def _renewed(self) -> None:
        await self._renew.wait()
        raise _Renewed

    def _came_up(self) -> None:
        self._up = True
        if self._out_since is not None:
            _log.warning("cache %s is back after %.1f s", self._server.address, self._clock.now() - self._out_since)
            self._out_since = None

    def _went_down(self, what: Trouble) -> None:
        self._errors[what] += 1
        if self._out_since is None:
            self._out_since = self._clock.now()
            _log.warning("cache %s is out (%s): requests go without it", self._server.address, what)

    def _note(self, what: str, refused: list[BaseException]) -> None:
        """Counts refusals; tells once that they have begun, and once that they are over."""
        for error in refused:
            self._errors[trouble(error)] += 1
        if bool(refused) is not self._refusing.get(what, False):
            self._refusing[what] = bool(refused)
            _log.warning(
                "cache %s %s %s", self._server.address, "refuses" if refused else "does again what it refused:", what
            )


def _cancelled() -> bool:
    """Whether the task has been cancelled: the library waits with `wait_for`, which loses that in Python 3.11."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
