"""Tenants in admission: one that floods slows no other one by more than a call or two, and nobody starves."""

from __future__ import annotations

import random
from collections import deque

import pytest

from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Waiter
from tests.decisions.waiting_room import MOMENT, NOW, Desk, a_bucket, a_room, sized

PATIENCE = 1e9


class Crowd:
    """A desk at which tenants wait; who is served is written down, in its order."""

    def __init__(self, *limits: Places, tokens: float | None = None) -> None:
        buckets = () if tokens is None else (a_bucket(tokens),)
        self.desk = Desk(*limits, room=a_room(share=0, most=5000), tokens=buckets)
        self.served: list[Waiter] = []
        self.running: deque[Permit] = deque()

    def comes(self, tenant: str, tokens: float, *, klass: int = 1) -> Waiter | None:
        """One call; None when it goes at once."""
        ask: Ask = sized(tokens, klass, tenant=tenant, queue=PATIENCE, quota_wait=PATIENCE)
        answer = self.desk.admission.enter(self.desk.line, ask, self.desk.now)
        if isinstance(answer, Permit):
            self.running.append(answer)
            return None
        assert isinstance(answer, Waiter)
        waiter = answer
        waiter.wake = lambda: self.woken(waiter)
        return waiter

    def woken(self, waiter: Waiter) -> None:
        assert waiter.permit is not None
        self.served.append(waiter)
        self.running.append(waiter.permit)

    def ends(self, count: int = 1) -> None:
        """The oldest calls end, as they were estimated."""
        for _ in range(count):
            self.running.popleft().release(self.desk.now)

    def tenants(self) -> str:
        return "".join(waiter.tenant for waiter in self.served)


def test_of_a_flood_of_a_thousand_one_goes_before_each_of_ten_that_come_later() -> None:
    crowd = Crowd(Places("provider", 1))
    for _ in range(1000):
        crowd.comes("a", 0.0)
    crowd.ends(300)
    for _ in range(10):
        crowd.comes("b", 0.0)
    crowd.served.clear()
    crowd.ends(21)
    assert crowd.tenants().count("b") == 10
    crowd.ends(600)
    assert set(crowd.tenants()[21:]) == {"a"}


def test_long_contexts_count_by_their_tokens() -> None:
    """A job of 10,000 tokens a call and agents of 500: each call of the job is worth twenty of theirs."""
    crowd = Crowd(Places("provider", 1))
    for _ in range(100):
        crowd.comes("a", 10_000.0)
    for _ in range(60):
        crowd.comes("b", 500.0)
    crowd.ends(65)
    assert crowd.tenants().count("b") >= 60


def test_under_a_quota_tenants_share_the_tokens() -> None:
    crowd = Crowd(tokens=60_000.0)
    for _ in range(400):
        crowd.comes("a", 1000.0)
        crowd.comes("b", 250.0)
    crowd.desk.rings(NOW + 60.0)
    used = {tenant: sum(w.tokens for w in crowd.served if w.tenant == tenant) for tenant in "ab"}
    assert used["a"] + used["b"] == pytest.approx(60_000.0, abs=2000.0)
    assert used["a"] == pytest.approx(used["b"], abs=2000.0)


def test_each_class_takes_turns_by_itself_and_the_higher_one_goes_first() -> None:
    crowd = Crowd(Places("provider", 1))
    for _ in range(20):
        crowd.comes("a", 0.0)
        crowd.comes("a", 0.0, klass=0)
    for _ in range(3):
        crowd.comes("b", 0.0)
        crowd.comes("b", 0.0, klass=0)
    crowd.ends(43)
    assert {waiter.klass for waiter in crowd.served[:23]} == {0}
    assert crowd.tenants()[:7].count("b") == 3
    assert crowd.tenants()[23:30].count("b") == 3


def test_one_whose_tenant_was_served_before_gets_its_turn_though_new_tenants_never_cease() -> None:
    crowd = Crowd(Places("provider", 1))
    crowd.comes("first", 0.0)
    crowd.comes("a", 0.0)
    last = crowd.comes("a", 0.0)
    assert last is not None
    for number in range(50):
        crowd.comes(f"new {number}", 0.0)
        crowd.comes(f"other {number}", 0.0)
        crowd.ends()
    assert crowd.served.index(last) < 20


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_everybody_is_served_in_the_end(seed: int) -> None:
    """More comes than can go for a while, then no more: nobody stays."""
    dice = random.Random(seed)
    crowd = Crowd(Places("provider", 3), tokens=6000.0)
    waiting = []
    for _ in range(300):
        waiting.append(crowd.comes(dice.choice("aaab") + str(dice.randrange(3)), dice.choice([1.0, 50.0, 900.0])))
        if crowd.running and dice.random() < 0.4:
            crowd.ends()
        crowd.desk.rings(crowd.desk.now + dice.choice([0.0, 0.1]))
    while crowd.desk.admission.waiting:
        crowd.ends(len(crowd.running))
        assert crowd.desk.alarms or crowd.running, "nobody would ever look again"
        crowd.desk.rings(max(min(crowd.desk.alarms, default=0.0), crowd.desk.now + MOMENT))
    assert len(crowd.served) == sum(waiter is not None for waiter in waiting)
