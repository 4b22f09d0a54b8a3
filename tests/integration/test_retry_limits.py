"""What bounds retries beside their number: tiers, breakers, queues, what may have been executed, what is in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import HOST, Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, babbles, event, hangs, in_turn, resets, says
from tests.integration.scripted import Exchange, Script
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

JSON = [("content-type", "application/json")]
QUICK = {"attempts": 3, "base": "1ms"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off"},
        "beta": {"breaker": "off"},
        "gamma": {"breaker": "off"},
        "gone": {"breaker": "off", "base_url": f"http://{HOST}:{free_port()}/v1"},
        "fragile": {"breaker": {"consecutive": 1}},
        "single": {"breaker": "off", "limits": {"concurrency": 1}, "timeouts": {"queue": "10s"}},
        "keyed": {"breaker": "off", "keys": [{"id": name, "env": f"KEY_{name.upper()}"} for name in "abcde"]},
        "revoked": {"breaker": "off", "keys": [{"id": name, "env": f"KEY_{name.upper()}"} for name in "ab"]},
        "sole": {"breaker": "off", "keys": [{"id": "a", "env": "KEY_A"}]},
    },
    "routes": [
        route("three", "alpha", "beta", "gamma", retry=QUICK),
        route("then-gone", "alpha", "gone", retry=QUICK),
        route("once-each", "alpha", "beta", retry={"attempts": 1}),
        route("fragile", "fragile", retry=QUICK),
        route("single", "single", retry={"attempts": 2, "base": "1500ms"}),
        route("careful", "alpha", repeatable=False, retry=QUICK),
        route("careful-gone", "gone", repeatable=False, retry=QUICK),
        route("small", "alpha", "beta", match={"model": "small"}, body={"replay": "1KiB"}, retry=QUICK),
        route("small-gone", "gone", "beta", body={"replay": "1KiB"}, retry=QUICK),
        route("keyed", "keyed", retry={"attempts": 1}),
        route("sole", "sole", retry={"attempts": 3, "base": "10s", "cap": "10s"}),
    ],
}
ENV = {f"KEY_{name.upper()}": f"sk-{name}" for name in "abcde"}


def seen(lab: Lab, *names: str) -> list[int]:
    """Returns how many requests each provider saw."""
    return [len(lab[name].seen) for name in names]


async def large(lab: Lab, model: str) -> Answer:
    """Sends a chat of more than a kibibyte."""
    messages = [{"role": "user", "content": "x" * 2000}]
    return await lab.call(body={**CHAT, "model": model, "messages": messages})


async def test_the_first_tier_leaves_one_attempt_for_each_later_one(lab: Lab) -> None:
    for name in ("alpha", "beta", "gamma"):
        lab[name].script = answers(503)
    answer = await lab.chat("three")
    assert (answer.attempts, seen(lab, "alpha", "beta", "gamma")) == (5, [3, 1, 1])
    assert answer.all("x-should-retry") == ["false"], "the first tier has spent its retries"


async def test_spent_retries_are_said_of_an_earlier_answer_too(lab: Lab) -> None:
    lab["alpha"].script = answers(503, headers=[("x-should-retry", "true")])
    answer = await lab.chat("then-gone")
    assert (answer.status, answer.provider, answer.attempts) == (503, "alpha", 4)
    assert answer.all("x-should-retry") == ["false"]


async def test_tiers_asked_once_each_have_spent_no_retries(lab: Lab) -> None:
    lab["alpha"].script = lab["beta"].script = answers(503)
    answer = await lab.chat("once-each")
    assert (answer.attempts, answer.all("x-should-retry")) == (2, [])


async def test_what_opened_the_breaker_is_told_and_not_tried_again(lab: Lab) -> None:
    lab["fragile"].script = answers(500)
    answer = await lab.chat("fragile")
    assert (answer.status, answer.reason, answer.attempts) == (500, None, 1)
    assert answer.header("x-should-retry") == "false"


async def test_retry_goes_to_the_tail_of_its_queue(lab: Lab) -> None:
    single, over = lab["single"], asyncio.Event()

    async def holds(exchange: Exchange) -> None:
        await over.wait()
        await exchange.reply(200, {})

    single.script = in_turn(answers(503), holds, says("hi"))
    first = asyncio.ensure_future(lab.chat("single", headers=[("x-who", "first")]))
    await single.has_seen(1)
    second = asyncio.ensure_future(lab.chat("single", headers=[("x-who", "second")]))
    await single.has_seen(2)
    third = asyncio.ensure_future(lab.chat("single", headers=[("x-who", "third")]))
    await waiting(lab, 2)
    over.set()
    assert [(await call).status for call in (first, second, third)] == [200] * 3
    assert [request.header("x-who") for request in single.seen] == ["first", "second", "third", "first"]


async def waiting(lab: Lab, count: int) -> None:
    """Waits until so many calls wait for the provider with a single place."""
    await lab.proxy.until(
        lambda status: any(row["provider"] == "single" and row["waiting"] == count for row in status["queues"])
    )


async def half_a_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-le")
    exchange.reset()


async def cut_before_content(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.chunk(event(None))
    await asyncio.sleep(0.02)
    exchange.reset()


@pytest.mark.parametrize(
    ("script", "stream"),
    [(resets, False), (babbles, False), (half_a_head, False), (cut_before_content, True)],
    ids=["reset", "garbage", "half a head", "cut before content"],
)
async def test_what_was_sent_and_not_answered_may_have_been_executed(lab: Lab, script: Script, stream: bool) -> None:
    lab["alpha"].script = script
    answer = await lab.chat("careful", stream=stream)
    assert (answer.status, answer.reason, answer.attempts) == (504, "maybe_executed", 1)
    assert answer.header("x-should-retry") == "false"


async def test_what_was_never_sent_was_surely_not_executed(lab: Lab) -> None:
    answer = await lab.chat("careful-gone")
    assert (answer.status, answer.reason, answer.attempts) == (502, "upstream_unreachable", 3)


async def test_an_answered_failure_was_surely_not_executed_and_a_later_silence_may_have_been(lab: Lab) -> None:
    lab["alpha"].script = in_turn(answers(503), resets)
    answer = await lab.chat("careful")
    assert (answer.status, answer.reason, answer.attempts) == (504, "maybe_executed", 2)


async def test_a_request_larger_than_replay_is_sent_once_and_its_first_error_passed_on(lab: Lab) -> None:
    lab["alpha"].script = answers(503)
    answer = await large(lab, "small")
    assert (answer.status, answer.provider, answer.attempts) == (503, "alpha", 1)
    assert answer.json()["error"]["message"] == "this is 503"
    assert seen(lab, "alpha", "beta") == [1, 0]
    assert (await lab.chat("small")).provider == "beta"


async def test_a_request_larger_than_replay_that_was_not_sent_goes_to_the_next_tier_whole(lab: Lab) -> None:
    answer = await large(lab, "small-gone")
    assert (answer.status, answer.provider, answer.attempts) == (200, "beta", 2)
    assert lab["beta"].only.json()["messages"][0]["content"] == "x" * 2000


async def test_three_more_keys_are_tried_at_once_beside_a_single_attempt(lab: Lab) -> None:
    lab["keyed"].script = answers(429, headers=[("retry-after", "30")])
    answer = await lab.chat("keyed")
    assert (answer.status, answer.attempts) == (429, 4)
    assert answer.all("x-should-retry") == []
    assert len({request.header("authorization") for request in lab["keyed"].seen}) == 4


async def test_a_revoked_key_does_not_hide_that_the_other_only_rests(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        revoked = exchange.request.header("authorization") == "Bearer sk-b"
        await exchange.reply(401 if revoked else 429, {}, headers=[] if revoked else [("retry-after", "40")])

    lab["revoked"].script = script
    first = await lab.call("/revoked/v1/chat/completions", CHAT)
    second = await lab.call("/revoked/v1/chat/completions", CHAT)
    assert (first.status, first.header("retry-after"), first.attempts) == (429, "40", 2)
    assert (second.status, second.reason) == (429, "keys_resting")


async def test_nobody_backs_off_for_a_key_that_rests_longer_than_it_would_be_waited_for(lab: Lab) -> None:
    """The back-off of this route would outlast its caller's patience."""
    lab["sole"].script = answers(429)
    answer = await lab.chat("sole", within=4.0)
    assert (answer.status, answer.reason, answer.attempts) == (429, None, 1)


async def test_bodies_are_counted_while_their_requests_last_and_not_longer(lab: Lab) -> None:
    lab["alpha"].script = hangs
    body = b'{"model": "three", "padding": "' + b"x" * 10_000 + b'"}'
    async with lab.wire() as leaves:
        await leaves.send(request_bytes("POST", "/v1/chat/completions", body=body, headers=JSON))
        half = request_bytes("POST", "/v1/chat/completions", headers=[*JSON, ("content-length", "99999")])
        async with lab.wire() as drips:
            await drips.send(half + b"x" * 3000)
            status = await lab.proxy.until(lambda status: status["bodies"]["bytes"] == len(body) + 3000)
            assert status["bodies"] == {"bytes": len(body) + 3000, "again": 256 << 20, "max": 512 << 20}
            drips.leave()
            await lab.proxy.until(lambda status: status["bodies"]["bytes"] == len(body))
        leaves.leave()
    await lab.proxy.until(lambda status: status["bodies"]["bytes"] == 0)
