"""Observing in batches: everything is told, once, in order, and bodies are not kept for it."""

from __future__ import annotations

from proxy.observer import BreakerChanged, ProcessEvent
from proxy.runtime.batching import BATCH, WAIT_SECONDS, BatchedObserver
from tests.fakes import FakeClock, make_exchange
from tests.scripted import ManualObserver

EVENT: ProcessEvent = BreakerChanged(provider="a", model="m", old="closed", new="open", why="consecutive")


def test_an_exchange_is_told_after_the_wait_and_once() -> None:
    clock, observer = FakeClock(), ManualObserver()
    batched = BatchedObserver(observer, clock=clock)
    exchange = make_exchange()
    batched.ended(exchange)
    assert observer.exchanges == []
    clock.advance(WAIT_SECONDS)
    clock.advance(WAIT_SECONDS)
    assert observer.exchanges == [exchange]


def test_a_full_batch_is_told_at_once_in_order() -> None:
    observer = ManualObserver()
    batched = BatchedObserver(observer, clock=FakeClock())
    exchanges = [make_exchange() for _ in range(BATCH)]
    for exchange in exchanges:
        batched.ended(exchange)
    assert observer.exchanges == exchanges


def test_an_event_is_told_after_what_ended_before_it() -> None:
    observer = ManualObserver()
    batched = BatchedObserver(observer, clock=FakeClock())
    batched.ended(make_exchange())
    batched.happened(EVENT)
    assert (len(observer.exchanges), observer.events) == (1, [EVENT])


def test_flushing_tells_what_is_left_and_the_next_batch_waits_again() -> None:
    clock, observer = FakeClock(), ManualObserver()
    batched = BatchedObserver(observer, clock=clock)
    batched.ended(make_exchange())
    batched.flush()
    assert len(observer.exchanges) == 1
    batched.ended(make_exchange())
    clock.advance(WAIT_SECONDS)
    assert len(observer.exchanges) == 2
