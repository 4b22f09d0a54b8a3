"""compose: outermost first, around a terminal."""

from __future__ import annotations

from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stage import CallNext, compose
from tests.fakes import answered, make_exchange
from tests.scripted import ScriptedTerminal


class Marking:
    """Notes when it is entered and left."""

    def __init__(self, name: str, marks: list[str]) -> None:
        self._name = name
        self._marks = marks

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Outcome:
        self._marks.append(f"{self._name} begins")
        outcome = await call_next(exchange)
        self._marks.append(f"{self._name} ends")
        return outcome


async def test_the_first_stage_is_the_outermost() -> None:
    marks: list[str] = []
    terminal = ScriptedTerminal(answered())
    call = compose([Marking("outer", marks), Marking("inner", marks)], terminal)
    exchange = make_exchange()
    outcome = await call(exchange)
    assert outcome.status == 200
    assert marks == ["outer begins", "inner begins", "inner ends", "outer ends"]
    assert terminal.calls == [exchange]


async def test_no_stages_leave_the_terminal_alone() -> None:
    terminal = ScriptedTerminal(answered())
    exchange = make_exchange()
    await compose([], terminal)(exchange)
    assert terminal.calls == [exchange]
