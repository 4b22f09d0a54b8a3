"""Whether things are freed by their last reference, or wait for the garbage collector."""

from __future__ import annotations

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
