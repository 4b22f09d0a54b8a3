"""The system's clock: monotonic, and its timers do not fire early."""

from __future__ import annotations

import asyncio
import time

import pytest

from proxy.clock import SystemClock


async def test_now_is_the_monotonic_clock() -> None:
    clock = SystemClock()
    before, now, after = time.monotonic(), clock.now(), time.monotonic()
    assert before <= now <= after


async def test_wall_time_is_nanoseconds_since_the_epoch() -> None:
    assert abs(SystemClock().wall_ns() / 1e9 - time.time()) < 5.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.02])
async def test_sleep_takes_at_least_what_was_asked_and_never_spins(seconds: float) -> None:
    clock = SystemClock()
    began = clock.now()
    await clock.sleep(seconds)
    assert clock.now() - began >= max(seconds, 0.001) * 0.9


async def test_a_timed_call_comes_when_it_is_due() -> None:
    clock = SystemClock()
    due = clock.now() + 0.02
    came = asyncio.get_running_loop().create_future()
    clock.call_at(due, lambda: came.set_result(clock.now()))
    assert await came >= due - 0.001


async def test_a_call_in_the_past_comes_at_once() -> None:
    clock = SystemClock()
    came = asyncio.Event()
    clock.call_at(clock.now() - 60.0, came.set)
    await asyncio.wait_for(came.wait(), 5.0)


async def test_a_cancelled_call_never_comes() -> None:
    clock = SystemClock()
    came = asyncio.Event()
    timer = clock.call_at(clock.now(), came.set)
    timer.cancel()
    timer.cancel()
    await asyncio.sleep(0.02)
    assert not came.is_set()
