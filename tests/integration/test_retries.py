"""Retries: how many, after what, how long in between, and what is never sent twice."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.integration.caller import HOST
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, closes, hangs, in_turn, resets, says
from tests.integration.scripted import Exchange
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

QUICK = {"attempts": 3, "base": "20ms"}
# Routes have budgets of their own, so tests that retry a lot have routes of their own.
QUICK_ROUTES = [f"{name}-{number}" for name in ("twice", "told", "grows") for number in range(9)]
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off", "timeouts": {"queue": "50ms", "quota_wait": "50ms"}},
        "beta": {"breaker": "off"},
        "single": {"breaker": "off", "limits": {"concurrency": 1}, "timeouts": {"queue": "5s"}},
        "spare": {"breaker": "off", "timeouts": {"answer": "300ms"}},
        "gone": {"breaker": "off", "base_url": f"http://{HOST}:{free_port()}/v1"},
    },
    "routes": [
        *(route(name, "alpha", retry=QUICK) for name in ("quick", *QUICK_ROUTES)),
        route("budget", "alpha", retry={"attempts": 2, "base": "1ms"}),
        route("once", "alpha", retry={"attempts": 1}),
        route("careful", "spare", repeatable=False, retry={"attempts": 3, "base": "20ms"}),
        route("careful-tiers", "spare", "beta", repeatable=False, retry={"attempts": 3, "base": "20ms"}),
        route("careful-gone", "gone", "beta", repeatable=False, retry={"attempts": 2, "base": "20ms"}),
        route("backing-off", "single", retry={"attempts": 2, "base": "600ms"}),
        route("short", "alpha", total="500ms", retry={"attempts": 5, "base": "100ms"}),
        route("late", "alpha", total="400ms", retry={"attempts": 3, "base": "20ms"}),
        route("far", "alpha", total="3s", retry={"attempts": 3, "base": "20s"}),
        route("two", "alpha", "beta", retry={"attempts": 2, "base": "20ms"}),
        route("gone", "gone", retry={"attempts": 2, "base": "20ms"}),
    ],
}


FAILURES = [answers(500), answers(503), answers(529), answers(408), resets, closes]


@pytest.mark.parametrize(("number", "failure"), list(enumerate(FAILURES)))
async def test_two_failures_and_then_an_answer(lab: Lab, number: int, failure: Any) -> None:
    lab["alpha"].script = in_turn(failure, failure, says("at last"))
    answer = await lab.chat(f"twice-{number}")
    assert (answer.status, answer.attempts, len(lab["alpha"].seen)) == (200, 3, 3)
    assert b"at last" in answer.body
    assert answer.header("x-should-retry") is None


async def test_when_all_fail_the_last_answer_is_relayed_and_the_caller_need_not_repeat(lab: Lab) -> None:
    lab["alpha"].script = in_turn(answers(500), answers(502), answers(503, headers=[("x-own", "3")]))
    answer = await lab.chat("quick")
    assert (answer.status, answer.attempts, answer.header("x-own")) == (503, 3, "3")
    assert answer.all("x-should-retry") == ["false"]
    assert answer.json()["error"]["message"] == "this is 503"
    assert len(lab["alpha"].seen) == 3


async def test_single_attempt_says_nothing_about_retries(lab: Lab) -> None:
    lab["alpha"].script = answers(503)
    answer = await lab.chat("once")
    assert (answer.status, answer.attempts, answer.header("x-should-retry")) == (503, 1, None)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 501, 505])
async def test_other_statuses_are_never_retried(lab: Lab, status: int) -> None:
    lab["alpha"].script = answers(status)
    answer = await lab.chat("quick")
    assert (answer.status, answer.attempts, len(lab["alpha"].seen)) == (status, 1, 1)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_provider_that_forbids_a_retry_is_obeyed(lab: Lab, status: int) -> None:
    lab["alpha"].script = answers(status, headers=[("x-should-retry", "false")])
    answer = await lab.chat("quick")
    assert (answer.status, answer.attempts) == (status, 1)
    assert answer.all("x-should-retry") == ["false"]


async def test_provider_that_asks_for_a_retry_gets_one(lab: Lab) -> None:
    lab["alpha"].script = in_turn(answers(409, headers=[("x-should-retry", "true")]), says("hi"))
    answer = await lab.chat("quick")
    assert (answer.status, answer.attempts) == (200, 2)


@pytest.mark.parametrize("model", ["careful", "careful-tiers"])
@pytest.mark.parametrize("failure", [resets, closes, hangs], ids=["reset", "closed", "silent"])
async def test_what_may_have_been_executed_is_not_sent_again(lab: Lab, model: str, failure: Any) -> None:
    lab["spare"].script = failure
    answer = await lab.chat(model)
    assert (answer.status, answer.reason, answer.attempts) == (504, "maybe_executed", 1)
    assert answer.header("x-should-retry") == "false"
    assert (len(lab["spare"].seen), len(lab["beta"].seen)) == (1, 0)


async def test_what_surely_was_not_executed_is_sent_again(lab: Lab) -> None:
    assert (await lab.chat("careful-gone")).provider == "beta"
    lab["spare"].script = in_turn(answers(503), says("hi"))
    assert (await lab.chat("careful")).attempts == 2


async def test_unknown_call_is_not_repeatable_by_itself(lab: Lab) -> None:
    lab["alpha"].script = resets
    answer = await lab.call("/alpha/v1/files", {"purpose": "batch"})
    assert (answer.status, answer.reason, len(lab["alpha"].seen)) == (504, "maybe_executed", 1)


async def test_get_is_repeatable_by_itself(lab: Lab) -> None:
    lab["alpha"].script = in_turn(resets, says("hi"))
    answer = await lab.call("/alpha/v1/models", method="GET")
    assert (answer.status, answer.attempts) == (200, 2)


TOLD: list[tuple[list[tuple[str, str]], float]] = [
    ([("retry-after", "0.4")], 0.4),
    ([("retry-after", "400ms")], 0.4),
    ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "350ms")], 0.35),
    ([("retry-after-ms", "300"), ("retry-after", "9")], 0.3),
    ([("retry-after", "1")], 1.0),
    ([("retry-after", "abc")], 0.009),
    ([("retry-after", "Thu, 01 Jan 2015 00:00:00 GMT")], 0.009),
]


@pytest.mark.parametrize(("number", "headers", "least"), [(at, *told) for at, told in enumerate(TOLD)])
async def test_retry_is_never_earlier_than_told(
    lab: Lab, number: int, headers: list[tuple[str, str]], least: float
) -> None:
    # A limit that is used up is a wait only where that is why the call was refused.
    status = 429 if headers[0][0].startswith("x-ratelimit") else 503
    lab["alpha"].script = in_turn(answers(status, headers=headers), says("hi"))
    assert (await lab.chat(f"told-{number}")).status == 200
    first, second = lab["alpha"].seen
    assert least <= second.at - first.at


async def test_retry_is_never_earlier_than_told_in_a_body(lab: Lab) -> None:
    info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.4s"}
    body = {"error": {"code": 503, "status": "UNAVAILABLE", "details": [info]}}
    lab["alpha"].script = in_turn(answers(503, body), says("hi"))
    assert (await lab.chat("told-8")).status == 200
    first, second = lab["alpha"].seen
    assert second.at - first.at >= 0.4


IMF, RFC_3339 = "%a, %d %b %Y %H:%M:%S GMT", "%Y-%m-%dT%H:%M:%SZ"


@pytest.mark.parametrize(
    ("number", "name", "form"), [(6, "retry-after", IMF), (7, "anthropic-ratelimit-requests-reset", RFC_3339)]
)
async def test_retry_is_never_earlier_than_the_moment_told(lab: Lab, number: int, name: str, form: str) -> None:
    moments: list[float] = []

    async def script(exchange: Exchange) -> None:
        moments.append(time.time())
        moment = time.strftime(form, time.gmtime(moments[0] + 1.5))
        told = [(name, moment), ("anthropic-ratelimit-requests-remaining", "0")]
        await exchange.reply((503 if name == "retry-after" else 429) if len(moments) == 1 else 200, {}, headers=told)

    lab["alpha"].script = script
    assert (await lab.chat(f"told-{number}")).status == 200
    assert moments[1] >= int(moments[0] + 1.5)


async def test_back_off_grows_within_its_jitter(lab: Lab) -> None:
    for number in range(4):
        lab["alpha"].forget()
        lab["alpha"].script = in_turn(answers(503), answers(503), says("hi"))
        await lab.chat(f"grows-{number}")
        first, second, third = (request.at for request in lab["alpha"].seen)
        assert second - first >= 0.009
        assert third - second >= 0.019


async def test_budget_bounds_the_retries_of_a_route(lab: Lab) -> None:
    lab["alpha"].script = answers(503)
    calls = [await lab.chat("budget") for _ in range(20)]
    assert sum(call.attempts for call in calls) == len(lab["alpha"].seen) == 30
    assert {call.attempts for call in calls[10:]} == {1}
    assert calls[-1].header("x-should-retry") == "false"


async def test_back_off_holds_no_permit(lab: Lab) -> None:
    lab["single"].script = in_turn(answers(503), says("in between"), says("hi"))
    patient = asyncio.ensure_future(lab.chat("backing-off"))
    await lab["single"].has_seen(1)
    other = await lab.call("/single/v1/chat/completions", CHAT)
    assert b"in between" in other.body
    assert not patient.done()
    assert (await patient).attempts == 2


async def test_deadline_ends_a_call_that_hangs(lab: Lab) -> None:
    lab["alpha"].script = hangs
    answer = await lab.chat("late")
    assert (answer.status, answer.reason) == (504, "total_timeout")
    assert 0.35 < answer.seconds < 2
    await lab["alpha"].was_left(1)


async def test_retries_stay_within_the_deadline(lab: Lab) -> None:
    lab["alpha"].script = answers(503, after=0.1)
    answer = await lab.chat("short")
    assert answer.seconds < 1.5
    assert 2 <= answer.attempts < 5
    assert answer.status == 503


async def test_retry_that_cannot_come_in_time_is_not_waited_for(lab: Lab) -> None:
    lab["alpha"].script = answers(503)
    answer = await lab.chat("far")
    assert (answer.status, answer.attempts) == (503, 1)
    assert answer.seconds < 2


async def test_attempts_never_exceed_the_tiers_and_the_policy(lab: Lab) -> None:
    lab["alpha"].script = lab["beta"].script = answers(503)
    answer = await lab.chat("two")
    assert answer.attempts == len(lab["alpha"].seen) + len(lab["beta"].seen) == 3
    assert (len(lab["alpha"].seen), len(lab["beta"].seen)) == (2, 1)


async def test_unreachable_provider_says_so(lab: Lab) -> None:
    began = time.monotonic()
    answer = await lab.chat("gone")
    assert (answer.status, answer.reason, answer.attempts) == (502, "upstream_unreachable", 2)
    assert time.monotonic() - began < 2


async def test_stream_is_never_repeated_after_its_first_content(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(b'data: {"choices":[{"delta":{"content":"once"}}]}\n\n')
        await asyncio.sleep(0.05)
        exchange.reset()

    lab["alpha"].script = script
    answer = await lab.chat("quick", stream=True)
    assert answer.body.count(b"once") == 1
    assert (answer.complete, len(lab["alpha"].seen)) == (False, 1)
