"""The soak in its short form; and that it would see what must not happen."""

from __future__ import annotations

import random
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from proxy.decisions.shares import share_of
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes, read_policy
from tests.soak.changes import Size, after, first, last
from tests.soak.hands import FILE, Hands, Way
from tests.soak.plan import Plan
from tests.soak.policies import BURST, GUESTS, PROVIDERS, RATE, Around, Wanted, text
from tests.soak.promises import GRACE_SECONDS, Book, Promise
from tests.soak.provider import BUNCHED, Asked, Rules, Server
from tests.soak.report import print_report
from tests.soak.run import Result, run
from tests.soak.spoiled import spoiled
from tests.soak.traffic import Callers
from tests.soak.visits import KINDS

RELOADS = 8
SHORT = Plan(seconds=0.0, reloads=RELOADS, rate=40.0, agents=0, direct=0)
AROUND = Around(ports=dict.fromkeys((*PROVIDERS, *GUESTS), (9000, 9001)), secrets=Path("/secrets"))
SIZE = Size.of(200.0)


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


# What is written.


def read(content: bytes) -> PolicySnapshot:
    return load_policy(PolicyBytes(files=((FILE, content),)))


def walk(seed: int, steps: int) -> Wanted:
    draw, wanted = random.Random(seed), first(SIZE)
    for _ in range(steps):
        wanted = after(wanted, SIZE, draw)
    return wanted


def places(snapshot: PolicySnapshot, wanted: Wanted) -> dict[str, int]:
    """The shares that a snapshot sets, by the soak's scopes."""
    fleet = snapshot.fleet
    rated = [provider for provider in snapshot.providers if provider.rpm is not None]
    assert [(one.rpm or 0) * one.quota.headroom / fleet.size for one in rated] == pytest.approx(
        [RATE * 60] * len(rated)
    )
    found = {"all": share_of(snapshot.concurrency or 0, fleet, key="")}
    assert {*GUESTS} <= {provider.name for provider in snapshot.providers}
    for provider in snapshot.providers:
        if provider.name in GUESTS:
            continue
        name = next(one for one in PROVIDERS if wanted.name(one) == provider.name)
        if provider.concurrency is not None:
            found[name] = share_of(provider.concurrency, fleet, key=provider.name)
        for model in provider.models:
            found[f"{name} {model.name}"] = share_of(model.concurrency or 0, fleet, key=model.name)
        for key in provider.keys:
            if key.concurrency is not None:
                found[f"{name} key {key.id.removesuffix('-b')}"] = share_of(key.concurrency, fleet, key=key.id)
    return found


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), steps=st.integers(0, 5), over=st.booleans())
def test_every_policy_is_good_and_sets_the_limits_that_the_soak_goes_by(seed: int, steps: int, over: bool) -> None:
    wanted = walk(seed, steps)
    wanted = last(wanted, SIZE) if over else wanted
    found = places(read(text(wanted, AROUND).encode()), wanted)
    assert wanted.limits().items() <= {**wanted.limits(), **found}.items()
    assert wanted.absent or wanted.limits().keys() <= found.keys()


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_no_spoiled_policy_is_good(seed: int) -> None:
    content = spoiled(walk(seed, 2), AROUND, random.Random(seed))
    if b"/secrets/none" not in content:
        with pytest.raises(PolicyError):
            read(content)


def test_half_a_policy_can_be_a_valid_one() -> None:
    content = text(first(SIZE), AROUND).encode()
    assert read(content[: content.index(b"routes:")]).routes is None


def look(place: Path, seen: list[PolicyBytes]) -> None:
    seen.append(read_policy(place))


async def test_every_way_puts_the_whole_policy_in_place(tmp_path: Path) -> None:
    hands = Hands(tmp_path)
    for number in range(3):
        for put in (hands.rename, hands.write, hands.swap, hands.swap, hands.write, hands.swap, hands.rename):
            content = f"{number} {put.__name__}".encode()
            put(content)
            assert read_policy(tmp_path).files == ((FILE, content),)
        halves: list[PolicyBytes] = []
        await hands.tear(b"head-tail", 5, 0.0, partial(look, tmp_path, halves))
        assert [half.files for half in halves] == [((FILE, b"head-"),)]
        assert read_policy(tmp_path).files == ((FILE, b"head-tail"),)
        hands.vanish()
        assert [entry.name for entry in tmp_path.iterdir()] == []


# What is seen.


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
