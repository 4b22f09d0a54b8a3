"""Cancels a task at its n-th await, while it waits there or after that for which it waited has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any

from proxy.outcome import Outcome

NEVER = 0


class Interrupted:
    """Awaits work and counts where it suspends; at number `at` its task is cancelled.

    `handed_over`: not while it waits, but after its future was set and before the task has learned of it.
    `before` is called right before the cancellation.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, Outcome],
        *,
        at: int = NEVER,
        handed_over: bool = False,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._work = work
        self._at = at
        self._handed_over = handed_over
        self._before = before
        self.suspended = 0
        self.cancelled = False

    def __await__(self) -> Generator[Any, Any, Outcome]:
        resume: Callable[[], Any] = partial(self._work.send, None)
        while True:
            try:
                waited = resume()
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            self.suspended += 1
            if self.suspended == self._at:
                self._arrange(waited)
            try:
                yield waited
            except BaseException as error:  # noqa: BLE001 - whatever the task is told, its work is told
                resume = partial(self._work.throw, error)
            else:
                resume = partial(self._work.send, None)

    def _arrange(self, waited: asyncio.Future[object] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._handed_over and waited is not None:
            # Callbacks run in their order: this one comes before the one that wakes the task.
            waited.add_done_callback(lambda _: self._cancel(task))
        else:
            self._cancel(task)

    def _cancel(self, task: asyncio.Task[Any]) -> None:
        self.cancelled = True
        self._before()
        task.cancel()
