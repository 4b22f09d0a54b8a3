"""Breakers and the callers who leave: whose fault it is depends on how long they waited, and time needs no caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab
from tests.integration.messages import answers, event, hangs, streams

pytestmark = pytest.mark.asyncio(loop_scope="module")

FOR_LONG = {"first": "30s", "cap": "60s"}
WAITS = {"queue": "50ms", "quota_wait": "50ms"}
SOON = {"slow": {"after": "200ms", "ratio": 1.0}}
LATE = {"slow": {"after": "8s", "ratio": 1.0}}
NAMES = ("stream", "whole", "stream-early", "whole-early", "begun", "deadline", "deadline-early", "timer", "mixed")


def guarded(*, timeouts: dict[str, str], **breaker: Any) -> dict[str, Any]:
    return {
        "breaker": {"consecutive": 3, "open": FOR_LONG, "probes": 1, **breaker},
        "timeouts": {**WAITS, "first_byte": "9s", "answer": "30s", **timeouts},
    }


POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "stream": guarded(timeouts={}, **SOON),
        "whole": guarded(timeouts={"answer": "900ms"}, **LATE),
        "stream-early": guarded(timeouts={}, **LATE),
        "whole-early": guarded(timeouts={}, **SOON),
        "begun": guarded(timeouts={}, **SOON),
        "deadline": guarded(timeouts={}, **SOON),
        "deadline-early": guarded(timeouts={}, **LATE),
        "timer": guarded(timeouts={}, open={"first": "300ms", "cap": "300ms"}),
        "mixed": guarded(timeouts={}, min_calls=4, consecutive=0, slow={"after": "200ms", "ratio": 0.5}),
    },
    "routes": [
        {
            "name": name,
            "match": {"header": {"x-to": name}},
            "tiers": [{"provider": name, "model": "m"}],
            "retry": {"attempts": 1},
            **({"total": "600ms"} if name.startswith("deadline") else {}),
        }
        for name in NAMES
    ],
}


async def ask(lab: Lab, provider: str, *, stream: bool = False, within: float = 20.0) -> Answer:
    return await lab.chat("m", stream=stream, headers=[("x-to", provider)], within=within)


async def row(lab: Lab, provider: str) -> Any:
    return await lab.row("breakers", provider=provider, model="m")


async def leave(lab: Lab, provider: str, *, stream: bool, after: float, times: int = 3) -> None:
    """So many callers ask, get nothing and leave."""
    lab[provider].script = hangs
    for _ in range(times):
        await ask(lab, provider, stream=stream, within=after)
    await lab[provider].was_left(times)
    await lab.idle()


@pytest.mark.parametrize(("provider", "stream"), [("stream", True), ("whole", False)])
async def test_impatient_callers_of_a_provider_that_hangs_open_its_breaker(
    lab: Lab, provider: str, stream: bool
) -> None:
    await leave(lab, provider, stream=stream, after=0.7)
    found = await row(lab, provider)
    assert (found["state"], found["failures"]) == ("open", 3)
    assert (await ask(lab, provider, stream=stream)).reason == "breaker_open"


@pytest.mark.parametrize(("provider", "stream"), [("stream-early", True), ("whole-early", False)])
async def test_callers_who_leave_before_anybody_could_call_it_slow_say_nothing(
    lab: Lab, provider: str, stream: bool
) -> None:
    await leave(lab, provider, stream=stream, after=0.3, times=5)
    found = await row(lab, provider)
    assert (found["state"], found["calls"], found["consecutive"]) == ("closed", 0, 0)


async def test_callers_who_leave_a_stream_that_has_begun_say_nothing_however_late(lab: Lab) -> None:
    lab["begun"].script = streams(event(None), event("well"), *[event("on") for _ in range(50)], gap=0.2)
    for _ in range(4):
        answer = await ask(lab, "begun", stream=True, within=0.8)
        assert answer.status == 200
    await lab["begun"].was_left(4)
    found = await row(lab, "begun")
    assert (found["state"], found["failures"]) == ("closed", 0)


async def test_a_deadline_that_passes_over_a_slow_stream_counts_and_a_short_one_does_not(lab: Lab) -> None:
    lab["deadline"].script = lab["deadline-early"].script = hangs
    for _ in range(3):
        for provider in ("deadline", "deadline-early"):
            assert (await ask(lab, provider, stream=True)).reason == "total_timeout"
    assert (await row(lab, "deadline"))["state"] == "open"
    found = await row(lab, "deadline-early")
    assert (found["state"], found["calls"]) == ("closed", 0)


async def test_slow_streams_and_those_whose_callers_left_count_once_each(lab: Lab) -> None:
    lab["mixed"].script = hangs
    await leave(lab, "mixed", stream=True, after=0.7, times=3)
    found = await row(lab, "mixed")
    assert (found["calls"], found["failures"], found["slow"]) == (3, 3, 3)
    running = asyncio.ensure_future(ask(lab, "mixed", stream=True))
    await lab.proxy.until(
        lambda status: any(r["provider"] == "mixed" and r["state"] == "open" for r in status["breakers"])
    )
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_time_alone_changes_the_state_though_nobody_calls_or_looks(lab: Lab) -> None:
    lab["timer"].script = answers(500)
    for _ in range(3):
        await ask(lab, "timer")
    async with asyncio.timeout(10):
        while not any('"breaker half_open"' in line and '"timer"' in line for line in lab.proxy.log().splitlines()):
            await asyncio.sleep(0.05)
