"""How what is held changes over a part of the run: a line through samples of each second."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic

from tests.soak.footprint import Footprint

EVERY_SECONDS = 1.0
HOUR = 3600.0
SETTLES = 0.3
"""A part begins with callers who arrive: so much of it belongs to no slope."""
FEW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """A line through samples: how many there were, `most` of them all, and by how much they rise in an hour."""

    samples: int
    mean: float
    most: float
    an_hour: float
    rise: float

    @classmethod
    def through(cls, points: Sequence[tuple[float, float]]) -> Slope:
        """The line of least squares; `rise` is what it rises by from the first to the last of the points."""
        count = len(points)
        if not count:
            return cls(samples=0, mean=0.0, most=0.0, an_hour=0.0, rise=0.0)
        mean_x = sum(x for x, _ in points) / count
        mean_y = sum(y for _, y in points) / count
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        steep = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
        return cls(
            samples=count,
            mean=mean_y,
            most=max(y for _, y in points),
            an_hour=steep * HOUR,
            rise=steep * (points[-1][0] - points[0][0]),
        )


class Sampler:
    """Takes a footprint every second while a part of the run lasts, and one at its end."""

    def __init__(self, look: Callable[[], Awaitable[Footprint]]) -> None:
        self._look = look
        self._ends = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.samples: list[tuple[float, Footprint]] = []

    def start(self) -> None:
        """Begins to look."""
        self._task = asyncio.create_task(self._go_on_looking())

    async def stop(self) -> None:
        """Looks a last time; raises what went wrong with looking."""
        assert self._task is not None
        self._ends.set()
        await self._task

    async def _go_on_looking(self) -> None:
        while not self._ends.is_set():
            self.samples.append((monotonic(), await self._look()))
            try:
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._ends.wait()
            except TimeoutError:
                pass
        self.samples.append((monotonic(), await self._look()))

    def slopes(self) -> dict[str, Slope]:
        """The lines, by what they are of; what comes first belongs to none."""
        begin = int(len(self.samples) * SETTLES) if len(self.samples) > FEW else 0
        settled = self.samples[begin:]
        names = ("mib", "descriptors", "tasks", "downstream", "upstream")
        return {name: Slope.through([(at, float(getattr(print_, name))) for at, print_ in settled]) for name in names}
