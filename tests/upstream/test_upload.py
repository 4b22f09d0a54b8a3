from __future__ import annotations

import asyncio
import errno
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.request import BodyTooLarge
from proxy.upstream.upload import UploadPump
from proxy.upstream.wire import UpstreamConnection
from tests.downstream.visitor import read_answer
from tests.fakes import FakeUpload, settle


class FakeConnection:
    """Keeps what is written; slow from `pause_after` bytes on until it is released."""

    def __init__(self, *, pause_after: int = 1 << 30, lost: Exception | None = None) -> None:
        self.written: list[bytes] = []
        self.ear: object = None
        self.aborted = 0
        self.drains = 0
        self.released = asyncio.Event()
        self._pause_after = pause_after
        self._lost = lost

    @property
    def paused(self) -> bool:
        return len(self.data) >= self._pause_after and not self.released.is_set()

    @property
    def data(self) -> bytes:
        return b"".join(self.written)

    def write(self, head: bytes, body: bytes) -> None:
        self.written += (head, body)

    async def drain(self) -> None:
        self.drains += 1
        if self._lost is not None:
            raise self._lost
        await self.released.wait()

    def abort(self) -> None:
        self.aborted += 1


def pumped(upload: FakeUpload, connection: FakeConnection) -> UploadPump:
    return UploadPump(upload, cast(UpstreamConnection, connection))


async def test_a_body_with_a_length_is_passed_on_as_it_is() -> None:
    connection = FakeConnection()
    pump = pumped(FakeUpload([b"one", b"two"], length=6), connection)
    assert not pump.done
    await settle()
    assert (connection.data, pump.sent, pump.done, pump.problem) == (b"onetwo", 6, True, None)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=8))
def test_a_body_without_a_length_is_framed_in_chunks_that_read_back(pieces: list[bytes]) -> None:
    async def run() -> bytes:
        connection = FakeConnection()
        pump = pumped(FakeUpload(pieces), connection)
        await settle()
        assert pump.done
        return connection.data

    answer, rest = read_answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + asyncio.run(run()))
    assert (answer.body, answer.whole, rest) == (b"".join(pieces), True, b"")


@pytest.mark.parametrize("length", [100, None])
async def test_a_body_that_breaks_off_ends_the_connection_and_is_never_ended_cleanly(length: int | None) -> None:
    connection = FakeConnection()
    pump = pumped(FakeUpload([b"part"], length=length, broken=True), connection)
    await settle()
    assert (connection.aborted, pump.done) == (1, False)
    assert pump.problem is not None
    assert not connection.data.endswith(b"0\r\n\r\n")


async def test_a_body_that_grows_too_large_ends_the_connection() -> None:
    connection, upload = FakeConnection(), FakeUpload([b"12345", b"67890"])
    upload.limit = 7
    pump = pumped(upload, connection)
    await settle()
    assert isinstance(pump.problem, BodyTooLarge)
    assert connection.aborted == 1


async def test_a_provider_that_does_not_read_holds_the_caller_back() -> None:
    connection, upload = FakeConnection(pause_after=4), FakeUpload([b"1234", b"5678"], length=8)
    pump = pumped(upload, connection)
    await settle()
    assert (connection.data, pump.done) == (b"1234", False)
    connection.released.set()
    await settle()
    assert (connection.data, pump.done) == (b"12345678", True)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError(errno.ECONNRESET, "reset"),
        TimeoutError(errno.ETIMEDOUT, "nothing was acknowledged any more"),
        OSError(errno.EHOSTUNREACH, "no route to it"),
    ],
    ids=["reset", "vanished", "no route"],
)
async def test_a_connection_that_is_lost_ends_it_without_a_problem_of_the_body(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    connection = FakeConnection(pause_after=1, lost=error)
    pump = pumped(FakeUpload([b"1234", b"5678"], length=8), connection)
    await settle()
    assert (connection.data, pump.problem, pump.done) == (b"1234", None, False)
    # Who waits for the answer is told why; it is no failure of the task.
    assert not caplog.records


async def test_a_pump_that_is_stopped_passes_nothing_on_any_more() -> None:
    gate = asyncio.Event()
    connection = FakeConnection()
    pump = pumped(FakeUpload([b"1234"], length=4, gate=gate), connection)
    await settle()
    pump.stop()
    gate.set()
    await settle()
    assert connection.data == b""


class Talking:
    """An ear that hears something; the event loop will have read it by its next turn."""

    def __init__(self, order: list[str]) -> None:
        self._order = order

    @property
    def hears(self) -> bool:
        asyncio.get_running_loop().call_soon(self._order.append, "read")
        return True


async def test_what_the_provider_has_said_is_read_before_anything_more_is_written() -> None:
    order: list[str] = []

    class Ordered(FakeConnection):
        def write(self, head: bytes, body: bytes) -> None:
            order.append("written")

    connection = Ordered()
    connection.ear = Talking(order)
    pump = pumped(FakeUpload([b"1234", b"5678"], length=8), connection)
    await settle()
    assert pump.done
    assert order == ["read", "written", "read", "written"]
