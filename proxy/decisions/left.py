"""What is left of a provider's limits, as its own answers say (`semantics.md` §4).

One `Left` for each key, or for a provider without keys. Two things follow from what a head said: how much may be used
at most (`requests`, `tokens`: ceilings, never grants), and how good a choice the key is (`part`).

What is left grows back to the whole, evenly, until the reset that the provider named, else for a minute; then it is
forgotten, and only the policy's own numbers count.

**Order.** With many calls in flight heads overtake each other. Providers count a call when it comes in, and what they
say belongs to that moment, however much later its head arrives. So a call's word is as old as its sending: that of a
call which went out earlier changes nothing. Calls that went out within a second of each other may have come in in any
order; of their words the lowest counts. So within a window what is left only falls, whatever arrives when; a window
that has begun anew is seen a second later.
"""

from __future__ import annotations

from proxy.dialects.rate_limits import RateLimits

FORGOTTEN_AFTER_SECONDS = 60.0
"""Where no reset is told: most limits are per minute."""
TOGETHER_SECONDS = 1.0


class Left:
    """What one key has left. All methods are told the time, in monotonic seconds."""

    __slots__ = ("_part", "_requests", "_tokens")

    def __init__(self) -> None:
        self._part = _Word()
        self._requests = _Word()
        self._tokens = _Word()

    def __repr__(self) -> str:
        return f"<Left {self._part!r}, requests {self._requests!r}, tokens {self._tokens!r}>"

    def learn(self, rates: RateLimits, now: float, *, sent_at: float | None = None, instances: int = 1) -> bool:
        """Takes a head's word; False when nothing of it was news.

        `sent_at` is when its call went out (None: now). `instances` use the key alike, so that only so large a part of
        what is left is for this one.
        """
        at = now if sent_at is None else sent_at
        news = False
        if rates.part is not None:
            news = self._part.hear(rates.part, 1.0, rates.part_reset, now=now, at=at)
        remaining, limit = rates.requests_remaining, rates.requests_limit
        if remaining is not None:
            whole = None if limit is None else limit / instances
            news |= self._requests.hear(remaining / instances, whole, rates.requests_reset, now=now, at=at)
        remaining, limit = rates.tokens_remaining, rates.tokens_limit
        if remaining is not None:
            whole = None if limit is None else limit / instances
            news |= self._tokens.hear(remaining / instances, whole, rates.tokens_reset, now=now, at=at)
        return news

    def part(self, now: float) -> float:
        """Returns how much is left of the limit of which the smallest part is left (0-1); 1 where nobody has said."""
        left = self._part.holds(now)
        return 1.0 if left is None else left

    def requests(self, now: float) -> float | None:
        """Returns how many requests this instance may send at most; None where nobody has said, or long ago."""
        return self._requests.holds(now)

    def tokens(self, now: float) -> float | None:
        """Returns how many tokens this instance may use at most; None where nobody has said, or long ago."""
        return self._tokens.holds(now)


class _Word:
    """The provider's word for one amount: `value` at `heard_at`, `whole` at `heard_at + span`."""

    __slots__ = ("_heard_at", "_sent_at", "_span", "_value", "_whole")

    def __init__(self) -> None:
        self._heard_at = self._sent_at = float("-inf")
        self._span = self._value = self._whole = 0.0

    def __repr__(self) -> str:
        return f"{self._value:g}/{self._whole:g} for {self._span:g} s"

    def hear(self, value: float, whole: float | None, reset: float | None, *, now: float, at: float) -> bool:
        """Takes the word of a call that went out at `at`, unless it is older or says more than what stands."""
        later = at - self._sent_at
        if later <= TOGETHER_SECONDS:
            standing = self.holds(now)
            if later < -TOGETHER_SECONDS or (standing is not None and value >= standing):
                return False
        self._value = value
        self._whole = value if whole is None or whole < value else whole
        self._span = FORGOTTEN_AFTER_SECONDS if reset is None else reset
        self._heard_at = now
        self._sent_at = max(self._sent_at, at)
        return True

    def holds(self, now: float) -> float | None:
        """Returns what it comes to by now; None once it is over."""
        passed = now - self._heard_at
        if passed >= self._span:
            return None
        value = self._value
        return value + (self._whole - value) * max(passed, 0.0) / self._span
