"""Servers that say for how long they keep a connection: none rests for longer."""

from __future__ import annotations

import pytest

from proxy.outcome import OutcomeKind
from proxy.upstream.pool import Ending
from tests.upstream.peer import PeerWire
from tests.upstream.rig import JSON_HEAD, rigged, with_length


def saying(status: bytes, line: bytes) -> bytes:
    head = JSON_HEAD.replace(b"200 OK", status)
    return with_length(head + line, b"{}")


@pytest.mark.parametrize("status", [b"200 OK", b"400 Bad Request", b"503 Service Unavailable"])
async def test_a_connection_rests_for_less_than_its_server_says(status: bytes) -> None:
    async def script(wire: PeerWire) -> None:
        while await wire.request():
            await wire.body(28)
            await wire.send(saying(status, b"Keep-Alive: timeout=5, max=100\r\n"))

    async with rigged(script) as rig:
        await rig.call()
        assert rig.pool.rests == 4.0
        rig.clock.advance(3.9)
        _, attempt = await rig.call()
        assert attempt.reused
        rig.clock.advance(4.0)
        _, attempt = await rig.call()
        assert (attempt.reused, rig.pool.ended) == (False, {Ending.AGED: 1})


@pytest.mark.parametrize("line", [b"", b"Keep-Alive: max=5\r\n", b"Keep-Alive: timeout=75\r\n"])
async def test_who_says_nothing_or_more_is_kept_as_long_as_the_policy_says(line: bytes) -> None:
    async def script(wire: PeerWire) -> None:
        while await wire.request():
            await wire.body(28)
            await wire.send(saying(b"200 OK", line))

    async with rigged(script) as rig:
        outcome, _ = await rig.call()
        assert (outcome.kind, rig.pool.rests) == (OutcomeKind.OK, 25.0)
        rig.clock.advance(24.0)
        _, attempt = await rig.call()
        assert attempt.reused
