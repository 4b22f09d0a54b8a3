"""The soak in its short form; and that it would see what must not happen."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from tests.soak.hands import Way
from tests.soak.plan import Plan
from tests.soak.policies import BURST, RATE
from tests.soak.promises import GRACE_SECONDS, Book, Promise
from tests.soak.provider import BUNCHED, Asked, Rules, Server
from tests.soak.report import print_report
from tests.soak.run import Result, run
from tests.soak.traffic import Callers
from tests.soak.visits import KINDS

RELOADS = 8
SHORT = Plan(seconds=0.0, reloads=RELOADS, rate=40.0, agents=0, direct=0)


@pytest.mark.timeout(180)
async def test_reloads_faults_and_callers_of_every_kind_break_no_promise() -> None:
    result = await run(SHORT)
    assert result.book.examples == {}
    assert {*Way, "invalid", "another secret"} <= set(result.made)
    assert result.revision > RELOADS
    assert min(result.answers.values()) > 0
    assert result.book.reached["steady"] > 0, "the share was never used"
    assert {kind for kind, _ in result.came} == {kind.name for kind in KINDS}
    assert "kept" in reported(result)


def reported(result: Result) -> str:
    console = Console(width=130, file=StringIO())
    print_report(console, SHORT, result)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def book(**limits: int) -> Book:
    book = Book(iter([0.0] * 4 + [GRACE_SECONDS + 1.0] * 100).__next__)
    book.expect(limits)
    return book


def test_one_call_more_than_is_allowed_is_a_breach() -> None:
    seen = book(alpha=2)
    for _ in range(2):
        seen.taken(["alpha", "other"])
    assert (seen.breaches, seen.reached) == ({}, {"alpha": 1})
    seen.taken(["alpha"])
    assert seen.breaches == {Promise.LIMITS: 1}
    seen.given(["alpha"])
    seen.given(["alpha"])
    seen.taken(["alpha"])
    assert seen.breaches == {Promise.LIMITS: 1}


def test_during_a_change_the_higher_limit_holds_and_then_the_new_one() -> None:
    seen = book(alpha=2)
    seen.expect({"alpha": 1})
    seen.live({"alpha": 1})
    seen.taken(["alpha"])
    seen.given(["alpha"])
    seen.taken(["alpha"])
    assert seen.breaches == {}
    seen.taken(["alpha"])
    assert seen.breaches == {Promise.LIMITS: 1}


def asked(model: str, key: str = "", **fields: str) -> Asked:
    return Asked(fields={"authorization": f"Bearer {key}", **fields}, document={"model": model})


def test_who_comes_though_it_must_not_is_a_breach() -> None:
    rules = Rules(book())
    for key in ("good-17", "resting", "parked"):
        rules.keyed(asked("keyed", key))
    rules.broken(asked("broken"))
    assert rules.book.breaches == {}
    rules.closed = True
    rules.keyed(asked("keyed", "good-17"))
    assert rules.book.breaches == {}
    rules.broken(asked("broken"))
    rules.keyed(asked("keyed", "resting"))
    assert rules.book.breaches == {Promise.BREAKER: 1, Promise.KEYS: 1}


def test_who_comes_beyond_the_rate_is_a_breach() -> None:
    now = [100.0]
    seen = Book(lambda: now[0])
    rules = Rules(seen)
    for _ in range(int(BURST + BUNCHED)):
        rules.metered(asked("metered"))
    now[0] += 2 / RATE
    for _ in range(2):
        rules.metered(asked("metered"))
    assert seen.breaches == {}
    rules.metered(asked("metered"))
    assert seen.breaches == {Promise.QUOTAS: 1}


def test_who_is_served_before_its_turn_is_a_breach() -> None:
    rules = Rules(book())
    for turn in ("-1", "0", "2", "-1", "3"):
        rules.narrow(asked("narrow", **{"x-turn": turn}))
    assert rules.book.breaches == {}
    rules.narrow(asked("narrow", **{"x-turn": "1"}))
    assert rules.book.breaches == {Promise.QUEUE: 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_is_not_good_is_a_breach(stream: bool) -> None:
    seen = book()
    servers = [Server("good", seen), Server("bad", seen, judge=lambda asked: (503, {}))]
    for server in servers:
        await server.start()
        callers = Callers(server.ports[0], seen)
        await callers.ask("m", stream=stream)
        await callers.close()
        await server.stop()
    assert seen.breaches == {Promise.NO_FAILURE: 1}
