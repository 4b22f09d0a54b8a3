"""Admission with quotas in every order of events: nothing is made or lost, nobody is stuck, order is kept.

Books of every bucket are kept by hand beside it (`ledger`). Nothing ticks: time passes from alarm to alarm, so that who
could go and does not is one for whom no alarm was set.
"""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.queues import Ask
from proxy.outcome import Reason
from tests.decisions.quota_callers import Callers
from tests.decisions.quota_world import RATES

STEPS = 6000
NAMES = sorted(RATES)
CLASSES = [0, 1, 1, 1, 2, 2]
TOKENS = [1.0] * 4 + [5.0] * 6 + [20.0] * 6 + [60.0] * 3 + [250.0] * 2 + [1000.0]
WAITS = [0.25, 3.0, 20.0, 60.0, 60.0]
PROMOTIONS = [1.0, 4.0, inf]
ALLOWED = [5.0, inf, inf, inf]
USED = [0.0, 0.5, 1.0, 1.0, 3.0, None]
FACTORS = [0.0, 0.3, 1.0, 2.0]
LABELS = ["process", "alpha", "m1", "beta"]
PICK = st.integers(0, 50)


def an_ask(dice: random.Random, now: float) -> Ask:
    klass = dice.choice(CLASSES)
    return Ask(
        klass=klass,
        bytes=dice.choice([0, 10, 900]),
        limits=WaitLimits(queue=dice.choice(WAITS), quota_wait=dice.choice(WAITS)),
        deadline_at=now + dice.choice(ALLOWED),
        tokens=dice.choice(TOKENS),
        tenant=dice.choice("aab"),
        promote_after=dice.choice(PROMOTIONS),
    )


class Admissions(RuleBasedStateMachine):
    """What hypothesis finds, and shrinks."""

    @initialize()
    def begin(self) -> None:
        self.world = Callers()

    @rule(number=st.integers(0, 3), dice=st.randoms(use_true_random=False))
    def enter(self, number: int, dice: random.Random) -> None:
        self.world.enter(number, an_ask(dice, self.world.now))

    @precondition(lambda self: self.world.standing)
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        self.world.leave(pick)

    @precondition(lambda self: self.world.standing)
    @rule(pick=PICK)
    def take_up(self, pick: int) -> None:
        self.world.take_up(pick)

    @precondition(lambda self: self.world.held)
    @rule(pick=PICK, used=st.sampled_from(USED))
    def release(self, pick: int, used: float | None) -> None:
        self.world.release(pick, used)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.passes(seconds)

    @rule(number=st.integers(0, 3))
    def breaker_opens(self, number: int) -> None:
        self.world.breaker_opens(number)

    @rule(number=st.integers(0, 1), rests=st.sampled_from([0.5, 3.0, 60.0, None]))
    def key_ends(self, number: int, rests: float | None) -> None:
        self.world.key_ends(number, rests=rests)

    @rule()
    def restore(self) -> None:
        self.world.restore()

    @rule(name=st.sampled_from(NAMES), part=st.sampled_from([0.0, 0.5]))
    def hinted(self, name: str, part: float) -> None:
        self.world.hinted(name, part)

    @rule(size=st.integers(1, 5))
    def adapts(self, size: int) -> None:
        self.world.adapts(size)

    @rule(
        name=st.sampled_from(NAMES),
        factor=st.sampled_from(FACTORS),
        reserved=st.sampled_from([0.0, 0.2]),
        bound=st.booleans(),
    )
    def rate_changes(self, name: str, factor: float, reserved: float, bound: bool) -> None:
        self.world.rate_changes(name, factor, reserved=reserved, bound=bound)

    @rule(label=st.sampled_from(LABELS), size=st.integers(0, 6))
    def limit_changes(self, label: str, size: int) -> None:
        self.world.limit_changes(label, size)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """All go home."""
        if hasattr(self, "world"):
            self.world.go_home()


TestAdmissions = Admissions.TestCase
TestAdmissions.settings = settings(max_examples=60, stateful_step_count=50)


def step(world: Callers, dice: random.Random) -> None:
    """One of the things that may happen; most often somebody comes, or a call ends, or time passes."""
    match dice.choices(range(6), weights=[30, 25, 25, 15, 5, 3])[0]:
        case 0:
            world.enter(dice.choice([0, 0, 1, 2, 3]), an_ask(dice, world.now))
        case 1 if world.held:
            world.release(dice.randrange(50), dice.choice(USED))
        case 2:
            world.passes(dice.choice([0.02, 0.1, 0.5, 2.0]))
        case 3 if world.standing:
            world.take_up(dice.randrange(50))
        case 4 if world.standing:
            world.leave(dice.randrange(50))
        case 5:
            change(world, dice)


def change(world: Callers, dice: random.Random) -> None:
    """The policy, a key, a breaker or the provider's mind changes; as often all is well again."""
    match dice.randrange(12):
        case 0:
            world.breaker_opens(dice.randrange(4))
        case 1:
            world.hinted(dice.choice(NAMES), dice.choice([0.0, 0.5]))
        case 2:
            world.adapts(dice.randint(1, 5))
        case 3:
            world.limit_changes(dice.choice(LABELS), dice.choice([0, 2, 4, 6]))
        case 4:
            world.key_ends(dice.randrange(2), rests=dice.choice([0.5, 3.0, 20.0, None]))
        case 5:
            world.rate_changes(dice.choice(NAMES), dice.choice(FACTORS), reserved=0.2, bound=dice.random() < 0.7)
        case _:
            world.restore()


def walk(seed: int, steps: int) -> Callers:
    """So many random steps, checked after each, and everybody goes home."""
    world, dice = Callers(), random.Random(seed)
    for _ in range(steps):
        step(world, dice)
        world.check()
    world.go_home()
    return world


@pytest.mark.parametrize("seed", range(2))
def test_after_thousands_of_steps_all_books_are_right_and_everything_comes_back(seed: int) -> None:
    counts = walk(seed, STEPS).counts
    seen = {"at once", "served", "passed", "promoted", Reason.CONTEXT_TOO_LONG, Reason.QUOTA_EXHAUSTED}
    assert seen <= set(counts), "without any of these this would say little"
