"""Tenants at the targets of one provider: what one floods at one of them, others do not wait for at another."""

from __future__ import annotations

import random
from collections import deque

import pytest

from proxy.decisions.admission import Admission
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Line, Waiter
from tests.decisions.waiting_room import NOW, a_bucket, a_line, a_room, sized

PATIENCE = 1e9
FLOOD, FEW = 200, 10


class Crowd:
    """Who is served, in their order, by tenant; `ends` lets the oldest calls end."""

    def __init__(self) -> None:
        self.admission = Admission()
        self.served: list[str] = []
        self.running: deque[Permit] = deque()

    def comes(self, tenant: str, line: Line, *, klass: int = 1, tokens: float = 0.0) -> None:
        """One call."""
        ask = sized(tokens, klass, tenant=tenant, queue=PATIENCE, quota_wait=PATIENCE)
        answer = self.admission.enter(line, ask, NOW)
        if isinstance(answer, Permit):
            self.running.append(answer)
            return
        assert isinstance(answer, Waiter)
        answer.wake = lambda: self.woken(answer)

    def woken(self, waiter: Waiter) -> None:
        assert waiter.permit is not None
        self.served.append(waiter.tenant)
        self.running.append(waiter.permit)

    def ends(self, count: int = 1) -> None:
        """The oldest calls end."""
        for _ in range(count):
            self.running.popleft().release(NOW)

    def floods(self, wild: Line, calm: Line) -> None:
        """One tenant floods a target, another one comes to another target later."""
        for _ in range(FLOOD):
            self.comes("wild", wild)
        for _ in range(FEW):
            self.comes("calm", calm)

    def before_the_last(self, tenant: str, other: str) -> int:
        """How many of another tenant went before the last one of this."""
        last = len(self.served) - self.served[::-1].index(tenant)
        return self.served[:last].count(other)


def two_targets(*limits: Places, own: tuple[Places, ...] = ()) -> tuple[Line, Line]:
    """Two models of one provider; the first has limits of its own."""
    room = a_room(share=1000, most=5000)
    return a_line(room, *limits, *own, name="alpha/large"), a_line(room, *limits, name="alpha/small")


def test_a_flood_at_one_target_goes_in_turn_with_the_calls_to_another() -> None:
    crowd = Crowd()
    crowd.floods(*two_targets(Places("provider", 1)))
    crowd.ends(2 * FEW + 2)
    assert crowd.before_the_last("calm", "wild") <= FEW + 1


@pytest.mark.parametrize("own", [2, 3])
def test_it_does_also_where_the_flood_lacks_a_limit_of_its_own(own: int) -> None:
    crowd = Crowd()
    crowd.floods(*two_targets(Places("provider", 3), own=(Places("model", own),)))
    crowd.ends(2 * FEW + 4)
    assert crowd.before_the_last("calm", "wild") <= FEW + 3


def test_it_does_also_where_quota_is_lacked() -> None:
    crowd = Crowd()
    wild, calm = two_targets()
    bucket = a_bucket(600.0)
    for line in (wild, calm):
        line.reconfigure((), None, tokens=(bucket,))
    for _ in range(FLOOD):
        crowd.comes("wild", wild, tokens=10.0)
    for _ in range(FEW):
        crowd.comes("calm", calm, tokens=10.0)
    for second in range(2 * FEW + 2):
        crowd.admission.tick(NOW + second + 1)
    assert crowd.before_the_last("calm", "wild") <= FEW + 6


def test_what_a_tenant_gets_at_one_target_counts_at_the_other() -> None:
    crowd = Crowd()
    one, other = two_targets(Places("provider", 1))
    for _ in range(FLOOD):
        crowd.comes("wild", one)
        crowd.comes("wild", other)
        crowd.comes("calm", one)
    crowd.ends(60)
    assert abs(crowd.served.count("wild") - crowd.served.count("calm")) <= 2


def test_of_one_tenant_who_came_first_goes_first_whatever_the_target() -> None:
    crowd = Crowd()
    lines = two_targets(Places("provider", 1))
    waiting: list[Waiter] = []
    for number in range(20):
        answer = crowd.admission.enter(lines[number % 2], sized(float(number % 3), queue=PATIENCE), NOW)
        if isinstance(answer, Permit):
            crowd.running.append(answer)
        elif isinstance(answer, Waiter):
            waiting.append(answer)
    order = []
    while crowd.running:
        crowd.running.popleft().release(NOW)
        for waiter in [one for one in waiting if one.permit is not None]:
            waiting.remove(waiter)
            order.append(waiter.sequence)
            if waiter.permit is not None:
                crowd.running.append(waiter.permit)
    assert order == sorted(order)
    assert len(order) == 19


def test_for_the_place_that_all_providers_need_they_go_by_arrival() -> None:
    crowd = Crowd()
    process = Places("process", 1)
    alpha = a_line(a_room("alpha", most=1000), process, Places("alpha", 9), name="alpha/m")
    beta = a_line(a_room("beta", most=1000), process, Places("beta", 9), name="beta/m")
    crowd.comes("first", alpha)
    for tenant, line in (("a", alpha), ("a", alpha), ("b", beta), ("c", alpha), ("d", beta)):
        crowd.comes(tenant, line)
    crowd.ends(5)
    assert crowd.served == ["a", "c", "a", "b", "d"]


def test_a_higher_class_is_no_kin() -> None:
    crowd = Crowd()
    one, other = two_targets(Places("provider", 1))
    crowd.comes("first", one)
    for _ in range(3):
        crowd.comes("a", one)
    crowd.comes("b", other, klass=0)
    crowd.comes("a", other, klass=0)
    crowd.ends(5)
    assert crowd.served == ["b", "a", "a", "a", "a"]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_comes_to_whichever_target_everybody_is_served_in_the_end(seed: int) -> None:
    dice = random.Random(seed)
    crowd = Crowd()
    provider, process = Places("alpha", 3), Places("process", 4)
    room, beta = a_room(share=1000, most=5000), a_room("beta", most=5000)
    lines = [a_line(room, process, provider, name=f"alpha/{number}") for number in range(3)]
    lines.append(a_line(room, process, provider, Places("model", 1), name="alpha/narrow"))
    lines.append(a_line(beta, process, name="beta/m"))
    for _ in range(400):
        crowd.comes(dice.choice("aaab") + str(dice.randrange(3)), dice.choice(lines), klass=dice.randrange(2))
        if crowd.running and dice.random() < 0.4:
            crowd.ends()
        assert provider.used <= provider.size
        assert process.used <= process.size
    while crowd.running:
        crowd.ends()
    assert crowd.admission.waiting == 0
    assert not any(turns.starts for one in (room, beta) for turns in one.turns)
