"""P2 over the wire: it runs in idle capacity, is promoted after a while, and waits by a limit of its own (rule 8)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.integration.doors import Doors, klass, leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

P2 = klass("P2")
PROMOTE, LONGEST = 2.0, 5.0
PATIENT = {"queue": "60s", "quota_wait": "60s"}
HASTY = {"queue": "100ms", "quota_wait": "100ms"}
PROVIDERS: dict[str, dict[str, Any]] = {
    "four": {"limits": {"concurrency": 4}, "timeouts": PATIENT},
    "busy": {"limits": {"concurrency": 4}, "timeouts": PATIENT},
    "pressed": {"models": {"narrow": {"limits": {"concurrency": 1}}}, "timeouts": PATIENT},
    "single": {"limits": {"concurrency": 1}, "timeouts": PATIENT},
    "hasty": {"limits": {"concurrency": 1}, "timeouts": HASTY},
    "late": {"limits": {"concurrency": 1}, "timeouts": HASTY},
    "second": {"timeouts": PATIENT},
    "patient": {"limits": {"concurrency": 1}, "timeouts": HASTY},
    "rated": {"limits": {"rpm": 30, "headroom": 1.0, "burst": "1s"}, "timeouts": HASTY},
}
POLICY: dict[str, Any] = {
    "version": 1,
    "classes": {"P2": {"idle_below": 0.5, "promote_after": f"{PROMOTE:g}s", "queue": f"{LONGEST:g}s"}},
    "providers": PROVIDERS,
    "routes": [
        route("narrow", "pressed"),
        route("tiered", "hasty", "second"),
        route("patient", "patient", total="200ms"),
        *(route(name, name) for name in PROVIDERS if name != "patient"),
    ],
}


async def waiters(lab: Lab, provider: str, name: str) -> int:
    """How many of a class wait for a provider, by the gauge."""
    text = (await lab.proxy.get("/metrics")).body.decode()
    lines = [line for line in text.splitlines() if line.startswith("sponson_queue_waiting{")]
    wanted = [line for line in lines if f'"{provider}"' in line and f'"{name}"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in wanted)


async def test_beside_others_it_runs_below_a_part_of_the_share(lab: Lab) -> None:
    doors = Doors(lab, "four")
    await doors.runs("P1")
    await doors.runs("P2", headers=P2)
    await doors.waits("P2 late", headers=P2)
    assert "P2 late" not in doors.came
    await doors.end("P2")
    await doors.has("P2 late")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_a_second_after_the_last_of_the_others_it_has_all(lab: Lab) -> None:
    doors = Doors(lab, "busy")
    for name in ("P2 one", "P2 two"):
        await doors.runs(name, headers=P2)
    await doors.runs("P1")
    await doors.waits("P2 three", headers=P2)
    ending = time.monotonic()
    await doors.end("P1")
    await doors.has("P2 three")
    assert time.monotonic() - ending >= 1.0
    await doors.runs("P2 four", headers=P2)
    await doors.end_all()
    await leaves_nothing(lab)


async def test_while_another_waits_for_anything_of_the_provider_it_does_not_run(lab: Lab) -> None:
    doors = Doors(lab, "pressed")
    await doors.runs("P1", model="narrow")
    await doors.runs("P2", headers=P2)
    await doors.waits("P1 late", model="narrow")
    await doors.waits("P2 late", headers=P2)
    await doors.end("P1")
    await doors.has("P1 late", "P2 late")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_after_a_while_it_queues_as_p1_behind_those_who_are_there(lab: Lab) -> None:
    doors = Doors(lab, "single")
    await doors.runs("first")
    await doors.waits("P2", headers=P2)
    await doors.waits("P1")
    async with asyncio.timeout(10):
        while await waiters(lab, "single", "P1") != 2:
            await asyncio.sleep(0.05)
    assert await waiters(lab, "single", "P2") == 0
    await doors.waits("P1 late")
    await doors.end_all()
    assert doors.came == ["first", "P1", "P2", "P1 late"]
    await leaves_nothing(lab)


async def test_its_own_limit_stands_for_the_tiers_waits(lab: Lab) -> None:
    doors = Doors(lab, "hasty")
    await doors.runs("first")
    began = time.monotonic()
    await doors.waits("P2", headers=P2)
    refused = await doors.call("P1")
    assert (refused.status, refused.reason) == (429, "queue_timeout")
    assert await doors.waiting() == 1
    late = await doors.tasks["P2"]
    assert time.monotonic() - began >= LONGEST
    assert (late.status, late.reason) == (429, "queue_timeout")
    assert int(late.header("retry-after") or 0) >= 1
    await doors.end("first")
    await leaves_nothing(lab)


async def test_it_waits_for_the_first_tier_before_it_asks_the_next(lab: Lab) -> None:
    doors = Doors(lab, "hasty", model="tiered")
    await doors.runs("first")
    await doors.waits("P2", headers=P2)
    assert (await doors.call("P1")).provider == "second"
    await doors.end("first", "P2")
    assert (doors.tasks["P2"].result().provider, doors.came) == ("hasty", ["first", "P2"])


async def test_its_wait_counts_in_its_deadline_not_against_it(lab: Lab) -> None:
    doors = Doors(lab, "patient")
    async with asyncio.timeout(20):
        first = doors.call("first")
        await doors.has("first")
        waits = doors.call("P2", headers=P2)
        await doors.lab.proxy.until(lambda s: any(q["provider"] == "patient" and q["waiting"] for q in s["queues"]))
        # The first one's deadline comes, long before the P2's: its allowed wait is added to `total`.
        assert (await first).reason == "total_timeout"
        await doors.has("P2")
        await doors.end("P2")
        assert (await waits).status == 200
    await leaves_nothing(lab)


async def test_it_waits_for_quota_by_its_own_limit_too(lab: Lab) -> None:
    async def ask(name: str) -> tuple[int, str | None]:
        answer = await lab.call(body={**CHAT, "model": "rated"}, headers=klass(name))
        return answer.status, answer.reason

    assert await ask("P1") == (200, None)
    assert await ask("P1") == (429, "quota_exhausted")
    assert await ask("P2") == (200, None)
