"""What a process holds, seen from outside by the kernel's books and from within by the spy."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak.inside import BLOCKS, COLLECTED, NATIVE

MIB = 1 << 20
_HELD = {"01", "08"}
"""ESTABLISHED and CLOSE_WAIT: what a process has not ended yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What is held at one moment: `downstream` and `upstream` are connections.

    `blocks` are pieces of memory that Python has, `native` MiB are in use beside them, `collected` things had to wait
    for the collector so far, and `objects` are counted by type: for who looks deeply.
    """

    mib: float
    descriptors: int
    tasks: int
    downstream: int
    upstream: int
    blocks: int = 0
    native: float = 0.0
    collected: int = 0
    objects: dict[str, int] = field(default_factory=dict)


class Spy:
    """Asks the spy inside."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def ask(self, what: str) -> Any:
        """Returns what it tells of `tasks` or `objects`."""
        async with self._turn, asyncio.timeout(60):
            if self._streams is None:
                port = int(self._place.read_text())
                self._streams = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
            reader, writer = self._streams
            writer.write(f"{what}\n".encode())
            return json.loads(await reader.readline())

    async def close(self) -> None:
        """Asks no more."""
        if self._streams is not None:
            self._streams[1].close()


async def footprint(pid: int, spy: Spy, *, port: int, servers: Collection[int], deep: bool = False) -> Footprint:
    """Looks at a proxy that listens on `port` and calls `servers`; `deep` collects, and counts objects too."""
    objects = await spy.ask("objects") if deep else {}
    tasks = await spy.ask("tasks")
    home = Path(f"/proc/{pid}")
    downstream, upstream = _connections(port, servers)
    return Footprint(
        mib=int((home / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB,
        descriptors=sum(1 for _ in (home / "fd").iterdir()),
        tasks=tasks,
        downstream=downstream,
        upstream=upstream,
        blocks=objects.pop(BLOCKS, 0),
        native=objects.pop(NATIVE, 0) / MIB,
        collected=objects.pop(COLLECTED, 0),
        objects=objects,
    )


def _connections(port: int, servers: Collection[int]) -> tuple[int, int]:
    """Counts the proxy's ends of the connections on this machine: those to its port, and those to its providers.

    Agents who ask a provider directly are among the latter while they do.
    """
    here = there = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if state in _HELD:
            here += int(local.rpartition(":")[2], 16) == port
            there += int(remote.rpartition(":")[2], 16) in servers
    return here, there


def more_objects(before: Footprint, after: Footprint) -> list[str]:
    """Names the types of which there are clearly more, most of all first."""
    grown = Counter({kind: count - before.objects.get(kind, 0) for kind, count in after.objects.items()})
    return [f"{kind} +{more}" for kind, more in grown.most_common(8) if more > 100]
