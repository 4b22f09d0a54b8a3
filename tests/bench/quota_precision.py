"""Quota precision, on virtual time: how much of what a provider allows is used, and how often it must refuse.

The decisions are the product's own (`Bucket`, `Estimates`, `charge`); calls, network and provider are a model
(`quota_provider`). The provider is stricter than real ones: it refills at just the rate that may be used, as if the
headroom were its own limit, holds no more than our bucket, and begins with one second of its rate.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random

from proxy.decisions.counting import CountSettings, charge
from proxy.decisions.estimates import Estimates
from proxy.decisions.quota import MINUTE, Bucket, QuotaSettings
from tests.bench.quota_provider import TOKENS_PER_SECOND, Call, Provider, Rule, make_call

TOKENS_PER_MINUTE = 1_000_000
MINUTES = 10
SIMULTANEOUS = 200
LEFT = 0.1
SETTINGS = QuotaSettings()
ALLOWED_PER_MINUTE = TOKENS_PER_MINUTE * SETTINGS.headroom
SLACK_SECONDS = 1.0
"""Of its rate, which the provider has refilled before the first call: for calls that arrive in another order, and for
those that take more than was reserved. With a tenth of it, one call in some thousands is refused."""
NETWORK_SECONDS = (0.005, 0.05)


COUNTS = {
    Rule.AS_USED: CountSettings(),
    Rule.IN_ADVANCE: CountSettings(),
    Rule.FOR_GOOD: CountSettings(unused_output=1.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one run: tokens over its minutes, and of a crowd that met a bucket with little left.

    `too_small`: part of the calls that used more than was reserved for them. `left` is what the bucket held when the
    crowd came, `admitted` what was reserved for those that went, `crowd_used` what the provider counted of them.
    """

    rule: Rule
    seed: int
    calls: int
    allowed: float
    counted: float
    refusals: int
    too_small: float
    left: float
    admitted: float
    crowd_used: float

    @property
    def used(self) -> float:
        """Returns the part of the allowed tokens that the provider counted."""
        return self.counted / self.allowed

    def __str__(self) -> str:
        return (
            f"counts {self.rule:<10} seed {self.seed}: {self.used:.1%} of {self.allowed:,.0f} tokens counted, "
            f"{self.refusals} of {self.calls:,} calls refused, {self.too_small:.1%} reserved too little; "
            f"{SIMULTANEOUS} at once with {self.left:,.0f} left: {self.admitted:,.0f} admitted, "
            f"{self.crowd_used:,.0f} counted"
        )


@dataclass(slots=True, eq=False)
class World:
    """One proxy and one provider. More calls wait than may go; they go in their order."""

    rule: Rule
    random: Random
    count: CountSettings
    pace: float = 1.0
    now: float = 0.0
    calls: int = 0
    too_small: int = 0
    estimates: Estimates = field(default_factory=Estimates)
    bucket: Bucket = field(init=False)
    provider: Provider = field(init=False)
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        self.bucket = Bucket("alpha tpm", 0.0)
        self.bucket.reconfigure(ALLOWED_PER_MINUTE * self.pace, 0.0, burst=SETTINGS.burst, most=inf)
        per_second = ALLOWED_PER_MINUTE / MINUTE
        self.provider = Provider(
            self.rule, per_second, level=SLACK_SECONDS * per_second, capacity=SETTINGS.burst * per_second
        )

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        waiting, until = make_call(self.random), self.now + seconds
        while self.now < until:
            waiting.reserved = self.estimates.reserve(waiting.demand, self.count)
            wait = self.bucket.wait(waiting.reserved, self.now)
            if wait == 0.0:
                self.go(waiting)
                waiting = make_call(self.random)
                continue
            due = min(self.now + max(wait, 1e-3), until)
            self.now = min(due, self.events[0][0]) if self.events else due
            while self.events and self.events[0][0] <= self.now:
                heapq.heappop(self.events)[2]()

    def go(self, call: Call) -> None:
        """Takes what is reserved, and sends the call."""
        self.bucket.take(call.reserved, self.now)
        self.calls += 1
        there, back = self.random.uniform(*NETWORK_SECONDS), self.random.uniform(*NETWORK_SECONDS)
        if call.sent:
            arrives, ends = self.now + there, self.now + there + 0.3 + call.output / TOKENS_PER_SECOND
            self._at(arrives, lambda: self.provider.arrives(call, arrives))
            self._at(ends, lambda: self.provider.ends(call, ends))
            self._at(ends + back, lambda: self.settle(call))
        else:
            self._at(self.now + there, lambda: self.settle(call))

    def settle(self, call: Call) -> None:
        """Gives back what was not used, and learns."""
        attempt = call.ended()
        charged = charge(
            attempt,
            demand=call.demand,
            estimates=self.estimates,
            count=self.count,
            reserved=call.reserved,
            stream=call.stream,
        )
        self.bucket.give(call.reserved - charged.tokens, self.now)
        self.estimates.learn(call.demand, attempt, stream=call.stream)
        self.too_small += charged.tokens > call.reserved

    def crowd(self) -> tuple[float, float, float]:
        """Lets many calls come at once when little is left: what was left, what was admitted, what that used."""
        self.bucket.hint(self.bucket.capacity * LEFT, self.now)
        left, before = self.bucket.level(self.now), self.provider.counted
        admitted: list[Call] = []
        for _ in range(SIMULTANEOUS):
            call = make_call(self.random)
            call.reserved = self.estimates.reserve(call.demand, self.count)
            if self.bucket.wait(call.reserved, self.now) == 0.0:
                self.go(call)
                admitted.append(call)
        self.drain()
        return left, sum(call.reserved for call in admitted), self.provider.counted - before

    def drain(self) -> None:
        """Lets what is under way come to its end."""
        while self.events:
            self.now, _, event = heapq.heappop(self.events)
            event()

    def _at(self, when: float, event: Callable[[], None]) -> None:
        self.made += 1
        heapq.heappush(self.events, (when, self.made, event))


def run(seed: int, rule: Rule = Rule.AS_USED, *, settles_as: Rule | None = None, pace: float = 1.0) -> Result:
    """Runs ten minutes of more traffic than is allowed, then lets a crowd meet a bucket that is nearly empty.

    `settles_as`: the rule that the proxy was told of, where it is not the provider's; `pace`: the proxy's rate as a
    part of the provider's.
    """
    world = World(rule, Random(seed), COUNTS[settles_as or rule], pace)
    world.run(MINUTES * MINUTE)
    calls, too_small = world.calls, world.too_small
    counted, refusals = world.provider.counted, world.provider.refusals
    world.drain()
    left, admitted, crowd_used = world.crowd()
    return Result(
        rule=rule,
        seed=seed,
        calls=calls,
        allowed=ALLOWED_PER_MINUTE * MINUTES,
        counted=counted,
        refusals=refusals,
        too_small=too_small / calls,
        left=left,
        admitted=admitted,
        crowd_used=crowd_used,
    )


if __name__ == "__main__":
    for rule in Rule:
        for seed in range(3):
            print(run(seed, rule))
