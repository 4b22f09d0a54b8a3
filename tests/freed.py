"""Whether things are freed by their last reference, or wait for the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(*kinds: type) -> Iterator[Callable[[], int]]:
    """No collector runs; gives what counts the things of these kinds that were made meanwhile and are still there."""
    gc.disable()
    gc.freeze()
    try:
        yield lambda: sum(isinstance(thing, kinds) for thing in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.enable()


async def freed(alive: Callable[[], int]) -> None:
    """Returns once nothing is left; an event loop may still have to close what was given up last."""
    async with asyncio.timeout(10):
        while alive():
            await asyncio.sleep(0.01)
