"""The adaptive limit over the wire: how many calls at once a provider takes is found, and kept to, under the share."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.doors import Doors, klass, leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, said, says
from tests.integration.quotas import goes_live
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

SHARE, HIDDEN, RESERVED = 16, 6, 0.25
PATIENT = {"queue": "60s", "quota_wait": "60s"}
ADAPTIVE = {"limits": {"concurrency": SHARE, "adaptive": {}}, "queue": {"max": 1000}, "timeouts": PATIENT}
AGAIN = {"retry": {"attempts": 8, "base": "5ms", "cap": "50ms", "budget": 1.0}}
ONCE = {"retry": {"attempts": 1}}
KEYS = [{"id": f"k{number}", "env": "KEY"} for number in range(4)]
POLICY: dict[str, Any] = {
    "version": 1,
    "classes": {"P0": {"reserved": RESERVED}},
    "providers": {
        "busy": {**ADAPTIVE, "breaker": "off"},
        "overloaded": {**ADAPTIVE, "breaker": "off"},
        "keyed": {**ADAPTIVE, "breaker": "off", "keys": KEYS, "key_rest": "50ms"},
        "kept": ADAPTIVE,
        "healthy": ADAPTIVE,
        "least": {**ADAPTIVE, "limits": {"concurrency": 4, "adaptive": {"decrease": 0.1, "min": 3}}},
        "urgent": {**ADAPTIVE, "limits": {"concurrency": 16, "adaptive": {"decrease": 0.5}}},
    },
    "routes": [
        *(route(name, name, **AGAIN) for name in ("busy", "overloaded", "keyed")),
        *(route(name, name, **ONCE) for name in ("kept", "healthy", "least")),
        route("urgent", "urgent", class_from_header=True, lanes=[{"max_output": 100, "share": 0.5}], **ONCE),
    ],
}
ENV = {"KEY": "sk-k"}


class Limited:
    """A provider that refuses what is above a limit which nobody knows."""

    def __init__(self, lab: Lab, name: str, *, status: int) -> None:
        self.provider = lab[name]
        self.status = status
        self.refused: list[int] = []
        self.provider.forget()
        self.provider.script = self

    async def __call__(self, exchange: Exchange) -> None:
        if self.provider.active > HIDDEN:
            self.refused.append(exchange.number)
            headers = [("retry-after-ms", "50")] if self.status == 429 else []
            await exchange.reply(self.status, {"error": {"message": "too many", "type": "error"}}, headers=headers)
            return
        await asyncio.sleep(0.04)
        await exchange.reply(200, said("well"))


async def crowd(lab: Lab, model: str, callers: int, each: int) -> list[Answer]:
    """So many callers, each of which asks one thing after another."""

    async def one() -> list[Answer]:
        return [await lab.chat(model, within=60) for _ in range(each)]

    return [answer for answers in await asyncio.gather(*(one() for _ in range(callers))) for answer in answers]


async def limit(lab: Lab, provider: str) -> dict[str, Any]:
    """Its row of `/status`."""
    row: dict[str, Any] = await lab.row("adaptive", provider=provider)
    return row


@pytest.mark.parametrize(("name", "status"), [("busy", 429), ("overloaded", 529), ("keyed", 429)])
async def test_it_settles_where_the_provider_takes_it(lab: Lab, name: str, status: int) -> None:
    limited = Limited(lab, name, status=status)
    await crowd(lab, name, 20, 12)
    done = await crowd(lab, name, 20, 12)
    assert {answer.status for answer in done} == {200}
    seen = len(limited.provider.seen)
    settled = [number for number in limited.refused if number >= seen // 2]
    assert limited.refused
    assert len(settled) <= seen // 2 * 0.03
    assert limited.provider.peak <= SHARE
    row = await limit(lab, name)
    assert row["lowered"]
    for_all = row["size"] - int(row["size"] * RESERVED)
    assert HIDDEN - 2 <= for_all <= HIDDEN + 1
    assert row["share"] == SHARE
    await leaves_nothing(lab)


async def test_while_nothing_is_refused_it_is_the_share(lab: Lab) -> None:
    lab["healthy"].script = says("hi", after=0.01)
    await crowd(lab, "healthy", 20, 3)
    assert await limit(lab, "healthy") == {"provider": "healthy", "size": SHARE, "share": SHARE, "lowered": False}
    assert lab["healthy"].peak <= SHARE


async def test_refusals_of_calls_that_were_under_way_together_lower_it_once(lab: Lab) -> None:
    doors = Doors(lab, "healthy")
    for number in range(8):
        await doors.runs(str(number))
    lab["healthy"].script = answers(529)
    for _ in range(3):
        assert (await lab.chat("healthy")).status == 529
    assert (await limit(lab, "healthy"))["size"] == int(SHARE * 0.8)
    await doors.end_all()


async def test_so_many_are_always_tried(lab: Lab) -> None:
    lab["least"].script = answers(529)
    assert (await lab.chat("least")).status == 529
    assert (await limit(lab, "least"))["size"] == 3


async def test_what_it_has_fallen_to_holds_and_a_reload_changes_nothing(lab: Lab) -> None:
    lab["kept"].script = answers(429)
    await lab.chat("kept")
    size, reserved = int(SHARE * 0.8), int(int(SHARE * 0.8) * RESERVED)
    assert (await limit(lab, "kept"))["size"] == size
    doors = Doors(lab, "kept")
    for number in range(size - reserved):
        await doors.runs(str(number))
    await doors.waits("late")
    await goes_live(lab, {**lab.policy, "telemetry": {"log_successes": 0.5}})
    assert (await limit(lab, "kept"))["size"] == size
    assert await doors.waiting() == 1
    lower = {**lab.policy["providers"]["kept"], "limits": {"concurrency": 8, "adaptive": {}}}
    await goes_live(lab, {**lab.policy, "providers": {**lab.policy["providers"], "kept": lower}})
    assert await limit(lab, "kept") == {"provider": "kept", "size": 8, "share": 8, "lowered": True}
    await goes_live(lab, lab.policy)
    assert (await limit(lab, "kept"))["size"] == size
    without = {**lab.policy["providers"]["kept"], "limits": {"concurrency": SHARE}}
    await goes_live(lab, {**lab.policy, "providers": {**lab.policy["providers"], "kept": without}})
    await doors.has("late")
    await goes_live(lab, lab.policy)
    assert (await limit(lab, "kept"))["size"] == size
    permits = await lab.row("permits", limit="adaptive kept")
    assert (permits["in_use"], permits["size"]) == (size - reserved, size)
    await doors.waits("later")
    await doors.end_all()
    await leaves_nothing(lab)


async def test_p0_and_short_answers_keep_their_part_of_what_it_has_fallen_to(lab: Lab) -> None:
    lab["urgent"].script = answers(529)
    await lab.chat("urgent")
    assert (await limit(lab, "urgent"))["size"] == 8
    doors = Doors(lab, "urgent")
    for name in ("long", "long too"):
        await doors.runs(name, max_tokens=1000)
    await doors.waits("long late", max_tokens=1000)
    for number in range(4):
        await doors.runs(f"short {number}", max_tokens=9)
    await doors.waits("short late", max_tokens=9)
    for number in range(2):
        await doors.runs(f"urgent {number}", headers=klass("P0"), max_tokens=1000)
    await doors.end_all()
    await leaves_nothing(lab)


async def test_only_what_the_provider_says_counts(lab: Lab) -> None:
    lab["healthy"].script = answers(400)
    before = (await limit(lab, "healthy"))["size"]
    for status in (400, 404, 500, 503):
        lab["healthy"].script = answers(status)
        await lab.call(body={**CHAT, "model": "healthy"})
    assert (await limit(lab, "healthy"))["size"] == before
