"""Spread: one step of a route's order over equals, asked in the order that `decisions/spread` gives at the moment.

Owns what becomes of an equal by its place in that order: one before others that can go is called once, because the next
can be asked at once. The last that can go is called again as a tier alone would be, or a provider that is away would
cost the others their second chance. Only the very last waits as long as a tier alone.

The caller's own credential goes to one provider only: whom the caller meant, which is the first that the policy names
(`policy.md` rule 4). Whichever equal is asked first, the others get nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proxy.clock import Clock
from proxy.decisions.spread import Spread
from proxy.exchange import Exchange
from proxy.plan import Equals, Tier


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Equal:
    """One of several, as it is asked: `early`, with others after it that can go; then `able`; and as the `last` of all.

    `left` says of a model (None: a name that is none) at a time which part (0-1) of what it can give is left, 0 where
    a call could not go now. `model` None: the caller's.
    """

    early: Tier
    able: Tier
    last: Tier
    model: str | None
    left: Callable[[str | None, float], float]


def spread_over(equals: Sequence[Equal], spread: Spread, *, clock: Clock) -> Equals:
    """Returns the step of a route's order that asks these equals."""
    members = tuple(equals)

    def order(exchange: Exchange) -> list[Tier]:
        now, model = clock.now(), exchange.model
        parts = [member.left(member.model or model, now) for member in members]
        indices = spread.order(parts)
        tiers = [members[index].early for index in indices]
        able = sum(part > 0 for part in parts)
        if able:
            tiers[able - 1] = members[indices[able - 1]].able
        tiers[-1] = members[indices[-1]].last
        return tiers

    return Equals(tiers=tuple(member.last for member in members), order=order)
