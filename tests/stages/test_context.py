"""Context: what is too long for a model is not sent to it."""

from __future__ import annotations

import orjson
import pytest

from proxy.decisions.estimates import Estimates
from proxy.decisions.observing import Tally
from proxy.dialects.lookup import dialect_named, operation_of
from proxy.exchange import Exchange
from proxy.observer import Observed, Would
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.stages.context import ContextStage, ObservingContextStage
from tests.fakes import Ask, FakeClock, FakeUpload, make_exchange
from tests.scripted import ScriptedTerminal


def understood(words: int) -> Exchange:
    """A chat of so many words of four letters and a space, which classification has read."""
    body = orjson.dumps({"model": "m1", "messages": [{"role": "user", "content": "word " * words}]})
    exchange = make_exchange(Ask(body=body))
    exchange.document = orjson.loads(body)
    exchange.dialect, exchange.operation = dialect_named("openai"), operation_of("/v1/chat/completions")
    return exchange


@pytest.mark.parametrize(("words", "calls"), [(10, 1), (700, 1), (900, 0)])
async def test_a_prompt_above_the_limit_is_refused_before_anything_is_asked(words: int, calls: int) -> None:
    below = ScriptedTerminal()
    outcome = await ContextStage(1000, model="m1", estimates=Estimates())(understood(words), below)
    assert len(below.calls) == calls
    assert (outcome.reason is Reason.CONTEXT_TOO_LONG) == (not calls)
    if not calls:
        assert outcome.local
        assert "m1" in outcome.detail
        assert "1000" in outcome.detail


async def test_a_body_that_nobody_understands_passes() -> None:
    for ask in (Ask(body=b"x" * 100_000), Ask(upload=FakeUpload([b"x"]))):
        below = ScriptedTerminal()
        outcome = await ContextStage(1, model="m1", estimates=Estimates())(make_exchange(ask), below)
        assert (outcome.kind, len(below.calls)) == (OutcomeKind.OK, 1)


async def test_observed_it_passes_and_is_counted() -> None:
    tally, exchange = Tally(), understood(900)
    exchange.facts.provider, exchange.facts.tier = "alpha", 2
    stage = ObservingContextStage(1000, model="m1", estimates=Estimates(), tally=tally, clock=FakeClock())
    outcomes: list[Outcome] = [
        await stage(exchange, ScriptedTerminal()),
        await stage(understood(1), ScriptedTerminal()),
    ]
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.OK] * 2
    assert tally.counts[Would.CONTEXT_TOO_LONG] == 1
    assert [event for _, event in exchange.facts.events] == [
        Observed(provider="alpha", tier=2, would=Would.CONTEXT_TOO_LONG)
    ]
