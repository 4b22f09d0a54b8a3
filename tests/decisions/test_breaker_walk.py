"""A long random walk through the breaker's life, beside its model: it never sticks, and the past never moves it.

Seeded. The properties of `semantics.md` §10 hold after every step: *breaker live*, with the leases that wait in a queue
ended by the queue's limit; *breaker safe*, in `Pair.end` and `Pair.content`.
"""

from __future__ import annotations

import random

import pytest

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.verdict import Verdict
from tests.decisions.breaker_model import ANSWER, CLOSED, HALF_OPEN, OPEN, Call
from tests.decisions.breaker_pair import Pair

STEPS = 50_000
QUEUE = 5.0
WAITS = (0.25, 0.25, 0.5, 1.0, 2.5)
FIRST_BYTES = (4.5, 6.0)
LOST = 400
"""So many calls are remembered, to be heard of again after they have ended, or long after their generation."""
OTHERS = (Verdict.HEALTHY, Verdict.REJECTED, Verdict.NEUTRAL, Verdict.GIVEN_UP, Verdict.NOT_RECORDED)
MOODS = (
    (*[Verdict.SUCCESS] * 12, Verdict.FAILURE, *OTHERS),
    (*[Verdict.SUCCESS] * 3, *[Verdict.FAILURE] * 6, *OTHERS),
    (*[Verdict.SUCCESS] * 2, *[Verdict.NEUTRAL] * 6, *OTHERS),
)
"""How calls end while a provider is well, ill, or has something else to say."""


class Walk:
    """One walk: `calls` run, `lost` have ended or are forgotten by whoever made them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pair = Pair(self.rules(), first_byte=6.0, share=12, jitter=self.random.choice((0.0, 0.5, 1.0)))
        self.mood = MOODS[0]
        self.calls: list[Call] = []
        self.lost: list[Call] = []
        self.blocked_since: float | None = None
        self.ends_of_probes: set[Verdict] = set()
        self.overdue = self.unstarted = self.late = 0

    def rules(self) -> BreakerSettings:
        pick = self.random.choice
        return BreakerSettings(
            failure_ratio=pick((0.0, 0.4, 0.6, 1.0)),
            window_calls=pick((6, 12)),
            window_seconds=pick((10.0, 30.0)),
            min_calls=pick((3, 6)),
            consecutive=pick((0, 2, 4)),
            slow_after=pick((None, 1.0, 3.0)),
            slow_ratio=pick((0.3, 0.8)),
            open_first=pick((2.0, 5.0)),
            open_cap=pick((5.0, 20.0)),
            probes=pick((1, 2, 3)),
        )

    def step(self) -> None:
        """One event, whichever; then everything is compared."""
        what = self.random.random()
        if self.pair.model.state is OPEN and what < 0.6:
            self.wait(self.pair.model.open_until - self.pair.now)
        elif what < 0.28:
            self.acquire()
        elif what < 0.58:
            self.milestone()
        elif what < 0.78:
            self.end()
        elif what < 0.86:
            self.late_word()
        elif what < 0.87:
            self.mood = self.random.choice(MOODS)
        elif what < 0.99:
            self.wait(self.random.choice(WAITS))
        else:
            share = self.random.choice((0, 1, 3, 7, 43))
            self.pair.reload(self.rules(), first_byte=self.random.choice(FIRST_BYTES), share=share)
            self.refuse_late_waiters()
        self.pair.check()
        self.lives()

    def acquire(self) -> None:
        call = self.pair.acquire(stream=self.random.random() < 0.7, queue=QUEUE)
        if call is not None:
            self.calls.append(call)

    def milestone(self) -> None:
        if not self.calls:
            return
        call = next((call for call in self.calls if call.started_at is None), None)
        if call is not None and self.random.random() < 0.7:
            self.pair.start(call)
        else:
            self.pair.content(self.random.choice(self.calls))

    def end(self) -> None:
        if not self.calls:
            return
        call = self.calls.pop(self.random.randrange(len(self.calls)))
        if self.random.random() < 0.15:
            self.forget(call)
            return
        self.ends(call, self.random.choice(self.mood))

    def ends(self, call: Call, verdict: Verdict) -> None:
        if call.probe and self.pair.matters(call):
            self.ends_of_probes.add(verdict)
        told = self.random.choice((None, None, None, 1.0, 15.0))
        self.pair.end(call, verdict, told, slow_after=self.random.choice((2.0, 100.0)))
        self.forget(call)

    def forget(self, call: Call) -> None:
        """Nobody hears of the call for long, or ever again."""
        self.lost.append(call)
        if len(self.lost) > LOST:
            self.lost.pop(self.random.randrange(LOST))

    def late_word(self) -> None:
        """Somebody tells of a call that has ended, or that everybody had forgotten."""
        if not self.lost:
            return
        call = self.random.choice([call for call in self.lost if not call.ended] or self.lost)
        self.late += call.generation != self.pair.model.generation and not call.ended
        if self.random.random() < 0.3:
            self.pair.content(call)
        else:
            self.pair.end(call, self.random.choice(list(Verdict)), 1000.0)

    def wait(self, seconds: float) -> None:
        running = {id(call) for call in self.pair.model.leases()}
        self.pair.wait(seconds)
        if running and self.pair.model.state is OPEN:
            self.overdue += 1
        self.refuse_late_waiters()

    def refuse_late_waiters(self) -> None:
        """What admission does: no lease waits longer than the queue's limit, also not one that nobody hears of."""
        for call in self.pair.model.leases():
            if call.started_at is None and call.due <= self.pair.now:
                self.unstarted += 1
                self.pair.end(call, Verdict.NOT_RECORDED)
        self.calls = [call for call in self.calls if not call.ended]

    def lives(self) -> None:
        """Breaker live: half-open with all its leases out lasts no longer than a wait and an answer."""
        pair = self.pair
        if pair.model.state is not HALF_OPEN or pair.model.free():
            self.blocked_since = None
        elif self.blocked_since is None:
            self.blocked_since = pair.now
        else:
            assert pair.now - self.blocked_since <= QUEUE + ANSWER + max(WAITS)


@pytest.mark.parametrize("seed", range(4))
def test_it_never_sticks_and_the_past_never_moves_it(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    changes = walk.pair.changes
    whys = {change.why for change in changes}
    assert whys == {"consecutive", "failure_ratio", "slow", "waited", "probe_failed", "probe_neutral", "probes_ok"}
    assert walk.ends_of_probes == set(Verdict)
    assert min(walk.overdue, walk.unstarted, walk.late) > 10
    assert sum(change.new is CLOSED for change in changes) > 50
