"""The drain: who is let finish, when new calls are refused, and that it never takes longer than it may."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from proxy.exchange import CancelCause
from proxy.runtime.lifecycle import STEP_SECONDS, Signals, drain
from tests.fakes import FakeClock, settle


class FakeServer:
    """What the drain looks at; notes when it acts."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.draining = self.refusing = False
        self.last_arrival = 0.0
        self.busy = 0
        self.stopped: list[float] = []
        self.cancelled: list[tuple[float, CancelCause]] = []
        self.obeys = True

    def stop_listening(self) -> None:
        """Notes it."""
        self.stopped.append(self.clock.now())

    def cancel_all(self, cause: CancelCause) -> None:
        """Ends what runs, if it obeys."""
        self.cancelled.append((self.clock.now(), cause))
        if self.obeys:
            self.busy = 0


class Ending:
    """A drain that runs."""

    def __init__(self, *, linger: float = 2.0, limit: float = 20.0, busy: int = 0) -> None:
        self.clock = FakeClock(1000.0)
        self.server = FakeServer(self.clock)
        self.server.busy = busy
        self.server.last_arrival = 400.0
        self.task = asyncio.ensure_future(drain(self.server, linger=linger, limit=limit, clock=self.clock))

    async def seconds(self, seconds: float) -> None:
        """Lets time pass."""
        await self.clock.run(seconds)


async def test_without_calls_it_ends_after_the_linger() -> None:
    ending = Ending()
    await ending.seconds(1.9)
    assert ending.server.draining
    assert not ending.server.refusing
    assert not ending.task.done()
    await ending.seconds(0.2)
    assert ending.task.done()
    assert ending.server.refusing
    assert ending.server.stopped
    assert ending.server.cancelled == []


async def test_a_call_under_way_is_waited_for() -> None:
    ending = Ending(busy=1)
    await ending.seconds(10.0)
    assert not ending.task.done()
    assert not ending.server.stopped
    ending.server.busy = 0
    await ending.seconds(0.1)
    assert ending.task.done()
    assert ending.server.cancelled == []


async def test_a_new_call_during_the_linger_begins_it_again() -> None:
    ending = Ending()
    await ending.seconds(1.5)
    ending.server.last_arrival = ending.clock.now()
    await ending.seconds(1.9)
    assert not ending.task.done()
    assert not ending.server.refusing
    await ending.seconds(0.2)
    assert ending.task.done()


async def test_calls_that_never_end_are_shown_a_break_before_the_limit() -> None:
    ending = Ending(busy=3)
    await ending.seconds(16.9)
    assert not ending.server.refusing
    await ending.seconds(0.2)
    assert ending.server.refusing
    ((when, cause),) = ending.server.cancelled
    assert cause is CancelCause.DRAIN
    assert when == pytest.approx(1017.0, abs=0.1)
    assert ending.task.done()


async def test_what_does_not_even_end_when_it_is_cancelled_holds_nothing_up_beyond_the_limit() -> None:
    ending = Ending(busy=3)
    ending.server.obeys = False
    await ending.seconds(19.9)
    assert not ending.task.done()
    await ending.seconds(0.2)
    assert ending.task.done()


async def test_a_caller_that_never_stops_calling_cannot_keep_it_alive() -> None:
    ending = Ending()
    for _ in range(40):
        ending.server.last_arrival = ending.clock.now()
        await ending.seconds(0.5)
    assert ending.task.done()
    assert ending.clock.now() == pytest.approx(1020.0)


async def test_without_linger_it_takes_in_what_was_sent_before_it_stops_listening() -> None:
    ending = Ending(linger=0.0)
    await settle()
    assert ending.server.stopped == []
    ending.server.busy = 1
    await ending.seconds(1.0)
    assert ending.server.stopped
    assert not ending.server.refusing


async def test_who_calls_at_the_last_moment_is_refused_before_nobody_listens() -> None:
    ending = Ending(limit=10.0, busy=1)
    await ending.seconds(8.1)
    assert ending.server.refusing
    ((broken, _),) = ending.server.cancelled
    assert ending.server.stopped == [pytest.approx(broken + STEP_SECONDS)]


async def test_without_linger_it_stops_listening_and_ends_with_the_last_call() -> None:
    ending = Ending(linger=0.0, busy=1)
    await ending.seconds(0.1)
    assert ending.server.stopped == [pytest.approx(1000.0 + STEP_SECONDS)]
    assert not ending.task.done()
    ending.server.busy = 0
    await ending.seconds(0.1)
    assert ending.task.done()


async def test_a_limit_of_nothing_ends_at_once() -> None:
    ending = Ending(limit=0.0, busy=2)
    await settle()
    assert len(ending.server.cancelled) == 1
    await ending.seconds(STEP_SECONDS)
    assert ending.task.done()


async def test_a_short_limit_leaves_its_last_fifth_for_the_breaks() -> None:
    ending = Ending(limit=1.0, busy=1)
    await ending.seconds(0.75)
    assert not ending.server.cancelled
    await ending.seconds(0.1)
    assert ending.server.cancelled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_one_signal_asks_for_the_end_and_a_second_one_takes_it(number: signal.Signals) -> None:
    signals, looked = Signals(), asyncio.Event()
    loop = asyncio.get_running_loop()
    signals.install(loop)
    signals.on_hangup = looked.set
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(looked.wait(), 5.0)
        assert not signals.stop.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(signals.stop.wait(), 5.0)
        assert not signals.kill.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(signals.kill.wait(), 5.0)
    finally:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(each)
