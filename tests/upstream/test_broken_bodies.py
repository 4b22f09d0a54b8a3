"""What is said of a body that breaks off."""

from __future__ import annotations

import errno

import pytest

from proxy.body import BodyBroken
from tests.upstream.peer import ASK, PeerWire, dialled


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (None, "the connection was closed"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "Connection reset by peer"),
        (TimeoutError(errno.ETIMEDOUT, "nothing was acknowledged any more"), "nothing was acknowledged any more"),
    ],
    ids=["closed", "reset", "vanished"],
)
async def test_a_broken_body_says_what_became_of_its_connection(error: OSError | None, said: str) -> None:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello")
        await wire.gone()

    async with dialled(script) as connection:
        connection.expect(body=True)
        connection.write(ASK, b"")
        _, payload = await connection.head()
        assert await payload.readany() == b"hello"
        transport = connection.transport
        connection.connection_lost(error)
        with pytest.raises(BodyBroken, match=f"^{said}$"):
            await payload.readany()
        assert transport is not None
        transport.abort()
