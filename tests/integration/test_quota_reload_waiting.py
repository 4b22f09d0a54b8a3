"""A reload while calls wait for quota, each provider in another way: what changed acts at once, turns are kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer
from tests.integration.harness import Lab
from tests.integration.messages import answers
from tests.integration.quotas import goes_live

pytestmark = pytest.mark.asyncio(loop_scope="module")

COUNT = 6
PATIENT = {"queue": "10h", "quota_wait": "10h"}
ONE_A_MINUTE: dict[str, Any] = {"limits": {"rpm": 1, "headroom": 1.0}, "timeouts": PATIENT}
TOKENS: dict[str, Any] = {"limits": {"tpm": 300, "headroom": 1.0}, "timeouts": PATIENT}
KEYED: dict[str, Any] = {
    "keys": [{"id": "a", "env": "KEY_A", "rpm": 1}],
    "limits": {"headroom": 1.0},
    "timeouts": PATIENT,
}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "raised": ONE_A_MINUTE,
        "lifted": ONE_A_MINUTE,
        "burst": TOKENS,
        "lowered": TOKENS,
        "old": ONE_A_MINUTE,
        "gone": {**ONE_A_MINUTE, "limits": {"rpm": 60, "headroom": 1.0}},
        "keyed": KEYED,
        "joined": KEYED,
        "same": ONE_A_MINUTE,
    },
}
ENV = {"KEY_A": "sk-a", "KEY_B": "sk-b"}


def changed(policy: dict[str, Any]) -> dict[str, Any]:
    """The policy that goes live while calls wait."""
    providers = dict(policy["providers"])
    fast = {"rpm": 60_000, "headroom": 1.0}
    providers["raised"] = {**providers["raised"], "limits": fast}
    providers["lifted"] = {**providers["lifted"], "limits": {}}
    providers["burst"] = {**providers["burst"], "limits": {"tpm": 60_000_000, "headroom": 1.0}}
    providers["lowered"] = {**providers["lowered"], "limits": {"tpm": 30, "headroom": 1.0}}
    providers["new"] = {**providers.pop("old"), "was": "old", "limits": fast}
    del providers["gone"]
    providers["keyed"] = {**providers["keyed"], "keys": [{**KEYED["keys"][0], "rpm": 60_000}]}
    providers["joined"] = {**providers["joined"], "keys": [*KEYED["keys"], {"id": "b", "env": "KEY_B"}]}
    providers["same"] = {**providers["same"], "headers": {"x-some": "thing"}}
    return {**policy, "providers": providers}


class Door:
    """A provider at which one call has gone, and others wait for quota, in a known order."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name
        self.calls: list[asyncio.Task[Answer]] = []

    async def fills(self) -> None:
        """Lets one go, and the others wait."""
        usage = {"prompt_tokens": 60, "completion_tokens": 0, "total_tokens": 60}
        answer = {"id": "c", "object": "chat.completion", "choices": [], "usage": usage}
        self.lab[self.name].script = answers(200, answer)
        for number in range(COUNT):
            self.calls.append(asyncio.ensure_future(self.call(number)))
            if number:
                await self.lab.proxy.until(partial(self.has_come, number + 1))
            else:
                await self.calls[0]

    async def call(self, number: int) -> Answer:
        """One more call, which says which one it is."""
        document = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "x" * 90}]}
        path = f"/{self.name}/v1/chat/completions?n={number}"
        return await self.lab.call(path, document, within=60)

    def has_come(self, count: int, status: Any) -> bool:
        """Whether so many have gone or wait."""
        return self.stand(status) + len(self.order) >= count

    def stand(self, status: Any) -> int:
        """How many wait."""
        return sum(row["waiting"] for row in status["queues"] if row["provider"] == self.name)

    @property
    def order(self) -> list[int]:
        """The numbers of the calls, as they came to the provider."""
        return [int(request.target.rpartition(b"=")[2]) for request in self.lab[self.name].seen]

    async def all_go(self) -> None:
        """All are answered well, in the order in which they came."""
        results = await asyncio.wait_for(asyncio.gather(*self.calls), timeout=20)
        assert {answer.status for answer in results} == {200}
        assert sorted(self.order) == list(range(COUNT))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def doors() -> AsyncIterator[dict[str, Door]]:
    """At each provider one has gone and the others wait; then another policy has gone live."""
    async with Lab(POLICY, env=ENV) as lab:
        doors = {name: Door(lab, name) for name in POLICY["providers"]}
        for door in doors.values():
            await door.fills()
        await goes_live(lab, changed(lab.policy))
        yield doors
        for door in doors.values():
            for call in door.calls:
                call.cancel()
            await asyncio.gather(*door.calls, return_exceptions=True)


@pytest.mark.parametrize("name", ["raised", "lifted", "burst", "keyed", "joined", "old"])
async def test_more_than_there_was_lets_who_waits_go(doors: dict[str, Door], name: str) -> None:
    await doors[name].all_go()


async def test_who_can_never_go_any_more_is_told(doors: dict[str, Door]) -> None:
    door = doors["lowered"]
    first, *others = await asyncio.wait_for(asyncio.gather(*door.calls), timeout=20)
    assert first.status == 200
    assert {(answer.status, answer.reason) for answer in others} == {(413, "context_too_long")}


async def test_who_waits_for_a_provider_that_is_gone_goes_at_its_old_rate_in_its_order(doors: dict[str, Door]) -> None:
    door = doors["gone"]
    await door.all_go()
    assert door.order == list(range(COUNT))
    times = [request.at for request in door.lab["gone"].seen]
    assert times[-1] - times[0] > COUNT - 2, "one a second"


async def test_what_did_not_change_moves_nobody(doors: dict[str, Door]) -> None:
    door = doors["same"]
    assert door.stand(await door.lab.proxy.status()) == COUNT - 1
    assert door.order == [0]
