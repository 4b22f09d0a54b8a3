"""Peers that vanish without FIN or RST, on real sockets whose other end drops every packet."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import cast

import pytest

from proxy.outcome import Outcome, OutcomeKind
from proxy.upstream.dialer import Dialer
from proxy.upstream.vigil import Patience, Vigil, unanswered_seconds
from tests.upstream.peer import ASK, PATIENCE_SECONDS, PeerWire, Script, provider, until
from tests.upstream.rig import JSON_HEAD, Rig, rigged, with_length
from tests.upstream.silence import vanish

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's packet filter and TCP_INFO are Linux's")

QUICK = Patience(idle=1, interval=1, count=1, unanswered=1.0, look=0.1)
ANSWER = with_length(JSON_HEAD, b"{}")


def impatient(rig: Rig) -> None:
    """Asks the rig's peers for signs of life every second, as nobody but a test does."""
    rig.pool.dialer = Dialer(rig.peer.address, patience=QUICK)


async def watched(rig: Rig, running: asyncio.Task[Outcome]) -> Outcome:
    """Looks for vanished peers, by real time, until the call has ended."""
    loop = asyncio.get_running_loop()
    while not running.done():
        rig.pool.dialer.end_vanished(loop.time())
        await asyncio.sleep(0.05)
    return await running


def serves(count: int) -> Script:
    """Answers so many requests, and vanishes when it has read another one."""

    async def script(wire: PeerWire) -> None:
        for _ in range(count):
            await wire.request()
            await wire.body(28)
            await wire.send(ANSWER)
        await wire.request()
        vanish(wire.writer.get_extra_info("socket"))
        await wire.gone()

    return script


async def test_upstream_sockets_ask_for_signs_of_life() -> None:
    async with rigged(serves(1)) as rig:
        connection = await rig.pool.dialer.dial(PATIENCE_SECONDS)
        assert connection.transport is not None
        bound = connection.transport.get_extra_info("socket")
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert [bound.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [20, 5, 3]
        connection.kill()


async def test_a_peer_that_vanishes_while_it_owes_an_answer_ends_the_call() -> None:
    async with rigged(serves(0)) as rig:
        impatient(rig)
        outcome, attempt = await rig.call()
        assert (outcome.kind, outcome.maybe_executed) == (OutcomeKind.DISCONNECTED, True)
        assert "timed out before the head" in outcome.detail
        assert attempt.sent_bytes


async def test_a_peer_that_vanishes_while_its_connection_rests_ends_the_next_call_and_its_other_connections() -> None:
    wires: list[PeerWire] = []
    both = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        wires.append(wire)
        await wire.request()
        await wire.body(28)
        if len(wires) == 2:
            both.set()
        await both.wait()
        await wire.send(ANSWER)
        await wire.gone()

    async with rigged(script) as rig:
        impatient(rig)
        await asyncio.gather(*(rig.start(rig.exchange()) for _ in range(2)))
        assert rig.pool.idle == 2
        for wire in wires:
            vanish(wire.writer.get_extra_info("socket"))
        outcome = await watched(rig, rig.start(rig.exchange()))
        assert (outcome.kind, outcome.maybe_executed) == (OutcomeKind.DISCONNECTED, True)
        assert rig.pool.idle == 0


async def test_a_peer_that_takes_no_more_for_a_while_has_not_vanished() -> None:
    go_on = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await go_on.wait()
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await wire.gone()

    async with provider(script) as peer:
        dialer = Dialer(peer.address, patience=QUICK)
        connection = await dialer.dial(PATIENCE_SECONDS)
        connection.expect(body=True)
        connection.write(ASK, b"x" * (1 << 24))
        await until(lambda: connection.paused)
        loop = asyncio.get_running_loop()
        start = loop.time()
        while loop.time() < start + 3 * QUICK.unanswered:
            dialer.end_vanished(loop.time())
            await asyncio.sleep(0.05)
        assert connection.usable
        go_on.set()
        await connection.drain()
        connection.kill()
        await dialer.close()


class Told:
    """A connection of which the system tells this; both its transport and its socket."""

    def __init__(self, *, retransmits: int = 0, probes: int = 0, unacked: int = 0, heard: float = 0.0) -> None:
        info = bytearray(104)
        info[2], info[3] = retransmits, probes
        info[24:28] = unacked.to_bytes(4, sys.byteorder)
        info[56:60] = round(heard * 1000).to_bytes(4, sys.byteorder)
        self.info = bytes(info)

    @property
    def transport(self) -> Told:
        return self

    def get_extra_info(self, name: str) -> Told:
        assert name == "socket"
        return self

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        return self.info[:size]


@pytest.mark.parametrize(
    ("told", "seconds"),
    [
        (Told(heard=900.0), None),
        (Told(unacked=3, heard=900.0), None),
        (Told(retransmits=2, heard=900.0), None),
        (Told(retransmits=2, unacked=3, heard=7.5), 7.5),
        (Told(probes=1, heard=30.0), 30.0),
    ],
    ids=["nothing to say", "just sent", "acknowledged since", "sent again", "asked"],
)
def test_a_peer_owes_an_acknowledgement_of_what_was_sent_again_or_asked(told: Told, seconds: float | None) -> None:
    assert unanswered_seconds(told) == seconds


def test_a_peer_behind_a_bad_line_that_acknowledges_now_and_then_has_not_vanished() -> None:
    vigil = Vigil(Patience(unanswered=20.0, look=5.0))
    bad, gone = Told(retransmits=1, unacked=1, heard=3.0), Told(retransmits=4, unacked=1, heard=300.0)
    found = {now: cast(list[Told], vigil.vanished([bad, gone], float(now))) for now in range(0, 120, 5)}
    assert not any(bad in those for those in found.values())
    # What was silent before the first look has had its time only after it.
    assert next(now for now, those in found.items() if gone in those) == 20
