"""Lookups under a clock that is moved by hand, with a server that answers when it is told to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.ports import Found
from proxy.store.codec import encode
from proxy.store.lookups import BATCH, LIMIT_SECONDS, TOGETHER, WAITING_MAX, Lookups
from tests.fakes import FakeClock, settle
from tests.store.contract import answer


class FakeServer:
    """Keeps one entry under every key; `pttl` and `getrange` gather, `execute` waits for `let_go`."""

    def __init__(self, *, left: object = 40_000, entry: object = None) -> None:
        self.replies: list[object] = [left, encode(b"name", answer(b"kept"), 60.0) if entry is None else entry]
        self.let_go = asyncio.Event()
        self.asked = 0
        self.batches: list[int] = []

    def pipeline(self, *, transaction: bool) -> FakeServer:
        assert not transaction
        self.asked = 0
        return self

    def pttl(self, key: str) -> None:
        self.asked += 1

    def getrange(self, key: str, start: int, end: int) -> None:
        assert start == 0

    async def execute(self, *, raise_on_error: bool) -> list[object]:
        assert not raise_on_error
        asked = self.asked
        self.batches.append(asked)
        await self.let_go.wait()
        return self.replies * asked


class Setting:
    """Lookups, and a connection that serves them."""

    def __init__(self, server: FakeServer) -> None:
        self.clock = FakeClock()
        self.server = server
        self.lookups = Lookups(self.clock)
        self.serving = asyncio.create_task(self._serve())

    async def _serve(self) -> None:
        client: Any = self.server
        while True:
            await self.lookups.serve(client, await self.lookups.next())

    def find(self, name: bytes = b"name") -> asyncio.Task[Found | None]:
        return asyncio.create_task(self.lookups.find(name, self.clock.now()))


async def test_a_reply_gives_the_answer_and_its_age_by_the_servers_clock() -> None:
    setting = Setting(FakeServer(left=40_000))
    setting.server.let_go.set()
    found = await setting.find()
    assert found is not None
    assert found.answer == answer(b"kept")
    assert found.age == 20.0
    assert setting.clock.next_due is None


@pytest.mark.parametrize(
    ("left", "entry"),
    [(-2, b""), (-1, None), (40_000, b"garbage"), (40_000, ValueError()), (ValueError(), None), (40_000, "text")],
)
async def test_whatever_is_no_entry_is_a_miss(left: object, entry: object) -> None:
    setting = Setting(FakeServer(left=left, entry=entry))
    setting.server.let_go.set()
    assert await setting.find() is None


async def test_a_lookup_that_takes_too_long_is_given_up_and_no_other_waits_until_the_server_is_heard() -> None:
    setting = Setting(FakeServer())
    first = setting.find()
    await settle()
    setting.clock.advance(LIMIT_SECONDS / 2)
    await settle()
    assert not first.done()
    setting.clock.advance(LIMIT_SECONDS / 2 + 0.001)
    await settle()
    assert first.done()
    assert first.result() is None
    assert setting.lookups.silent
    assert await setting.lookups.find(b"name", setting.clock.now()) is None
    setting.server.let_go.set()
    await settle()
    assert not setting.lookups.silent
    assert await setting.find() is not None
    assert setting.lookups.late == 1


async def test_a_lookup_that_was_never_sent_says_nothing_of_the_server() -> None:
    clock = FakeClock()
    lookups = Lookups(clock)
    waiting = asyncio.create_task(lookups.find(b"name", clock.now()))
    await settle()
    clock.advance(1.0)
    assert await waiting is None
    assert not lookups.silent


async def test_lookups_travel_together() -> None:
    setting = Setting(FakeServer())
    first = setting.find()
    await settle()
    others = [setting.find(b"%d" % number) for number in range(BATCH + 1)]
    await settle()
    setting.server.let_go.set()
    assert await first is not None
    assert await asyncio.gather(*others) == [None] * (BATCH + 1)  # The entry is none of their names.
    assert setting.server.batches == [1, BATCH, 1]


async def test_a_name_is_asked_for_once_for_all_who_wait() -> None:
    setting = Setting(FakeServer())
    first = setting.find()
    await settle()
    others = [setting.find() for _ in range(TOGETHER + 1)]
    await settle()
    setting.server.let_go.set()
    assert None not in await asyncio.gather(first, *others)
    assert setting.server.batches == [1, 1, 1]


async def test_nobody_asks_for_those_who_have_left() -> None:
    setting = Setting(FakeServer())
    first = setting.find()
    await settle()
    others = [setting.find() for _ in range(3)]
    await settle()
    for task in (first, *others[:2]):
        task.cancel()
    await settle()
    setting.server.let_go.set()
    assert await others[2] is not None
    assert setting.server.batches == [1, 1]
    assert setting.clock.next_due is None


async def test_a_failure_is_a_miss_for_all_who_wait() -> None:
    setting = Setting(FakeServer())
    first = setting.find()
    await settle()
    second = setting.find()
    await settle()
    setting.serving.cancel()
    await settle()
    assert first.done()
    assert first.result() is None
    setting.lookups.clear()
    assert await second is None


async def test_only_so_many_wait() -> None:
    clock = FakeClock()
    lookups = Lookups(clock)
    tasks = [asyncio.create_task(lookups.find(b"name", clock.now())) for _ in range(WAITING_MAX)]
    await settle()
    assert await lookups.find(b"name", clock.now()) is None
    assert not any(task.done() for task in tasks)
    lookups.clear()
    assert await asyncio.gather(*tasks) == [None] * WAITING_MAX
