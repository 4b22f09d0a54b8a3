"""Callers that leave while they wait, for whatever it is: they leave nothing behind, and those behind them go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integration.caller import request_bytes
from tests.integration.doors import Doors, klass, leaves_nothing, waiting
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers
from tests.integration.quotas import goes_live

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

PATIENT = {"queue": "30m", "quota_wait": "30m"}
RATE = {"headroom": 1.0, "burst": "1s"}
LONG: dict[str, Any] = {"max_tokens": 500}
Fill = Callable[[Doors], Coroutine[Any, Any, None]]


async def runs(doors: Doors) -> None:
    """One call is under way."""
    await doors.runs("first", **LONG)


async def ended(doors: Doors) -> None:
    """One call has been answered."""
    await runs(doors)
    await doors.end("first")


async def rests(doors: Doors) -> None:
    """The only key was refused, until a little later."""
    script, doors.provider.script = doors.provider.script, answers(429, headers=[("retry-after", "3")])
    assert (await doors.call("refused")).status == 429
    del doors.tasks["refused"]
    doors.provider.script = script


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Something to wait for, how it comes to be lacked, and a provider that has more of it."""

    provider: dict[str, Any]
    route: dict[str, Any] = field(default_factory=dict)
    fill: Fill = runs
    more: dict[str, Any] = field(default_factory=dict)
    said: str = "P1"
    body: dict[str, Any] = field(default_factory=lambda: LONG)


STATES = {
    "permit": State(provider={"limits": {"concurrency": 1}}),
    "model": State(provider={"models": {"model": {"limits": {"concurrency": 1}}}}),
    "key": State(provider={"keys": [{"id": "a", "env": "KEY", "concurrency": 1}]}),
    "lane": State(provider={"limits": {"concurrency": 2}}, route={"lanes": [{"max_output": 100, "share": 0.5}]}),
    "urgent": State(provider={"limits": {"concurrency": 1}}, said="P0"),
    "idle": State(provider={"limits": {"concurrency": 4}}, said="P2"),
    "requests": State(provider={"limits": {"rpm": 1, **RATE}}, fill=ended, more={"limits": {"rpm": 6000, **RATE}}),
    "tokens": State(provider={"limits": {"tpm": 1200, **RATE}}, more={"limits": {}}),
    "key-quota": State(
        provider={"keys": [{"id": "a", "env": "KEY", "rpm": 1}]},
        fill=ended,
        more={"keys": [{"id": "a", "env": "KEY", "rpm": 6000}]},
    ),
    "rest": State(provider={"keys": [{"id": "a", "env": "KEY"}]}, route={"retry": {"attempts": 1}}, fill=rests),
}
POLICY: dict[str, Any] = {
    "version": 1,
    "classes": {"P2": {"idle_below": 0.2}},
    "providers": {name: {**state.provider, "timeouts": PATIENT} for name, state in STATES.items()},
    "routes": [route(name, name, class_from_header=True, **state.route) for name, state in STATES.items()],
}
ENV = {"KEY": "sk-k"}


async def waits(lab: Lab, name: str, count: int) -> None:
    """Returns when so many wait."""
    await lab.proxy.until(lambda status: waiting(status, name) == count)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "close"])
@pytest.mark.parametrize("name", STATES)
async def test_who_leaves_leaves_nothing_and_who_stays_goes_on(lab: Lab, name: str, reset: bool) -> None:
    state, doors = STATES[name], Doors(lab, name)
    await state.fill(doors)
    headers = list(klass(state.said))
    body = {**CHAT, **state.body, "model": name, "user": "left"}
    wires = [lab.wire() for _ in range(5)]
    for number, wire in enumerate(wires):
        await wire.__aenter__()
        await wire.send(request_bytes("POST", "/v1/chat/completions", headers=headers, body=body))
        await waits(lab, name, number + 1)
    stays = doors.call("stays", headers=headers, **state.body)
    await waits(lab, name, 6)
    for wire in wires:
        wire.leave(reset=reset)
    await waits(lab, name, 1)
    assert "left" not in doors.came
    if "first" in doors.tasks:
        await doors.end("first")
    if state.more:
        more = {**lab.policy["providers"][name], **state.more}
        await goes_live(lab, {**lab.policy, "providers": {**lab.policy["providers"], name: more}})
    await doors.has("stays", within=30)
    await doors.end("stays")
    assert stays.result().status == 200
    assert "left" not in doors.came
    await leaves_nothing(lab)
    if state.more:
        await goes_live(lab, lab.policy)


@pytest.mark.parametrize("name", ["permit", "idle", "lane"])
async def test_who_leaves_when_its_turn_comes_holds_nobody_up(lab: Lab, name: str) -> None:
    """Permits are handed over and callers leave at the same time, again and again."""
    state, doors = STATES[name], Doors(lab, name)
    headers = list(klass(state.said))
    body = {**CHAT, **state.body, "model": name, "user": "left"}
    for turn in range(20):
        await doors.runs(f"first {turn}", **LONG)
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", "/v1/chat/completions", headers=headers, body=body))
            await waits(lab, name, 1)
            ending = asyncio.ensure_future(doors.end(f"first {turn}"))
            await asyncio.sleep(0.0005 * (turn % 4))
            wire.leave()
            await ending
        await leaves_nothing(lab)
    await doors.runs("last", headers=headers, **state.body)
    await doors.end("last")
    await leaves_nothing(lab)
