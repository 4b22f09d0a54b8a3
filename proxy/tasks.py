"""Background tasks that nobody loses: named, referenced, and their failures reported."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

_log = logging.getLogger("sponson.tasks")
T = TypeVar("T")

_running: set[asyncio.Task[Any]] = set()


def start_task(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Starts `work` as a task of this name, keeps it referenced, and logs the exception it may end with."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_ended)
    return task


def _ended(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if task.cancelled():
        # The exception leads to where the task was cancelled, and what stands there may know the task, as a timeout
        # does. It is given out once: taken here, it keeps nothing for the garbage collector.
        with contextlib.suppress(asyncio.CancelledError):
            task.exception()
    elif (error := task.exception()) is not None:
        _log.error("task %s failed", task.get_name(), exc_info=error)
