"""What is reserved for P0, over the wire: places of every share, and quota; the order in which classes go."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.doors import Doors, klass, leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

PATIENT = {"queue": "60s", "quota_wait": "60s"}
HASTY = {"queue": "1ms", "quota_wait": "1ms"}
KEYS = [{"id": "a", "env": "KEY_A", "concurrency": 4}, {"id": "b", "env": "KEY_B", "concurrency": 1}]
OPEN = {"class_from_header": True}
RATE = 2.0
"""Requests a second."""
CAPACITY = 6
POLICY: dict[str, Any] = {
    "version": 1,
    "classes": {"P0": {"reserved": 0.5}},
    "limits": {"concurrency": 40},
    "providers": {
        "four": {"limits": {"concurrency": 4}, "timeouts": PATIENT},
        "one": {"limits": {"concurrency": 1}, "timeouts": PATIENT},
        "ordered": {"limits": {"concurrency": 1}, "timeouts": PATIENT},
        "modelled": {"models": {"modelled": {"limits": {"concurrency": 2}}}, "timeouts": PATIENT},
        "keyed": {"keys": KEYS, "timeouts": PATIENT},
        "rated": {"limits": {"rpm": RATE * 60, "headroom": 1.0, "burst": "3s"}, "timeouts": HASTY},
        "bare": {"connections": {"max": 4}, "timeouts": PATIENT},
        "flooded": {"limits": {"concurrency": 1}, "queue": {"max": 3}, "timeouts": PATIENT},
    },
    "routes": [
        *(
            route(name, name, **OPEN)
            for name in ("four", "one", "ordered", "modelled", "keyed", "rated", "bare", "flooded")
        )
    ],
}
ENV = {"KEY_A": "sk-a", "KEY_B": "sk-b"}


@pytest.mark.parametrize("provider", ["four", "bare"])
async def test_half_of_the_share_is_kept_for_p0(lab: Lab, provider: str) -> None:
    doors = Doors(lab, provider)
    for name in ("p1", "p1-too"):
        await doors.runs(name)
    await doors.waits("late")
    for name in ("p0", "p0-too"):
        await doors.runs(name, headers=klass("P0"))
    await doors.waits("p0-late", headers=klass("P0"))
    await doors.end("p0")
    await doors.has("p0-late")
    assert "late" not in doors.came
    await doors.end("p1")
    await doors.has("late")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_p0_uses_what_is_for_all_when_its_own_part_is_taken(lab: Lab) -> None:
    doors = Doors(lab, "four")
    for name in "abcd":
        await doors.runs(name, headers=klass("P0"))
    await doors.waits("p1")
    await doors.end("a")
    await doors.waits("p1-too")
    await doors.end("b", "c")
    # Two of what is for all and two of P0's own were taken; P0's own are given back first, and stay its own.
    await doors.end("d")
    await doors.has("p1", "p1-too")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_a_share_of_one_keeps_nothing_for_p0(lab: Lab) -> None:
    doors = Doors(lab, "one")
    await doors.runs("p1")
    await doors.waits("p0", headers=klass("P0"))
    await doors.end("p1")
    await doors.has("p0")
    await doors.end_all()


async def test_p0_goes_first_then_p1_and_each_class_as_it_came(lab: Lab) -> None:
    doors = Doors(lab, "ordered")
    await doors.runs("first")
    for number in range(2):
        for name in ("P2", "P1", "P0"):
            await doors.waits(f"{name} {number}", headers=klass(name))
    await doors.end_all()
    assert doors.came == ["first", "P0 0", "P0 1", "P1 0", "P1 1", "P2 0", "P2 1"]


async def test_a_models_share_keeps_a_part_too(lab: Lab) -> None:
    doors = Doors(lab, "modelled")
    await doors.runs("p1")
    await doors.waits("late")
    await doors.runs("p0", headers=klass("P0"))
    await doors.end_all()
    await leaves_nothing(lab)


async def test_each_keys_share_keeps_a_part_too(lab: Lab) -> None:
    doors = Doors(lab, "keyed")
    for name in ("p1", "p1-too", "p1-three"):
        await doors.runs(name)
    await doors.waits("late")
    for name in ("p0", "p0-too"):
        await doors.runs(name, headers=klass("P0"))
    await doors.end_all()
    await leaves_nothing(lab)


async def test_half_of_the_quota_is_kept_for_p0(lab: Lab) -> None:
    await lab.proxy.until(
        lambda s: any(row["limit"] == "provider rated" and row["left"] == CAPACITY for row in s["quotas"]), within=30
    )
    row = await lab.row("quotas", limit="provider rated")
    assert row["reserved"] == CAPACITY / 2
    began = time.monotonic()

    async def ask(name: str) -> list[Answer]:
        body = {**CHAT, "model": "rated"}
        return await asyncio.gather(*(lab.call(body=body, headers=klass(name)) for _ in range(CAPACITY)))

    low, high = await ask("P1"), await ask("P0")
    came_back = RATE * (time.monotonic() - began)
    went = sum(answer.status == 200 for answer in low), sum(answer.status == 200 for answer in high)
    assert CAPACITY / 2 <= went[0] <= CAPACITY / 2 + came_back
    assert went[1] >= CAPACITY / 2
    assert sum(went) <= CAPACITY + came_back
    refused = [answer for answer in (*low, *high) if answer.status != 200]
    assert {(answer.status, answer.reason) for answer in refused} == {(429, "quota_exhausted")}
    assert all(int(answer.header("retry-after") or 0) >= 1 for answer in refused)


async def test_low_classes_do_not_fill_the_queue_of_high_ones(lab: Lab) -> None:
    doors = Doors(lab, "flooded")
    await doors.runs("first")
    for number in range(3):
        await doors.waits(f"P2 {number}", headers=klass("P2"))
    refused = await doors.call("P2 refused", headers=klass("P2"))
    assert (refused.status, refused.reason) == (429, "queue_full")
    await doors.waits("P1")
    await doors.waits("P0", headers=klass("P0"))
    del doors.tasks["P2 refused"]
    await doors.end_all()
    assert doors.came[:3] == ["first", "P0", "P1"]
    await leaves_nothing(lab)
