"""An event loop whose clock the test sets ahead: limits that the event loop itself keeps pass without a wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.fakes import settle

STEP_SECONDS = 1.0


class HurriedLoop(asyncio.SelectorEventLoop):
    """Real sockets, real callbacks; its time is the machine's, and as much more as the test says."""

    ahead = 0.0

    def time(self) -> float:
        """Returns monotonic seconds."""
        return super().time() + self.ahead

    async def pass_time(self, seconds: float) -> None:
        """Sets the clock ahead step by step; tasks act after each."""
        while seconds > 0:
            step = min(seconds, STEP_SECONDS)
            self.ahead += step
            seconds -= step
            await settle()


def hurried(scene: Callable[[HurriedLoop], Awaitable[None]]) -> None:
    """Plays a scene on such a loop; what tasks failed of without telling anybody fails the test."""
    untold: list[dict[str, object]] = []

    async def played() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, HurriedLoop)
        loop.set_exception_handler(lambda _, context: untold.append(context))
        await scene(loop)

    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(played())
    assert untold == []
