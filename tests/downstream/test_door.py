"""Doors: nobody who has a request goes for another, nobody who waits outside is lost, and files may run out."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from proxy.downstream.arrival import Arrival
from proxy.downstream.door import Door, Spare
from proxy.downstream.lasting import NEWCOMER_SECONDS, TAKING_SECONDS
from tests.downstream.test_wire import answer_to, plain
from tests.downstream.visitor import ASK, LAST_ASK, Visitor, serving, until, visiting
from tests.hurried import HurriedLoop, hurried


@asynccontextmanager
async def crowd(port: int, count: int) -> AsyncIterator[list[Visitor]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(visiting(port, patience=3600.0)) for _ in range(count)]


def test_the_longest_silent_connection_goes_for_one_more() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain, most=4) as served, crowd(served.port, 4) as silent:
            await until(lambda: len(served.protocols.connections) == 4)
            await loop.pass_time(NEWCOMER_SECONDS + 1.0)
            async with visiting(served.port) as one, visiting(served.port) as two:
                for new, gone in ((one, silent[0]), (two, silent[1])):
                    await new.send(ASK)
                    assert (await new.answer()).status == 200
                    assert await gone.rest() == b""
                assert not any(visitor.reader.at_eof() for visitor in silent[2:])
                assert served.protocols.connections.sent_away == 2

    hurried(scene)


def test_who_never_asked_goes_before_who_did_and_half_heads_go_last() -> None:
    async def scene(loop: HurriedLoop) -> None:
        async with serving(plain, most=3) as served, crowd(served.port, 3) as (kept, half, silent):
            await kept.send(ASK)
            await kept.answer()
            await half.send(ASK[:5])
            await until(lambda: sum(one.asking for one in served.protocols.connections) == 1)
            await loop.pass_time(NEWCOMER_SECONDS + 1.0)
            async with crowd(served.port, 3) as newcomers:
                for new, gone in zip(newcomers, (silent, kept, half), strict=True):
                    await new.send(ASK[:-2])
                    assert await gone.rest() == b""
                for new in newcomers:
                    await new.send(LAST_ASK[-4:])
                    assert (await new.answer()).status == 200

    hurried(scene)


@pytest.mark.parametrize("closing", [b"", b"connection: close\r\n"], ids=["kept", "last"])
def test_who_takes_no_answer_keeps_his_place_for_a_while_only(closing: bytes) -> None:
    async def scene(loop: HurriedLoop) -> None:
        async def much(arrival: Arrival) -> bool:
            if arrival.target != "/much":
                return await plain(arrival)
            assert arrival.transport is not None
            arrival.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (1 << 24) + bytes(1 << 24))
            return not closing

        async with serving(much, most=3) as served, crowd(served.port, 3) as visitors:
            for visitor in visitors:
                await visitor.send(b"GET /much HTTP/1.1\r\nhost: x\r\n" + closing + b"\r\n")
                await visitor.until(b"\r\n\r\n")
            async with visiting(served.port, patience=3600.0) as new:
                await new.send(LAST_ASK)
                await asyncio.sleep(0.05)
                await loop.pass_time(TAKING_SECONDS - 5.0)
                assert served.targets == ["/much"] * 3
                await loop.pass_time(10.0)
                assert (await new.answer()).status == 200
            assert served.protocols.connections.sent_away == 1

    hurried(scene)


async def test_when_all_have_a_request_newcomers_wait_outside_and_are_served_in_their_order() -> None:
    ends: list[asyncio.Event] = []

    async def held(arrival: Arrival) -> bool:
        ends.append(asyncio.Event())
        await ends[-1].wait()
        return answer_to(arrival)

    async with serving(held, most=2) as served, crowd(served.port, 5) as visitors:
        for number, visitor in enumerate(visitors):
            await visitor.send(b"GET /%d HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % number)
        for number in range(5):
            await until(lambda: len(ends) > number)  # noqa: B023
            assert len(served.protocols.connections) <= 2
            ends[number].set()
        assert [(await visitor.answer()).body for visitor in visitors] == [b"/%d" % n for n in range(5)]
        assert sorted(served.targets) == [f"/{n}" for n in range(5)]
        assert served.protocols.connections.sent_away == 0


async def test_a_burst_of_clients_is_let_in_one_and_all() -> None:
    async with serving(plain) as served, crowd(served.port, 300) as visitors:
        for visitor in visitors:
            await visitor.send(LAST_ASK)
        assert {(await visitor.answer()).status for visitor in visitors} == {200}


async def test_a_closed_door_opens_no_more_even_when_it_was_paused() -> None:
    async with serving(plain, most=1) as served, crowd(served.port, 2) as (one, two):
        await one.send(ASK[:4])
        await asyncio.sleep(0.05)
        served.protocols.stop_listening()
        await one.send(ASK[4:])
        assert (await one.answer()).get("connection") is None
        assert await two.rest() == b""
        served.protocols.stop_listening()


class Failing(socket.socket):
    """A listening socket that fails as often as it is told."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self.bind(("127.0.0.1", 0))
        self.listen()
        self.setblocking(False)
        self._numbers = list(numbers)
        self.asked = 0

    def fail(self, *numbers: int) -> None:
        """Fails again."""
        self._numbers += numbers

    def accept(self) -> tuple[socket.socket, object]:
        self.asked += 1
        if self._numbers:
            number = self._numbers.pop(0)
            raise OSError(number, os.strerror(number))
        return super().accept()


class Hall:
    """Room for everybody."""

    most = 9

    def __init__(self) -> None:
        self.relieved = 0

    def has_place(self, coming: int = 0) -> bool:
        return True

    def relieve(self) -> bool:
        self.relieved += 1
        return False


@pytest.mark.parametrize(
    ("numbers", "spares", "relieved"),
    [
        ([errno.EMFILE] * 3, 0, 3),
        ([errno.ENFILE, errno.ENOBUFS], 0, 2),
        ([errno.EMFILE] * 2, 2, 0),
        ([errno.EMFILE] * 3, 2, 1),
        ([errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN], 0, 0),
    ],
    ids=["no file", "no memory", "spare files", "too few spare files", "what became of others"],
)
async def test_a_client_comes_in_once_there_is_a_file_for_it(numbers: list[int], spares: int, relieved: int) -> None:
    made: list[asyncio.Protocol] = []

    def make() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    hall, bound, spare = Hall(), Failing(*numbers), Spare(spares)
    port = bound.getsockname()[1]
    door = Door(bound, make, hall, spare=spare)
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: bool(made))
    # Each failure is one question, and nothing is asked again and again meanwhile.
    assert len(numbers) < bound.asked <= len(numbers) + 3
    assert hall.relieved == relieved
    door.close()
    door.close()
    spare.close()
    writer.close()


async def test_spare_files_are_given_up_one_by_one_and_taken_back() -> None:
    spare = Spare(2)
    assert [spare.give() for _ in range(3)] == [True, True, False]
    spare.fill()
    assert spare.give()
    spare.close()
    spare.fill()
    assert not spare.give()


async def test_spare_files_are_taken_back_before_the_next_client_needs_them() -> None:
    made: list[asyncio.Protocol] = []

    def make() -> asyncio.Protocol:
        made.append(asyncio.Protocol())
        return made[-1]

    hall, bound, spare = Hall(), Failing(), Spare(2)
    door = Door(bound, make, hall, spare=spare)
    for count in range(1, 4):
        bound.fail(errno.EMFILE, errno.EMFILE)
        _, writer = await asyncio.open_connection(*bound.getsockname())
        await until(lambda count=count: len(made) == count)  # type: ignore[misc]
        writer.close()
    assert hall.relieved == 0
    door.close()
    spare.close()
