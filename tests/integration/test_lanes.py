"""Lanes over the wire: a part of the share is for short answers, and long ones cannot crowd them out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.doors import Doors, klass, leaves_nothing
from tests.integration.harness import Lab, route

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

PATIENT = {"queue": "60s", "quota_wait": "60s"}
FOUR = {"limits": {"concurrency": 4}, "timeouts": PATIENT}
HALF = [{"max_output": 100, "share": 0.5}]
LONG: dict[str, Any] = {"max_tokens": 1000}
MEDIUM: dict[str, Any] = {"max_tokens": 300}
SHORT: dict[str, Any] = {"max_tokens": 100}
POLICY: dict[str, Any] = {
    "version": 1,
    "classes": {"P0": {"reserved": 0.25}},
    "providers": {
        "one-lane": {**FOUR, "limits": {"concurrency": 5}},
        "two-lanes": {**FOUR, "limits": {"concurrency": 5}},
        "two-routes": {**FOUR, "limits": {"concurrency": 5}},
        "bare": {"connections": {"max": 5}, "timeouts": PATIENT},
        "modelled": {"models": {"modelled": {"limits": {"concurrency": 5}}}, "timeouts": PATIENT},
        "elsewhere": {"models": {"plain": {"limits": {"concurrency": 3}}}, "timeouts": PATIENT},
        "keyed": {"keys": [{"id": "a", "env": "KEY", "concurrency": 5}], "timeouts": PATIENT},
        "changed": {**FOUR, "limits": {"concurrency": 5}},
        "set": {**FOUR, "limits": {"concurrency": 5}},
    },
    "routes": [
        route("plain", "two-routes"),
        *(route(name, name, lanes=HALF, class_from_header=True) for name in ("one-lane", "bare", "modelled", "keyed")),
        route("two-routes", "two-routes", lanes=HALF),
        route("two-lanes", "two-lanes", lanes=[{"max_output": 100, "share": 0.25}, {"max_output": 300, "share": 0.25}]),
        route("set", {"provider": "set", "set": {"max_tokens": 50}}, lanes=HALF),
        route("elsewhere", {"provider": "elsewhere", "model": "laned"}, lanes=HALF),
        route("elsewhere-plain", {"provider": "elsewhere", "model": "plain"}),
    ],
}
ENV = {"KEY": "sk-k"}


@pytest.mark.parametrize("provider", ["one-lane", "bare", "modelled", "keyed"])
async def test_long_calls_never_use_the_part_of_short_ones(lab: Lab, provider: str) -> None:
    """Of five places one is kept for P0 and two for short answers."""
    doors = Doors(lab, provider)
    await doors.runs("long", **LONG)
    await doors.runs("open")
    await doors.waits("long late", **LONG)
    await doors.waits("open late")
    await doors.waits("many", n=3, **SHORT)
    for name in ("short", "short too"):
        await doors.runs(name, **SHORT)
    await doors.waits("short late", **SHORT)
    await doors.runs("urgent", headers=klass("P0"), **LONG)
    await doors.end("short")
    await doors.has("short late")
    assert not {"long late", "open late", "many"} & set(doors.came)
    await doors.end("long")
    await doors.has("long late")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_short_calls_use_what_is_for_all_beyond_their_part(lab: Lab) -> None:
    doors = Doors(lab, "one-lane")
    for name in "abcd":
        await doors.runs(name, **SHORT)
    await doors.waits("long", **LONG)
    await doors.waits("e", **SHORT)
    await doors.end("a", "b", "c", "d")
    await doors.has("long", "e")
    await doors.end_all()


async def test_each_of_several_lanes_has_its_part_and_those_of_the_longer_ones(lab: Lab) -> None:
    """Of five places one is kept for P0, one for short, one for medium answers."""
    doors = Doors(lab, "two-lanes")
    for name in ("long", "long too"):
        await doors.runs(name, **LONG)
    await doors.waits("long late", **LONG)
    await doors.runs("medium", **MEDIUM)
    await doors.waits("medium late", **MEDIUM)
    await doors.runs("short", **SHORT)
    await doors.waits("short late", **SHORT)
    await doors.end("medium")
    await doors.has("medium late")
    await doors.end("medium late")
    await doors.has("short late")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_a_route_without_lanes_leaves_another_routes_lanes_alone(lab: Lab) -> None:
    doors = Doors(lab, "two-routes")
    for name in ("plain", "plain too"):
        await doors.runs(name, model="plain", **SHORT)
    await doors.waits("plain late", model="plain", **SHORT)
    for name in ("short", "short too"):
        await doors.runs(name, **SHORT)
    await doors.end_all()
    await leaves_nothing(lab)


async def test_a_tiers_own_limit_of_tokens_makes_a_call_short(lab: Lab) -> None:
    doors = Doors(lab, "set")
    for name in "abcd":
        await doors.runs(name, **LONG)
    await doors.waits("many", n=9)
    await doors.end_all()


async def test_nothing_of_a_model_is_kept_for_lanes_of_routes_that_do_not_ask_for_it(lab: Lab) -> None:
    doors = Doors(lab, "elsewhere", model="elsewhere-plain")
    for name in "abc":
        await doors.runs(name, **LONG)
    await doors.end_all()
