"""Idempotency: which call a keyed request joins, is answered by, or is refused for; and what its end leaves behind."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.answers import Answers
from proxy.decisions.idempotency import Conflict, IdempotencySettings
from proxy.exchange import Exchange
from proxy.observer import Shared, Sharing
from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from proxy.stages.idempotency import IdempotencyStage, KeyedCalls, KeyScope
from proxy.stages.recording import LARGEST_KEPT, Recording
from proxy.stages.shared_call import SharedCall
from tests.fakes import Ask, FakeClock, FakeReply, FakeUpload, make_exchange, settle
from tests.freed import uncollected
from tests.scripted import ScriptedTerminal
from tests.stages.shared import Script, failed_silently
from tests.stages.world import failed

DEFAULT = IdempotencySettings()
PARTS = IdempotencySettings(headers=("x-agent-id", "x-operation"), all_required=True)


class Keys:
    """The stage of one route over a script; `route` makes those of others, which know of the same calls."""

    def __init__(self, settings: IdempotencySettings = DEFAULT, *, deduplicates: bool = False) -> None:
        self.clock = FakeClock()
        self.calls, self.answers = KeyedCalls(), Answers()
        self.script = Script()
        self.stage = self.route(settings, KeyScope(route=b"r", deduplicates=deduplicates))

    def route(self, settings: IdempotencySettings = DEFAULT, scope: KeyScope | None = None) -> IdempotencyStage:
        """A route's stage."""
        scope = scope or KeyScope(route=b"other")
        return IdempotencyStage(settings, scope, calls=self.calls, answers=self.answers, clock=self.clock)

    def ask(
        self, *headers: tuple[str, str], repeatable: bool = False, stage: IdempotencyStage | None = None, **rest: object
    ) -> tuple[Exchange, asyncio.Future[Outcome]]:
        """Somebody comes."""
        exchange = make_exchange(Ask(headers=headers, **rest), now=self.clock.now())  # type: ignore[arg-type]
        exchange.repeatable = repeatable
        return exchange, asyncio.ensure_future((stage or self.stage)(exchange, self.script))

    async def ends(self, outcome: Outcome, *, repeatable: bool = False) -> None:
        """A keyed request runs, and ends in this way."""
        _, task = self.ask(("idempotency-key", "k"), repeatable=repeatable)
        await settle()
        self.script.end(outcome)
        await task
        self.script.works.clear()

    def again(self, key: str = "k") -> asyncio.Future[Outcome]:
        """The same request comes once more."""
        return self.ask(("idempotency-key", key))[1]


def detail_of(task: asyncio.Future[Outcome]) -> str:
    outcome = task.result()
    assert outcome.reason is Reason.IDEMPOTENCY_CONFLICT
    return outcome.detail


KEY = ("idempotency-key", "k")


async def test_without_a_key_the_call_itself_is_returned() -> None:
    keys = Keys()
    exchange, rest = make_exchange(Ask(headers=(("x-other", "1"),))), ScriptedTerminal()(make_exchange())
    assert keys.stage(exchange, lambda _: rest) is rest
    await rest
    assert exchange.idempotency_key is None
    assert keys.calls.flights == {}


async def test_a_running_one_is_joined_and_an_ended_one_is_given_again() -> None:
    keys = Keys()
    (first, leader), (second, follower) = keys.ask(KEY), keys.ask(KEY)
    await settle()
    assert keys.script.work.idempotency_key == "k"
    keys.script.answer(b"hi")
    await settle()
    third, late = keys.ask(KEY)
    await settle()
    for exchange, task in ((first, leader), (second, follower), (third, late)):
        assert task.result().committed
        assert isinstance(exchange.reply, FakeReply)
        assert (exchange.reply.status, exchange.reply.body) == (200, b"hi")
        assert (exchange.facts.provider, exchange.facts.tier, exchange.facts.model) == ("alpha", 2, "m1")
    noted = [[event for _, event in exchange.facts.events] for exchange in (first, second, third)]
    assert noted == [[], [Shared(how=Sharing.JOINED)], [Shared(how=Sharing.REPLAYED)]]
    assert len(keys.script.works) == 1
    assert (keys.calls.joined, keys.calls.replayed) == (1, 1)
    assert keys.calls.flights == {}


@pytest.mark.parametrize("ended", [False, True])
async def test_another_request_is_a_conflict(ended: bool) -> None:
    keys = Keys()
    keys.ask(KEY)
    await settle()
    if ended:
        keys.script.answer()
        await settle()
    for rest in ({"body": b"{}"}, {"method": "PUT"}, {"target": "/v1/chat/completions?a=1"}):
        _, task = keys.ask(KEY, **rest)
        await settle()
        assert detail_of(task) == Conflict.OTHER_REQUEST
    assert keys.calls.conflicts == 3


async def test_keys_of_other_routes_tenants_and_credentials_are_others() -> None:
    keys = Keys()
    own = keys.route(scope=KeyScope(route=b"own", credentials=("authorization",)))
    keys.ask(KEY)
    keys.ask(KEY, stage=keys.route())
    keys.ask(KEY, ("authorization", "one"), stage=own)
    keys.ask(KEY, ("authorization", "two"), stage=own)
    other = make_exchange(Ask(headers=(KEY,)))
    other.facts.tenant = "other"
    task = asyncio.ensure_future(keys.stage(other, keys.script))
    await settle()
    assert not task.done()
    assert len(keys.script.works) == len(keys.calls.flights) == 5


async def test_a_credential_that_goes_no_further_makes_no_difference() -> None:
    keys = Keys()
    keys.ask(KEY, ("authorization", "one"))
    keys.ask(KEY, ("authorization", "two"))
    await settle()
    assert len(keys.script.works) == 1


@pytest.mark.parametrize(
    "outcome",
    [
        failed(400),
        failed(429),
        failed(503),
        refused(Reason.QUEUE_FULL),
        Outcome(OutcomeKind.UNREACHABLE),
        Outcome(OutcomeKind.ANSWERED, status=200, committed=True),
    ],
    ids=str,
)
async def test_where_nothing_was_executed_it_is_asked_again(outcome: Outcome) -> None:
    keys = Keys()
    await keys.ends(outcome)
    keys.again()
    await settle()
    assert len(keys.script.works) == 1
    assert keys.answers.statistics().names == 0


async def test_what_may_have_been_executed_is_never_asked_again() -> None:
    keys = Keys()
    await keys.ends(failed_silently())
    task = keys.again()
    await settle()
    assert detail_of(task) == Conflict.UNKNOWN
    assert keys.script.works == []


@pytest.mark.parametrize(("repeatable", "deduplicates"), [(True, False), (False, True)])
async def test_unless_it_may_be_executed_twice_or_its_only_provider_knows(repeatable: bool, deduplicates: bool) -> None:
    keys = Keys(deduplicates=deduplicates)
    await keys.ends(failed_silently(), repeatable=repeatable)
    keys.again()
    await settle()
    assert len(keys.script.works) == 1


@pytest.mark.parametrize(("sent", "again"), [(0, 1), (10, 0)])
async def test_who_leaves_frees_a_key_only_while_nothing_was_sent(sent: int, again: int) -> None:
    keys = Keys()
    _, task = keys.ask(KEY)
    await settle()
    keys.script.work.facts.attempts[0].sent_bytes = sent
    task.cancel()
    await settle()
    keys.script.works.clear()
    repeated = keys.again()
    await settle()
    assert len(keys.script.works) == again
    assert repeated.done() is not bool(again)


async def test_an_answer_too_large_to_keep_is_not_asked_again_while_it_runs_nor_later() -> None:
    keys = Keys()
    keys.ask(KEY)
    await settle()
    keys.script.begin(b"")
    keys.script.write(b"x" * (LARGEST_KEPT + 1))
    running = keys.again()
    await settle()
    assert detail_of(running) == Conflict.TOO_LARGE
    keys.script.finish()
    await settle()
    ended = keys.again()
    await settle()
    assert detail_of(ended) == Conflict.TOO_LARGE


async def test_an_answer_that_gave_way_is_not_asked_again() -> None:
    keys = Keys()
    keys.answers = Answers(most_bytes=200)
    keys.stage = keys.route()
    for key in ("k", "l"):
        _, task = keys.ask(("idempotency-key", key))
        await settle()
        keys.script.answer(b"x" * 110)
        await task
        keys.script.works.clear()
    again = keys.again()
    await settle()
    assert detail_of(again) == Conflict.DROPPED


async def test_a_key_is_forgotten_after_its_time() -> None:
    keys = Keys(IdempotencySettings(keep=10.0))
    keys.ask(KEY)
    await settle()
    keys.script.answer()
    await settle()
    keys.script.works.clear()
    keys.clock.advance(9.0)
    assert (await keys.again()).kind is OutcomeKind.OK
    keys.clock.advance(1.0)
    keys.again()
    await settle()
    assert len(keys.script.works) == 1


async def test_bodies_that_are_passed_on_unread_are_never_the_same() -> None:
    keys = Keys()
    _, running = keys.ask(KEY, upload=FakeUpload([b"x"]))
    await settle()
    _, second = keys.ask(KEY, upload=FakeUpload([b"x"]))
    await settle()
    assert detail_of(second) == Conflict.UNREAD
    keys.script.answer()
    await running
    third = keys.again()
    await settle()
    assert detail_of(third) == Conflict.UNREAD


async def test_a_key_of_parts_needs_them_all_from_everybody() -> None:
    keys = Keys(PARTS)
    for headers, missing in [((), "x-agent-id, x-operation"), ((("x-agent-id", "a"),), "x-operation")]:
        _, task = keys.ask(*headers)
        await settle()
        outcome = task.result()
        assert (outcome.reason, f"missing: {missing}" in outcome.detail) == (Reason.BAD_REQUEST, True)
    exchange, _ = keys.ask(("x-operation", "1/2"), ("x-agent-id", "a"))
    await settle()
    assert exchange.idempotency_key == "a:1%2F2"
    assert len(keys.script.works) == 1


async def test_what_is_kept_outlives_the_stage_that_kept_it() -> None:
    keys = Keys()
    keys.ask(KEY)
    await settle()
    reloaded = keys.route(scope=KeyScope(route=b"r"))
    _, joined = keys.ask(KEY, stage=reloaded)
    await settle()
    keys.script.answer()
    assert (await joined).kind is OutcomeKind.OK
    _, again = keys.ask(KEY, stage=reloaded)
    assert (await again).kind is OutcomeKind.OK
    assert len(keys.script.works) == 1
    assert keys.answers.statistics().answers == 1


@pytest.mark.parametrize("how", ["answered", "lost", "left"])
async def test_a_call_that_has_ended_is_freed_by_its_last_reference(how: str) -> None:
    with uncollected(SharedCall, Recording, Exchange) as remaining:
        keys = Keys()
        tasks = [keys.ask(KEY)[1], keys.ask(KEY)[1]]
        await settle()
        match how:
            case "answered":
                keys.script.answer()
            case "lost":
                keys.script.end(failed_silently())
            case _:
                while tasks:
                    tasks.pop().cancel()
        await settle()
        tasks.clear()
        keys.script.works.clear()
        assert remaining() == 0
