"""A reload that changes lanes while calls run and wait: each goes on as what it was, and counts as what it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.doors import Doors, leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.quotas import goes_live

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG: dict[str, Any] = {"max_tokens": 1000}
MEDIUM: dict[str, Any] = {"max_tokens": 300}
SHORT: dict[str, Any] = {"max_tokens": 100}
NARROW = {"max_output": 100, "share": 0.5}
WIDE = {"max_output": 300, "share": 0.25}
NAMES = ("added", "removed", "wider", "renamed", "moved")


def policy(**changed: dict[str, Any]) -> dict[str, Any]:
    """A route for each provider, by its model, with one lane of two places of four; some are `changed`."""
    provider = {"limits": {"concurrency": 4}, "timeouts": {"queue": "60s"}}
    routes = [{**route(name, name, lanes=[NARROW]), **changed.get(name, {})} for name in NAMES]
    return {"version": 1, "providers": {name: dict(provider) for name in NAMES}, "routes": routes}


@pytest_asyncio.fixture(loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with Lab(policy()) as lab:
        yield lab


async def change(lab: Lab, **changed: dict[str, Any]) -> None:
    """Lets some routes be others."""
    await goes_live(lab, {**lab.policy, "routes": policy(**changed)["routes"]})


async def reserve(lab: Lab, provider: str) -> dict[str, tuple[int, int]]:
    """What is kept of a provider's share, by group: how much of how many is in use."""
    row = await lab.row("permits", limit=f"provider {provider}")
    return {group: (part["in_use"], part["size"]) for group, part in row.get("reserved", {}).items()}


async def test_a_lane_that_comes_while_long_calls_run_gets_its_places_as_they_end(lab: Lab) -> None:
    await change(lab, added={"lanes": []})
    doors = Doors(lab, "added")
    for name in "abcd":
        await doors.runs(name, **LONG)
    await doors.waits("long", **LONG)
    await change(lab)
    await doors.waits("short", **SHORT)
    await doors.end("a")
    await doors.has("short")
    await doors.end("b", "c")
    await doors.has("long")
    assert await reserve(lab, "added") == {"lane added/100": (1, 2)}
    await doors.end_all()
    await leaves_nothing(lab)


async def test_a_lane_that_goes_leaves_its_places_to_all_and_its_waiters_in_theirs(lab: Lab) -> None:
    doors = Doors(lab, "removed")
    for name in ("long", "long too"):
        await doors.runs(name, **LONG)
    for name in ("short", "short too"):
        await doors.runs(name, **SHORT)
    await doors.waits("short late", **SHORT)
    await doors.waits("long late", **LONG)
    await change(lab, removed={"lanes": []})
    assert await reserve(lab, "removed") == {"lane removed/100": (2, 0)}
    await doors.end("short")
    await doors.has("short late")
    await doors.end("short too")
    await doors.has("long late")
    assert await reserve(lab, "removed") == {}
    await doors.end_all()
    await leaves_nothing(lab)


async def test_a_wider_lane_is_open_to_those_who_waited_in_the_narrow_one(lab: Lab) -> None:
    doors = Doors(lab, "wider")
    await doors.runs("long", **LONG)
    for name in "abc":
        await doors.runs(name, **SHORT)
    await doors.waits("long late", **LONG)
    await change(lab, wider={"lanes": [NARROW, WIDE]})
    await doors.waits("short", **SHORT)
    await doors.waits("medium", **MEDIUM)
    # Two are kept for short answers, and one for medium ones, which short ones may use: nothing is left for long ones.
    await doors.end("c")
    await doors.has("short")
    await doors.end("short")
    await doors.has("medium")
    await doors.end("a", "b", "medium")
    assert "long late" not in doors.came
    await doors.end("long")
    await doors.has("long late")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_a_renamed_route_keeps_its_lanes_places_and_waiters(lab: Lab) -> None:
    doors = Doors(lab, "renamed")
    for name in ("long", "long too"):
        await doors.runs(name, **LONG)
    for name in ("short", "short too"):
        await doors.runs(name, **SHORT)
    await doors.waits("short late", **SHORT)
    await change(lab, renamed={"name": "another", "was": "renamed"})
    assert await reserve(lab, "renamed") == {"lane another/100": (2, 2)}
    await doors.waits("short last", **SHORT)
    row = await lab.row("queues", provider="renamed")
    assert row["by_target"] == {"renamed/renamed": 2}
    await doors.end("short")
    await doors.has("short late")
    assert "short last" not in doors.came
    await doors.end("long")
    await doors.has("short last")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_many_reloads_change_no_place(lab: Lab) -> None:
    doors = Doors(lab, "moved")
    for name in ("long", "long too"):
        await doors.runs(name, **LONG)
    await doors.runs("short", **SHORT)
    await doors.waits("long late", **LONG)
    before = "moved"
    for number in range(4):
        lanes = [NARROW, {**WIDE, "share": 0.1 + number / 100}]
        await change(lab, moved={"name": f"moved-{number}", "was": before, "lanes": lanes})
        before = f"moved-{number}"
        assert await reserve(lab, "moved") == {f"lane {before}/100": (1, 2)}
    assert await doors.waiting() == 1
    await doors.runs("short too", **SHORT)
    await doors.end_all()
    await leaves_nothing(lab)
