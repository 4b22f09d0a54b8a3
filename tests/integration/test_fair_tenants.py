"""Tenants take turns over the wire: whoever queues a hundred calls does not let others stand behind all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.doors import Doors, leaves_nothing
from tests.integration.harness import Lab, route

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

PATIENT = {"queue": "90s", "quota_wait": "90s"}
ONE = {"limits": {"concurrency": 1}, "queue": {"max": 1000}, "timeouts": PATIENT}
FLOOD, FEW = 60, 5
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {"from": [{"header": "x-agent-id"}], "overrides": {"batch": {"class": "P2"}}},
    "providers": {
        "one": ONE,
        "two": {**ONE, "limits": {"concurrency": 2}},
        "models": ONE,
        "tokens": {**ONE, "limits": {"concurrency": 1, "tpm": 600_000_000}},
        "classes": ONE,
        "laned": {**ONE, "limits": {"concurrency": 2}},
    },
    "routes": [
        route("large", "models"),
        route("small", "models"),
        route("laned", "laned", lanes=[{"max_output": 100, "share": 0.5}]),
        *(route(name, name) for name in ("one", "two", "tokens", "classes")),
    ],
}


def of(tenant: str) -> list[tuple[str, str]]:
    """The header by which a tenant is known."""
    return [("x-agent-id", tenant)]


async def queue(doors: Doors, tenant: str, count: int, **body: Any) -> None:
    """Lets so many calls of a tenant wait, as they come."""
    before = await doors.waiting()
    for number in range(count):
        doors.call(f"{tenant} {number}", headers=of(tenant), **body)
    await doors.lab.proxy.until(
        lambda status: (
            sum(row["waiting"] for row in status["queues"] if row["provider"] == doors.name) == before + count
        ),
        within=20,
    )


def before_all(came: list[str], tenant: str, others: str) -> int:
    """How many calls of another tenant went before the last one of this."""
    last = max(number for number, name in enumerate(came) if name.startswith(tenant))
    return sum(name.startswith(others) for name in came[:last])


@pytest.mark.parametrize("provider", ["one", "two"])
async def test_who_queues_little_waits_for_no_more_than_that_of_who_floods(lab: Lab, provider: str) -> None:
    doors = Doors(lab, provider)
    for number in range(1 + (provider == "two")):
        await doors.runs(f"first {number}")
    await queue(doors, "wild", FLOOD)
    await queue(doors, "calm", FEW)
    await doors.end_all()
    assert before_all(doors.came, "calm", "wild") <= FEW + 2
    await leaves_nothing(lab)


async def test_a_flood_for_one_model_does_not_hold_back_others_at_the_same_provider(lab: Lab) -> None:
    doors = Doors(lab, "models", model="large")
    await doors.runs("first")
    await queue(doors, "wild", FLOOD)
    await queue(doors, "calm", FEW, model="small")
    await doors.end_all()
    assert before_all(doors.came, "calm", "wild") <= FEW + 2
    await leaves_nothing(lab)


async def test_turns_go_by_tokens_where_they_are_counted(lab: Lab) -> None:
    doors = Doors(lab, "tokens")
    await doors.runs("first")
    await queue(doors, "large", 10, max_tokens=10_000)
    await queue(doors, "small", 50, max_tokens=1_000)
    await doors.end_all()
    # A large call costs about ten small ones: after five of each ten small ones, one large.
    halfway = doors.came[1:31]
    assert 2 <= sum(name.startswith("large") for name in halfway) <= 6
    await leaves_nothing(lab)


async def test_a_tenants_class_comes_before_its_turn(lab: Lab) -> None:
    doors = Doors(lab, "classes")
    await doors.runs("first")
    await queue(doors, "batch", 10)
    await queue(doors, "calm", FEW)
    await doors.end_all()
    assert before_all(doors.came, "calm", "batch") == 0
    await leaves_nothing(lab)


async def test_in_a_lane_tenants_take_turns_too(lab: Lab) -> None:
    doors = Doors(lab, "laned")
    for number in range(2):
        await doors.runs(f"first {number}", max_tokens=9)
    await queue(doors, "wild", FLOOD, max_tokens=9)
    await queue(doors, "calm", FEW, max_tokens=9)
    await doors.end_all()
    assert before_all(doors.came, "calm", "wild") <= FEW + 2
    await leaves_nothing(lab)


async def test_thousands_of_names_leave_a_bounded_number_behind(lab: Lab) -> None:
    doors = Doors(lab, "one")
    await doors.runs("first")
    await queue(doors, "wild", 20)
    gate = asyncio.Semaphore(50)

    async def ask(number: int) -> int:
        async with gate:
            return (await lab.call("/two/v1/models", method="GET", headers=of(f"name-{number}"))).status

    asking = asyncio.gather(*(ask(number) for number in range(2_000)))
    await queue(doors, "calm", FEW)
    assert set(await asking) == {200}
    for name in range(200):
        doors.call(f"passing-{name}", headers=of(f"passing-{name}"))
    await lab.proxy.until(lambda s: any(row["waiting"] == 20 + FEW + 200 for row in s["queues"]), within=20)
    await doors.end_all()
    assert before_all(doors.came, "calm", "wild") <= FEW + 2
    status = await lab.proxy.status()
    assert len(status["tenants"]) <= 100
    await leaves_nothing(lab)
