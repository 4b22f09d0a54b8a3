"""Coming back: after its breaker has closed, a provider meets its callers under a ceiling that rises."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab
from tests.integration.messages import answers, event, says, streams

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROVIDER: dict[str, Any] = {
    "breaker": {"consecutive": 3, "open": {"first": "300ms", "cap": "300ms"}, "probes": 2},
    "limits": {"concurrency": 42},
    "timeouts": {"queue": "20s"},
}
WHOLE: dict[str, Any] = {**PROVIDER, "breaker": {**PROVIDER["breaker"], "scope": "provider"}}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"each": PROVIDER, "whole": WHOLE, "again": PROVIDER, "stream": PROVIDER, "reload": PROVIDER},
}
POLICY["routes"] = [
    {
        "name": name,
        "match": {"header": {"x-to": name}},
        "tiers": [{"provider": name}] if name == "whole" else [{"provider": name, "model": "m"}],
        "retry": {"attempts": 1},
    }
    for name in POLICY["providers"]
]


async def ask(lab: Lab, provider: str, *, model: str = "m", stream: bool = False) -> Answer:
    return await lab.chat(model, stream=stream, headers=[("x-to", provider)], within=30)


async def row(lab: Lab, provider: str) -> Any:
    """The row of the breaker that covers the model m."""
    return _row(await lab.proxy.status(), provider)


def _row(status: Any, provider: str) -> Any:
    (found,) = [row for row in status["breakers"] if row["provider"] == provider and row["model"] in ("m", "*")]
    return found


def _size(status: Any, limit: str) -> Any:
    (found,) = [row for row in status["permits"] if row["limit"] == limit]
    return found["size"]


async def half_opens(lab: Lab, provider: str) -> None:
    lab[provider].script = answers(500)
    for _ in range(3):
        await ask(lab, provider)
    await lab.proxy.until(lambda status: _row(status, provider)["state"] == "half_open")


async def recovers(lab: Lab, provider: str) -> None:
    """The breaker opens, waits, and closes."""
    await half_opens(lab, provider)
    lab[provider].script = says("well")
    for _ in range(2):
        assert (await ask(lab, provider)).status == 200
    found = await row(lab, provider)
    assert (found["state"], found["probes_running"]) == ("closed", 0)
    assert found["ceiling"] >= 2
    lab[provider].forget()


async def never_above_the_ceiling(lab: Lab, provider: str, calls: list[asyncio.Task[Answer]]) -> list[int]:
    """Watches until all calls are done; returns the ceilings that bound them.

    The ceiling only rises, and the provider counts a call after the proxy has, and no longer: so what it counted
    before the proxy was asked is at most what the proxy says now, however slow everybody is.
    """
    ceilings = []
    while not all(call.done() for call in calls):
        running = lab[provider].active
        ceiling = (await row(lab, provider))["ceiling"]
        if ceiling is not None:
            assert running <= ceiling
            ceilings.append(ceiling)
        await asyncio.sleep(0.01)
    return ceilings


async def test_callers_come_back_under_a_ceiling_that_rises(lab: Lab) -> None:
    await recovers(lab, "each")
    lab["each"].script = says("well", after=0.4)
    calls = [asyncio.ensure_future(ask(lab, "each")) for _ in range(30)]
    ceilings = await never_above_the_ceiling(lab, "each", calls)
    assert Counter(call.result().status for call in calls) == {200: 30}
    assert ceilings[0] < 30
    assert ceilings == sorted(ceilings)
    assert ceilings[-1] > ceilings[0]


async def test_one_ceiling_for_all_models_of_a_provider_whose_breaker_is_one(lab: Lab) -> None:
    await recovers(lab, "whole")
    lab["whole"].script = says("well", after=0.4)
    calls = [asyncio.ensure_future(ask(lab, "whole", model=f"m{number % 3}")) for number in range(24)]
    ceilings = await never_above_the_ceiling(lab, "whole", calls)
    assert Counter(call.result().status for call in calls) == {200: 24}
    assert ceilings[0] < 24


async def test_streams_that_were_probes_are_counted(lab: Lab) -> None:
    await half_opens(lab, "stream")
    lab["stream"].script = streams(event(None), *[event("on") for _ in range(10)], gap=0.1)
    probes = [asyncio.ensure_future(ask(lab, "stream", stream=True)) for _ in range(2)]
    await lab.proxy.until(lambda status: _row(status, "stream")["state"] == "closed")
    calls = [asyncio.ensure_future(ask(lab, "stream", stream=True)) for _ in range(10)]
    await never_above_the_ceiling(lab, "stream", [*probes, *calls])
    assert Counter(call.result().status for call in [*probes, *calls]) == {200: 12}


async def test_opening_again_ends_the_ramp_and_sends_those_away_who_wait_under_it(lab: Lab) -> None:
    await recovers(lab, "again")
    lab["again"].script = answers(500, after=0.3)
    calls = [asyncio.ensure_future(ask(lab, "again")) for _ in range(30)]
    done = await asyncio.gather(*calls)
    kinds = Counter((call.status, call.reason) for call in done)
    assert kinds[503, "breaker_open"] == 30 - len(lab["again"].seen)
    assert len(lab["again"].seen) < 30
    found = await row(lab, "again")
    assert found["state"] in ("open", "half_open")
    assert found["ceiling"] is None or found["state"] == "half_open"


async def test_a_reload_on_the_way_keeps_the_ceiling_and_moves_where_it_goes(lab: Lab) -> None:
    await recovers(lab, "reload")
    lab["reload"].script = says("well", after=1.0)
    calls = [asyncio.ensure_future(ask(lab, "reload")) for _ in range(12)]
    lab.policy["providers"]["reload"]["limits"]["concurrency"] = 4
    lab.proxy.rewrite(lab.policy)
    await lab.proxy.until(lambda status: _size(status, "provider reload") == 4)
    ceiling = (await row(lab, "reload"))["ceiling"]
    assert ceiling is None or ceiling <= 4
    await asyncio.gather(*calls)
    assert Counter(call.result().status for call in calls) == {200: 12}
