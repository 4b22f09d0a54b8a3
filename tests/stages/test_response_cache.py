"""Response cache: what is given again, what is fetched anew, and what is kept."""

from __future__ import annotations

import pytest

from proxy.exchange import Usage
from proxy.observer import CacheUse
from proxy.outcome import Outcome, OutcomeKind
from tests.fakes import settle
from tests.stages.saving import BODY, Saved, body_of

NO_CACHE = (("content-type", "application/json"), ("cache-control", "no-cache"))


async def test_the_first_is_a_miss_and_the_second_a_hit_that_asks_nobody() -> None:
    saved = Saved()
    first, leader = await saved.ask()
    assert first.facts.cache is CacheUse.MISS
    saved.script.answer()
    assert (await leader).committed
    saved.clock.advance(3.0)
    second, hit = await saved.ask()
    assert (hit.result().kind, hit.result().committed) == (OutcomeKind.OK, True)
    assert (second.facts.cache, body_of(second), len(saved.script.works)) == (CacheUse.HIT, BODY, 1)
    assert second.reply.header(b"age") == b"3"  # type: ignore[attr-defined]
    assert (second.facts.tier, second.facts.provider, second.facts.attempts) == (1, "alpha", [])
    assert saved.at_rest


async def test_tokens_of_a_hit_are_saved_and_not_spent() -> None:
    saved = Saved()
    _, leader = await saved.ask()
    saved.script.work.facts.usage = Usage(input=7, output=5)
    saved.script.answer()
    await leader
    second, _ = await saved.ask()
    assert (second.facts.usage, second.facts.saved) == (None, Usage(input=7, output=5))


async def test_what_shares_nothing_passes_and_is_not_kept() -> None:
    saved = Saved()
    exchange, task = await saved.ask(b"")
    assert saved.script.work is exchange, "it went on as it came"
    saved.script.answer()
    await task
    assert (exchange.facts.cache, saved.shelf.kept, saved.counts.bypassed) == (None, {}, 1)


async def test_an_old_answer_is_given_at_once_and_one_call_of_the_lowest_class_fetches_a_new_one() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(15.0)
    for _ in range(3):
        exchange, task = await saved.ask()
        assert task.done()
        assert (exchange.facts.cache, body_of(exchange)) == (CacheUse.STALE, BODY)
    work = saved.script.work
    assert (work.facts.klass, work.facts.cache) == ("P2", CacheUse.REFRESH)
    assert work.deadline_at == saved.clock.now() + 100.0
    saved.script.answer(b'{"choices":[1]}')
    await settle()
    exchange, _ = await saved.ask()
    assert (exchange.facts.cache, body_of(exchange)) == (CacheUse.HIT, b'{"choices":[1]}')
    assert saved.at_rest


async def test_an_answer_that_is_too_old_is_a_miss() -> None:
    saved = Saved()
    await saved.kept()
    saved.clock.advance(30.0)
    exchange, task = await saved.ask()
    assert (exchange.facts.cache, task.done()) == (CacheUse.MISS, False)
    saved.script.answer()
    await task


async def test_who_asks_for_a_new_answer_gets_it_and_it_is_kept() -> None:
    saved = Saved()
    await saved.kept()
    exchange, task = await saved.ask(headers=NO_CACHE)
    assert exchange.facts.cache is CacheUse.MISS
    saved.script.answer(b'{"choices":[2]}')
    await task
    again, _ = await saved.ask()
    assert body_of(again) == b'{"choices":[2]}'


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(OutcomeKind.UPSTREAM_ERROR, status=503),
        Outcome(OutcomeKind.CALLER_ERROR, status=400, committed=True),
        Outcome(OutcomeKind.ERROR_IN_ANSWER, status=200, committed=True),
        Outcome(OutcomeKind.ANSWERED, status=200, committed=True),
    ],
    ids=lambda outcome: str(outcome.kind),
)
async def test_no_other_end_is_kept(outcome: Outcome) -> None:
    saved = Saved()
    _, task = await saved.ask()
    saved.script.begin(b"content-type: application/json\r\n", length=len(BODY))
    saved.script.write(BODY)
    saved.script.work.reply.finish()
    saved.script.end(outcome)
    await task
    assert saved.shelf.kept == {}
    assert saved.at_rest


async def test_a_later_tiers_answer_is_not_kept() -> None:
    saved = Saved()
    saved.script.tier = 2
    _, task = await saved.ask()
    saved.script.answer()
    assert (await task).committed
    assert saved.shelf.kept == {}


async def test_an_answer_that_is_cut_is_not_kept() -> None:
    saved = Saved()
    _, task = await saved.ask()
    saved.script.begin(b"content-type: application/json\r\n", length=None)
    saved.script.write(BODY)
    saved.script.work.reply.abort()
    saved.script.end(Outcome(OutcomeKind.STREAM_BROKEN, status=200, committed=True))
    await task
    assert saved.shelf.kept == {}
