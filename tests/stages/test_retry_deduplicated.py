"""A provider that knows keyed requests when they come again: asked with the same key, by the same account, or not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.stages.retry import DeduplicatedRetryStage, RetryStage
from tests.fakes import answered, with_attempt
from tests.scripted import ScriptedTerminal, Step
from tests.stages.retrying import SETTINGS, Loop
from tests.stages.world import failed, unanswered

LOST = OutcomeKind.DISCONNECTED
Call = Callable[[Exchange], Awaitable[Outcome]]


def lost() -> Outcome:
    return unanswered(LOST, maybe_executed=True)


class Writes(Loop):
    """A request that must not be executed twice."""

    def __init__(self, *script: Step, keys: str = "", key: str | None = "k", knows: bool = True) -> None:
        super().__init__(*script, keys=keys)
        self.stage = (DeduplicatedRetryStage if knows else RetryStage)(
            SETTINGS, budget=self.budget, breaker=self.breaker, ring=self.ring, longest_rest=30.0, clock=self.clock
        )
        self.exchange.repeatable = False
        self.exchange.idempotency_key = key

    async def over(self, call: Call) -> Outcome:
        """Runs it over these calls."""
        self.terminal = ScriptedTerminal(call)
        return await self.run()


def taking(*outcomes: Outcome, used: list[str | None]) -> Call:
    """Calls that take the first key that was not tried, as admission would, and end in these ways."""
    left = list(outcomes)

    async def call(exchange: Exchange) -> Outcome:
        tried = exchange.tried_keys or set()
        attempt = with_attempt(exchange)
        attempt.key_id = next((key for key in "abc" if key not in tried), "")
        exchange.tried_keys = {*tried, attempt.key_id}
        used.append(attempt.key_id)
        return left.pop(0)

    return call


async def test_what_it_may_have_executed_it_is_asked_for_again() -> None:
    writes = Writes(lost(), lost(), answered())
    assert (await writes.run()).kind is OutcomeKind.OK
    assert writes.calls == 3


@pytest.mark.parametrize(("key", "knows"), [(None, True), ("k", False)])
async def test_without_a_key_or_without_such_a_provider_it_is_not(key: str | None, knows: bool) -> None:
    writes = Writes(lost(), answered(), key=key, knows=knows)
    outcome = await writes.run()
    assert (outcome.kind, outcome.maybe_executed) == (LOST, True)
    assert writes.calls == 1


@pytest.mark.parametrize("then", [failed(503), failed(429), unanswered(OutcomeKind.UNREACHABLE)], ids=str)
async def test_a_later_failure_does_not_undo_it_nor_is_its_answer_told(then: Outcome) -> None:
    writes = Writes(lost(), then, then)
    outcome = await writes.run()
    assert (outcome.kind, outcome.maybe_executed, outcome.answer) == (then.kind, True, None)


async def test_what_may_be_executed_twice_is_told_by_its_last_answer() -> None:
    writes = Writes(lost(), failed(503))
    writes.exchange.repeatable = True
    outcome = await writes.run()
    assert outcome.answer is not None


async def test_the_account_that_may_have_executed_it_is_asked_again() -> None:
    used: list[str | None] = []
    writes = Writes(taking(failed(429), lost(), lost(), answered(), used=used), keys="a b c")
    assert (await writes.run()).kind is OutcomeKind.OK
    assert used == ["a", "b", "b", "b"]


async def test_what_may_be_executed_twice_goes_to_that_account_where_it_can() -> None:
    used: list[str | None] = []
    writes = Writes(taking(lost(), failed(503), answered(), used=used), keys="a b c")
    writes.exchange.repeatable = True
    assert (await writes.run()).kind is OutcomeKind.OK
    assert used[:2] == ["a", "a"]


async def test_no_other_account_is_asked_when_its_key_rests() -> None:
    used: list[str | None] = []
    writes = Writes(keys="a b c")
    ring, clock = writes.ring, writes.clock
    assert ring is not None
    first = ring.keys[0]
    calls = taking(lost(), failed(429), answered(), used=used)

    async def judged(exchange: Exchange) -> Outcome:
        outcome = await calls(exchange)
        ring.judge(first, outcome, clock.now(), used=first.credential)
        return outcome

    outcome = await writes.over(judged)
    assert (outcome.kind, outcome.maybe_executed, outcome.answer) == (OutcomeKind.RATE_LIMITED, True, None)
    assert used == ["a", "a"]
