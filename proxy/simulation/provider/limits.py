"""The provider's rate limits: requests and tokens per minute, of the account and of each key.

A call is let in by all of them at once or by none, and then counts in all; a refused one counts in none. What is
counted of its tokens when follows `TokenRule`. Pure: told the time, so it serves a virtual clock as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import floor

from proxy.simulation.provider.allowance import MINUTE, Allowance, Refill


class TokenRule(StrEnum):
    """When the tokens of a call count.

    `arrival`, as OpenAI and Azure do: the prompt and the caller's maximum when it comes, whatever is used of them.
    `used`, as Anthropic does: the prompt when it comes, the answer as it is produced, even beyond the limit.
    """

    ARRIVAL = "arrival"
    USED = "used"


class Axis(StrEnum):
    """What a limit counts."""

    REQUESTS = "requests"
    TOKENS = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Calls and tokens per minute of one holder; None: no such limit."""

    rpm: float | None = None
    tpm: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """The limits of an account and of each of its keys; `window` is in seconds."""

    account: Rates = Rates()
    key: Rates = Rates()
    refill: Refill = Refill.CONTINUOUS
    window: float = MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The limit that a call did not fit, how much of it was left, and when it will fit (infinity: never)."""

    axis: Axis
    per_minute: float
    left: float
    requested: float
    wait_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The tightest limit of an axis as its holder is told of it; `full_seconds` is how long until it is full."""

    axis: Axis
    per_minute: int
    remaining: int
    full_seconds: float


class Limits:
    """The levels of all limits of one provider. Without any limit every call is let in and nothing is kept."""

    def __init__(self, settings: LimitSettings, now: float) -> None:
        self._settings = settings
        self._account = self._allowances(settings.account, now)
        self._keys: dict[str, dict[Axis, Allowance]] = {}

    def __repr__(self) -> str:
        return f"Limits(account={self._account}, {len(self._keys)} keys)"

    def arrive(self, key: str, tokens: float, now: float) -> Refusal | None:
        """Counts a call with so many tokens and returns None, or returns why it is refused."""
        amounts = {Axis.REQUESTS: 1.0, Axis.TOKENS: tokens}
        refusals = [
            Refusal(
                axis=axis,
                per_minute=allowance.per_minute,
                left=allowance.left(now),
                requested=amounts[axis],
                wait_seconds=wait,
            )
            for axis, allowance in self._binding(key, now)
            if (wait := allowance.wait(amounts[axis], now))
        ]
        if refusals:
            return max(refusals, key=lambda refusal: refusal.wait_seconds)
        for axis, allowance in self._binding(key, now):
            allowance.take(amounts[axis], now)
        return None

    def use(self, key: str, tokens: float, now: float) -> None:
        """Counts tokens that were produced."""
        for axis, allowance in self._binding(key, now):
            if axis is Axis.TOKENS:
                allowance.take(tokens, now)

    def standing(self, key: str, now: float) -> list[Standing]:
        """Returns for each axis with a limit the one of which least is left."""
        tightest: dict[Axis, Allowance] = {}
        for axis, allowance in self._binding(key, now):
            known = tightest.get(axis)
            if known is None or allowance.left(now) < known.left(now):
                tightest[axis] = allowance
        return [
            Standing(
                axis=axis,
                per_minute=floor(allowance.per_minute),
                remaining=max(floor(allowance.left(now)), 0),
                full_seconds=allowance.full_in(now),
            )
            for axis, allowance in tightest.items()
        ]

    def _binding(self, key: str, now: float) -> list[tuple[Axis, Allowance]]:
        own = self._keys.get(key)
        if own is None:
            own = self._allowances(self._settings.key, now)
            if own:
                self._keys[key] = own
        return [*own.items(), *self._account.items()]

    def _allowances(self, rates: Rates, now: float) -> dict[Axis, Allowance]:
        granted = {Axis.REQUESTS: rates.rpm, Axis.TOKENS: rates.tpm}
        window, refill = self._settings.window, self._settings.refill
        return {
            axis: Allowance(per_minute, window=window, refill=refill, now=now)
            for axis, per_minute in granted.items()
            if per_minute is not None
        }
