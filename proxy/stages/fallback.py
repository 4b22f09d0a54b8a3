"""Fallback: asks a route's tiers in order; terminal of the route's stages.

Tiers before `Exchange.first_tier` are not asked, and keep no attempts. Of equals, each is asked as a tier of its own
would be, at once, in the order that holds at the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from proxy.clock import Clock
from proxy.decisions.fallback import better, moves_on
from proxy.decisions.retry import RetrySettings, attempts_in_all
from proxy.decisions.spread import soonest
from proxy.exchange import Exchange
from proxy.fields import Fields
from proxy.observer import FellBack, Refused
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.plan import Equals, Tier

STAINLESS = "x-stainless-retry-count"
ENVOY = "x-envoy-attempt-count"
"""Where callers say how often they have tried."""


class FallbackTiers:
    """Asks one tier after the other until one has answered, or none can."""

    __slots__ = ("_attempts", "_clock", "_later", "_numbers", "_plain", "_providers_from", "_retry", "_tiers")

    def __init__(self, tiers: Sequence[Tier | Equals], *, retry: RetrySettings, clock: Clock) -> None:
        self._tiers = tuple(tiers)
        self._retry = retry
        self._clock = clock
        everybody = tuple(_everybody(tiers))
        self._plain = everybody if not any(isinstance(step, Equals) for step in tiers) else None
        self._numbers = tuple(tier.number for tier in everybody)
        asks = [bool(tier.provider) for tier in everybody]
        self._providers_from = tuple(sum(asks[i:]) for i in range(len(asks)))
        self._attempts = attempts_in_all(retry, provider_tiers=sum(asks), caller_retries=0)
        self._later = tuple((len(asks) - i - 1, sum(asks[i + 1 :])) for i in range(len(asks)))

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Returns the outcome of the tier that answered, or the one to tell the caller of."""
        before = 0
        asked: Iterable[Tier] | None = self._plain
        if asked is None or exchange.first_tier > 1:
            before, asked = self._before(exchange.first_tier), self._in_order(exchange)
        exchange.attempts_left = self._attempts_for(exchange.request.fields, before)
        best: Outcome | None = None
        spent = False
        said_by = (0, "", "")
        for index, tier in enumerate(asked, before):
            exchange.later_tiers, exchange.attempts_kept = self._later[index]
            exchange.facts.tier, exchange.facts.provider = tier.number, tier.provider
            outcome = await tier(exchange)
            if outcome.kind is OutcomeKind.OK and not spent and best is None:
                return outcome
            spent = outcome.retries_spent = spent or outcome.retries_spent
            if not self._next_tier(exchange, tier, outcome):
                if best is None or not _only_late(outcome) or better(best, outcome) is outcome:
                    return outcome
                break
            self._note(exchange, index, tier, outcome)
            if (told := better(best, outcome)) is not best:
                best, said_by = told, self._stand(exchange)
            elif tier.number == said_by[0]:
                soonest(told, outcome)
        assert best is not None
        best.retries_spent = spent
        exchange.facts.tier, exchange.facts.provider, exchange.facts.model = said_by
        return best

    def _in_order(self, exchange: Exchange) -> Iterator[Tier]:
        """Yields whom to ask; the order of equals is that of the moment in which it is their turn."""
        for step in self._tiers:
            if isinstance(step, Equals):
                if step.tiers[0].number >= exchange.first_tier:
                    yield from step.order(exchange)
            elif step.number >= exchange.first_tier:
                yield step

    def _before(self, first_tier: int) -> int:
        """Returns how many are not asked because the request begins later."""
        return sum(number < first_tier for number in self._numbers)

    def _attempts_for(self, fields: Fields, before: int) -> int:
        if not before and STAINLESS not in fields.shape.first and ENVOY not in fields.shape.first:
            return self._attempts
        stainless, envoy = fields.get(STAINLESS), fields.get(ENVOY)
        retries = _caller_retries(stainless, envoy)
        return attempts_in_all(self._retry, provider_tiers=self._providers_from[before], caller_retries=retries)

    @staticmethod
    def _stand(exchange: Exchange) -> tuple[int, str, str]:
        """Which tier is asked; an answer that is relayed later is still that tier's."""
        facts = exchange.facts
        return facts.tier, facts.provider, facts.model

    def _next_tier(self, exchange: Exchange, tier: Tier, outcome: Outcome) -> bool:
        if outcome.maybe_executed and not exchange.repeatable and outcome.answer is None:
            outcome.reason = Reason.MAYBE_EXECUTED
        return moves_on(
            outcome,
            own_key=tier.own_key,
            repeatable=exchange.repeatable,
            resendable=exchange.resendable or _unsent(exchange),
        )

    def _note(self, exchange: Exchange, index: int, tier: Tier, outcome: Outcome) -> None:
        now = self._clock.now()
        if outcome.local and outcome.reason is not None:
            exchange.note(now, Refused(provider=tier.provider, tier=tier.number, reason=outcome.reason))
        following = self._numbers[index + 1] if index + 1 < len(self._numbers) else tier.number
        if following != tier.number:
            exchange.note(
                now,
                FellBack(from_tier=tier.number, to_tier=following, after=outcome.kind, reason=outcome.reason),
            )


def _everybody(steps: Sequence[Tier | Equals]) -> Iterator[Tier]:
    for step in steps:
        if isinstance(step, Equals):
            yield from step.tiers
        else:
            yield step


def _unsent(exchange: Exchange) -> bool:
    """Whether nothing of the request has reached a wire: then even a body that was not kept is still whole."""
    return not (exchange.request.upload_taken or any(attempt.sent_bytes for attempt in exchange.facts.attempts))


def _only_late(outcome: Outcome) -> bool:
    """Whether time ran out before this tier could say anything: what an earlier one said tells the caller more."""
    late = outcome.kind is OutcomeKind.TOTAL_TIMEOUT and not outcome.committed
    return late and outcome.reason is not Reason.MAYBE_EXECUTED


def _caller_retries(stainless: str | None, envoy: str | None) -> int:
    """Returns how often the caller itself has tried already: Envoy counts its first attempt, the SDKs do not."""
    return max(_number(stainless), _number(envoy) - 1, 0)


def _number(text: str | None) -> int:
    return int(text[:4]) if text is not None and text.isascii() and text.isdigit() else 0
