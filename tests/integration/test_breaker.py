"""Circuit breakers: when they open, what an open one does, and how it closes again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.harness import Lab
from tests.integration.messages import (
    CHAT,
    ERROR_EVENT,
    ERROR_OBJECT,
    answers,
    closes,
    event,
    hangs,
    in_turn,
    resets,
    says,
    streams,
)
from tests.integration.scripted import Exchange, Script

pytestmark = pytest.mark.asyncio(loop_scope="module")

OPEN = {"first": "600ms", "cap": "2s"}


def guarded(**breaker: Any) -> dict[str, Any]:
    """Returns a provider that is called once for each call, with this breaker."""
    return {
        "breaker": {"consecutive": 3, "open": OPEN, "probes": 2, **breaker},
        "timeouts": {"first_byte": "3s", "answer": "1s", "queue": "8s", "idle": "1s"},
    }


LONG = {"first": "30s", "cap": "60s"}
FAILURES: dict[str, tuple[Script, bool]] = {
    "500": (answers(500), False),
    "529": (answers(529), False),
    "reset": (resets, False),
    "closed": (closes, False),
    "error in a 200": (answers(200, ERROR_OBJECT), False),
    "error event": (streams(event(None), ERROR_EVENT), True),
    "late error event": (streams(event(None), event("a"), ERROR_EVENT), True),
}
HEALTHY: dict[str, Script] = {
    "400": answers(400),
    "404": answers(404),
    "422": answers(422),
    "429": answers(429),
    "401": answers(401),
    "501": answers(501),
}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "consecutive": guarded(open=LONG),
        "ratio": guarded(consecutive=0, min_calls=10, window={"calls": 20, "time": "60s"}, open=LONG),
        "half": guarded(),
        "recovers": guarded(),
        "relapses": guarded(open={"first": "300ms", "cap": "3s"}, probes=1),
        "flushes": {**guarded(consecutive=1, open=LONG), "limits": {"concurrency": 1}},
        "slow": guarded(consecutive=0, min_calls=4, slow={"after": "200ms", "ratio": 0.5}, open=LONG),
        "never": {**guarded(), "breaker": "off"},
        "extended": guarded(open={"first": "200ms", "cap": "60s"}),
        "whole": guarded(scope="provider", open=LONG),
        "apart": guarded(open=LONG),
        "left": guarded(open=LONG),
        **{f"fails-{number}": guarded(open=LONG) for number in range(len(FAILURES))},
        **{f"lives-{number}": guarded(open=LONG) for number in range(len(HEALTHY))},
    },
}
POLICY["routes"] = [
    {"name": name, "match": {"path": f"/{name}/*"}, "tiers": [{"provider": name}], "retry": {"attempts": 1}}
    for name in POLICY["providers"]
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    for rule in POLICY["routes"]:
        rule["match"] = {"header": {"x-to": rule["name"]}}
    async with Lab(POLICY) as lab:
        yield lab


async def ask(lab: Lab, provider: str, *, stream: bool = False, model: str = "m") -> Any:
    """Calls this provider once, without retries."""
    return await lab.chat(model, stream=stream, headers=[("x-to", provider)])


async def state(lab: Lab, provider: str, *, model: str = "m") -> Any:
    """Returns the breaker's row."""
    return await lab.row("breakers", provider=provider, model=model)


async def reaches(lab: Lab, provider: str, wanted: str, *, within: float = 5) -> None:
    """Waits until the breaker has this state, without asking the provider."""
    await lab.proxy.until(
        lambda status: any(
            row["state"] == wanted for row in status["breakers"] if (row["provider"], row["model"]) == (provider, "m")
        ),
        within=within,
    )


async def fail(lab: Lab, provider: str, times: int = 3) -> None:
    """Makes the provider fail so often."""
    lab[provider].script = answers(500)
    for _ in range(times):
        assert (await ask(lab, provider)).status == 500
    lab[provider].forget()


async def test_opens_after_failures_in_a_row_and_answers_at_once(lab: Lab) -> None:
    await fail(lab, "consecutive")
    lab["consecutive"].script = says("hi")
    answer = await ask(lab, "consecutive")
    assert (answer.status, answer.reason, answer.attempts) == (503, "breaker_open", 0)
    assert answer.seconds < 0.5
    assert 25 <= int(answer.header("retry-after")) <= 40
    assert answer.json()["error"]["code"] == "breaker_open"
    assert not lab["consecutive"].seen
    assert (await state(lab, "consecutive"))["state"] == "open"


async def test_opens_by_ratio_although_never_in_a_row(lab: Lab) -> None:
    lab["ratio"].script = in_turn(*[says("hi"), answers(500)] * 5, says("hi"))
    seen = [(await ask(lab, "ratio")).status for _ in range(10)]
    assert seen == [200, 500] * 5
    answer = await ask(lab, "ratio")
    assert (answer.status, answer.reason) == (503, "breaker_open")


@pytest.mark.parametrize(("number", "name"), list(enumerate(FAILURES)))
async def test_failures_open_it(lab: Lab, number: int, name: str) -> None:
    provider, (script, stream) = f"fails-{number}", FAILURES[name]
    lab[provider].script = script
    for _ in range(3):
        await ask(lab, provider, stream=stream)
    assert len(lab[provider].seen) == 3
    assert (await ask(lab, provider)).reason == "breaker_open"


@pytest.mark.parametrize(("number", "name"), list(enumerate(HEALTHY)))
async def test_answers_that_are_no_failures_leave_it_closed(lab: Lab, number: int, name: str) -> None:
    provider = f"lives-{number}"
    lab[provider].script = HEALTHY[name]
    assert [(await ask(lab, provider)).status for _ in range(5)] == [int(name)] * 5
    assert (await state(lab, provider))["state"] == "closed"


async def test_caller_that_leaves_early_says_nothing_about_the_provider(lab: Lab) -> None:
    lab["left"].script = hangs
    for number in range(1, 6):
        call = asyncio.ensure_future(lab.chat("m", headers=[("x-to", "left")]))
        await lab["left"].has_seen(number)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    await lab["left"].was_left(5)
    row = await state(lab, "left")
    assert (row["state"], row["failures"]) == ("closed", 0)


async def test_half_open_lets_exactly_the_probes_through(lab: Lab) -> None:
    await fail(lab, "half")
    await reaches(lab, "half", "half_open")
    lab["half"].script = says("hi", after=0.8)
    calls = await asyncio.gather(*(ask(lab, "half") for _ in range(30)))
    assert Counter(call.status for call in calls) == {200: 2, 503: 28}
    assert len(lab["half"].seen) == 2
    refused = [call for call in calls if call.status == 503]
    assert {call.reason for call in refused} == {"breaker_open"}
    assert max(call.seconds for call in refused) < 0.75
    assert all(int(call.header("retry-after")) >= 1 for call in refused)
    assert (await state(lab, "half"))["state"] == "closed"


async def test_recovered_provider_is_used_again(lab: Lab) -> None:
    await fail(lab, "recovers")
    assert (await ask(lab, "recovers")).reason == "breaker_open"
    lab["recovers"].script = says("hi")
    async with asyncio.timeout(5):
        while (await ask(lab, "recovers")).status != 200:
            await asyncio.sleep(0.05)
    assert [(await ask(lab, "recovers")).status for _ in range(5)] == [200] * 5
    assert (await state(lab, "recovers"))["state"] == "closed"


async def test_failing_probe_opens_it_again_for_longer(lab: Lab) -> None:
    await fail(lab, "relapses")
    spans = []
    for _ in range(2):
        began = time.monotonic()
        await reaches(lab, "relapses", "half_open")
        spans.append(time.monotonic() - began)
        lab["relapses"].script = answers(500)
        assert (await ask(lab, "relapses")).status == 500
        assert (await state(lab, "relapses"))["state"] == "open"
    assert spans[1] > 0.55


async def test_429_fails_a_probe(lab: Lab) -> None:
    await reaches(lab, "relapses", "half_open")
    lab["relapses"].script = answers(429)
    assert (await ask(lab, "relapses")).status == 429
    assert (await state(lab, "relapses"))["state"] == "open"


async def test_waiters_are_released_when_it_opens(lab: Lab) -> None:
    lab["flushes"].script = answers(500, after=0.5)
    calls = await asyncio.gather(*(ask(lab, "flushes") for _ in range(5)))
    assert Counter(call.status for call in calls)[503] >= 3
    assert {call.reason for call in calls if call.status == 503} == {"breaker_open"}
    assert max(call.seconds for call in calls if call.status == 503) < 2


async def test_calls_that_hang_open_it_while_they_still_run(lab: Lab) -> None:
    lab["slow"].script = hangs
    running = [asyncio.ensure_future(ask(lab, "slow", stream=True)) for _ in range(5)]
    await lab["slow"].has_seen(5)
    await reaches(lab, "slow", "open", within=2)
    assert lab["slow"].active == 5
    assert (await ask(lab, "slow", stream=True)).reason == "breaker_open"
    for call in running:
        call.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def test_breaker_that_is_off_never_opens(lab: Lab) -> None:
    lab["never"].script = answers(500)
    assert [(await ask(lab, "never")).status for _ in range(12)] == [500] * 12


async def test_told_retry_after_keeps_it_open_for_longer(lab: Lab) -> None:
    lab["extended"].script = answers(503, headers=[("retry-after", "20")])
    for _ in range(3):
        assert (await ask(lab, "extended")).status == 503
    answer = await ask(lab, "extended")
    assert answer.reason == "breaker_open"
    assert 10 <= int(answer.header("retry-after")) <= 25


async def test_models_of_a_provider_have_breakers_of_their_own(lab: Lab) -> None:
    await fail(lab, "apart")
    assert (await ask(lab, "apart")).reason == "breaker_open"
    lab["apart"].script = says("hi")
    assert (await ask(lab, "apart", model="another")).status == 200


async def test_scope_provider_covers_all_its_models(lab: Lab) -> None:
    await fail(lab, "whole")
    assert (await ask(lab, "whole", model="another")).reason == "breaker_open"


async def test_result_from_before_the_opening_changes_nothing(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(0.9 if exchange.number == 0 else 0)
        await exchange.reply(200 if exchange.number == 0 else 500, CHAT)

    lab["recovers"].forget()
    lab["recovers"].script = script
    late = asyncio.ensure_future(ask(lab, "recovers"))
    await lab["recovers"].has_seen(1)
    for _ in range(3):
        assert (await ask(lab, "recovers")).status == 500
    await reaches(lab, "recovers", "half_open")
    assert (await late).status == 200
    assert (await state(lab, "recovers"))["state"] == "half_open"
