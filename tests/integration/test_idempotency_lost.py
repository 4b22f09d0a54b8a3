"""What may have been executed is never executed again, unless its provider would know: keys and lost answers."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.integration.harness import Lab, route
from tests.integration.keyed import OWN, SECRETS, conflict, key, leaves
from tests.integration.messages import answers, closes, event, hangs, in_turn, says, when
from tests.integration.scripted import Exchange

POLICY = {
    "version": 1,
    "providers": {
        "alpha": OWN,
        "known": {**OWN, "idempotency_header": "X-Once"},
        "other": OWN,
        "slow": {**OWN, "timeouts": {"answer": "300ms"}},
        "accounts": {
            "keys": [{"id": name, "env": "ALPHA_KEY", "concurrency": 1} for name in ("one", "two")],
            "idempotency_header": "X-Once",
            "auth": {"header": "x-account"},
            "breaker": "off",
        },
    },
    "routes": [
        route("again", "alpha", retry={"attempts": 1}),
        route("write", "alpha", repeatable=False, retry={"attempts": 3, "base": "10ms"}),
        route("tiers", "alpha", "other", repeatable=False, retry={"attempts": 2, "base": "10ms"}),
        route("known", "known", repeatable=False, retry={"attempts": 3, "base": "10ms"}),
        route("known-first", "known", "other", repeatable=False, retry={"attempts": 1}),
        route("slow", "slow", repeatable=False),
        route("accounts", "accounts", repeatable=False, retry={"attempts": 2, "base": "1s"}),
        route("accounts-again", "accounts", retry={"attempts": 2, "base": "10ms"}),
    ],
}
ENV = SECRETS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]


async def test_the_last_who_leaves_ends_the_call_and_its_key_meets_a_conflict(lab: Lab) -> None:
    lab["alpha"].script = hangs
    await leaves(lab, "write", "left")
    await lab["alpha"].was_left()
    lab["alpha"].script = says("hi")
    assert "may have been executed" in conflict(await lab.chat("write", headers=key("left")))
    assert len(lab["alpha"].seen) == 1


async def test_what_may_be_executed_twice_is_asked_again_after_its_caller_has_left(lab: Lab) -> None:
    lab["alpha"].script = in_turn(hangs, says("hi"))
    await leaves(lab, "again", "retry")
    assert (await lab.chat("again", headers=key("retry"))).status == 200
    assert len(lab["alpha"].seen) == 2


async def test_an_answer_that_was_lost_is_told_honestly_and_never_executed_again(lab: Lab) -> None:
    lab["alpha"].script = closes
    for model in ("write", "tiers"):
        lab["alpha"].forget()
        answer = await lab.chat(model, headers=key("lost"))
        assert (answer.status, answer.reason) == (504, "maybe_executed")
        assert answer.header("x-should-retry") == "false"
        assert "may have been executed" in conflict(await lab.chat(model, headers=key("lost")))
        assert len(lab["alpha"].seen) == 1
    assert not lab["other"].seen


async def test_where_surely_nothing_was_executed_the_key_is_free_again(lab: Lab) -> None:
    lab["alpha"].script = in_turn(answers(400), answers(422), says("hi"))
    found = [await lab.chat("write", headers=key("free")) for _ in range(4)]
    assert [answer.status for answer in found] == [400, 422, 200, 200]
    assert len(lab["alpha"].seen) == 3


async def test_a_provider_that_knows_keys_is_asked_again_with_the_same_one(lab: Lab) -> None:
    lab["known"].script = in_turn(closes, closes, says("hi"))
    answer = await lab.chat("known", headers=key("k-1"))
    assert (answer.status, answer.attempts) == (200, 3)
    assert [request.all("x-once") for request in lab["known"].seen] == [[b"k-1"]] * 3
    assert [request.all("idempotency-key") for request in lab["known"].seen] == [[b"k-1"]] * 3


async def test_without_a_key_it_is_not_asked_again(lab: Lab) -> None:
    lab["known"].script = closes
    answer = await lab.chat("known")
    assert (answer.status, answer.reason) == (504, "maybe_executed")
    assert lab["known"].only.header("x-once") is None


async def test_one_provider_that_knows_keys_may_be_asked_by_a_caller_who_comes_again(lab: Lab) -> None:
    lab["known"].script = hangs
    await leaves(lab, "known", "k-2")
    lab["known"].script = says("hi")
    assert (await lab.chat("known", headers=key("k-2"))).status == 200


async def test_what_one_provider_may_have_executed_no_other_one_is_asked(lab: Lab) -> None:
    lab["known"].script = closes
    answer = await lab.chat("known-first", headers=key("k-3"))
    assert (answer.status, answer.reason) == (504, "maybe_executed")
    assert "may have been executed" in conflict(await lab.chat("known-first", headers=key("k-3")))
    assert not lab["other"].seen


async def test_a_last_failure_does_not_hide_that_it_may_have_been_executed(lab: Lab) -> None:
    lab["known"].script = in_turn(closes, answers(503), answers(429), says("hi"))
    answer = await lab.chat("known", headers=key("k-4"))
    assert (answer.status, answer.reason) == (504, "maybe_executed")


async def test_every_caller_of_a_call_that_ran_out_of_time_is_told(lab: Lab) -> None:
    lab["slow"].script = hangs
    told = await asyncio.gather(*(lab.chat("slow", headers=key("late")) for _ in range(3)))
    assert {(answer.status, answer.reason) for answer in told} == {(504, "maybe_executed")}
    assert len(lab["slow"].seen) == 1


async def test_a_stream_that_breaks_is_shown_as_a_break_and_not_given_again(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("half"))
        await asyncio.sleep(0.1)
        exchange.close()

    lab["alpha"].script = script
    told = await asyncio.gather(*(lab.chat("write", stream=True, headers=key("break")) for _ in range(2)))
    for answer in told:
        assert answer.body.startswith(event("half"))
        assert b'"error"' in answer.body
        assert not answer.complete
    assert "may have been executed" in conflict(await lab.chat("write", stream=True, headers=key("break")))
    assert len(lab["alpha"].seen) == 1


async def test_an_answer_too_large_to_keep_is_not_executed_again(lab: Lab) -> None:
    lab["alpha"].script = answers(200, {"text": "x" * (5 << 20)})
    answer = await lab.chat("write", headers=key("write"))
    assert (answer.status, len(answer.body)) == (200, len(json.dumps({"text": ""})) + (5 << 20))
    assert "too large" in conflict(await lab.chat("write", headers=key("write")))
    assert len(lab["alpha"].seen) == 1


async def test_an_account_that_is_full_by_the_time_of_the_retry_is_no_reason_to_ask_another_one(lab: Lab) -> None:
    lose, answer_others = asyncio.Event(), asyncio.Event()
    late = when(answer_others, says("hi"))
    lab["accounts"].script = in_turn(when(lose, closes), late, late, says("twice"))
    lost = asyncio.ensure_future(lab.chat("accounts", headers=key("full")))
    await lab.proxy.until(lambda status: status["permits_out"] == 1)
    others = [asyncio.ensure_future(lab.chat("accounts")) for _ in range(2)]
    await lab.proxy.until(lambda status: sum(row["waiting"] for row in status["queues"]) == 1)
    # Who waits is given the account that the lost call had, before that is tried again.
    lose.set()
    answer = await lost
    assert (answer.status, answer.reason) == (504, "maybe_executed")
    answer_others.set()
    assert [(await other).status for other in others] == [200, 200]
    assert sum(request.header("x-once") is not None for request in lab["accounts"].seen) == 1


async def test_what_may_be_executed_twice_is_sent_again_to_the_account_that_knows_it(lab: Lab) -> None:
    for number in range(4):
        lab["accounts"].script = in_turn(closes, says("hi"))
        answer = await lab.chat("accounts-again", headers=key(f"known-{number}", ("x-sponson-trail", "1")))
        trail = ",".join(answer.all("x-sponson-trail")).split(",")
        first, second = (dict(part.split("=") for part in attempt.strip().split(";")) for attempt in trail)
        assert (answer.status, first["reason"], second["reason"]) == (200, "disconnected", "ok")
        assert first["key"] == second["key"]
