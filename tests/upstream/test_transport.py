"""What each exception means, in each phase: the table of `upstream/transport.py` against real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme
from aiohttp import ClientConnectorDNSError, ClientConnectorError
from aiohttp.client_reqrep import ConnectionKey

from proxy.body import BodyBroken
from proxy.exchange import Exchange
from proxy.outcome import OutcomeKind
from proxy.upstream.address import Address
from proxy.upstream.answer import ConnectionEnded, MalformedAnswer
from proxy.upstream.dialer import Dialer
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from proxy.upstream.pool import Pool
from proxy.upstream.transport import BODY_ERRORS, DIAL_ERRORS, HEAD_ERRORS, Transport, _kind
from tests.fakes import FakeClock, make_exchange, with_attempt
from tests.ports import free_port
from tests.upstream.peer import OK, PeerWire, Script, answering, provider
from tests.upstream.rig import Rig, rigged

KEY = ConnectionKey("a.test", 80, False, True, None, None, None, None)
OSERR = ConnectionRefusedError(111, "refused")
DIALS: dict[BaseException, OutcomeKind] = {
    TimeoutError(): OutcomeKind.CONNECT_TIMEOUT,
    ClientConnectorError(KEY, OSERR): OutcomeKind.UNREACHABLE,
    ClientConnectorDNSError(KEY, OSERR): OutcomeKind.UNREACHABLE,
    OSERR: OutcomeKind.UNREACHABLE,
    UnicodeError("label too long"): OutcomeKind.UNREACHABLE,
}
BREAKS = (ConnectionEnded("closed"), ConnectionResetError(), OSError(110, "timed out"))


@pytest.mark.parametrize("error", DIALS, ids=lambda error: type(error).__name__)
def test_what_ends_a_dial(error: BaseException) -> None:
    assert _kind(DIAL_ERRORS, error) is DIALS[error]


@pytest.mark.parametrize("error", [*BREAKS, MalformedAnswer()], ids=lambda error: type(error).__name__)
def test_what_ends_an_answer_before_its_head(error: BaseException) -> None:
    expected = OutcomeKind.DISCONNECTED if error in BREAKS else OutcomeKind.BAD_ANSWER
    assert _kind(HEAD_ERRORS, error) is expected


@pytest.mark.parametrize("error", [*BREAKS, BodyBroken("cut")], ids=lambda error: type(error).__name__)
def test_what_ends_an_answer_after_its_head(error: BaseException) -> None:
    assert _kind(BODY_ERRORS, error) is OutcomeKind.STREAM_BROKEN


def lasting(last: bytes, *, reset: bool) -> Script:
    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.body(28)
        if last:
            await wire.send(last)
            await wire.seen()
        if reset:
            wire.reset()

    return script


ENDS = {
    "nothing": (b"", OutcomeKind.DISCONNECTED),
    "part of the head": (b"HTTP/1.1 200 OK\r\nx: ", OutcomeKind.DISCONNECTED),
    "garbage": (b"SSH-2.0-OpenSSH\r\n\r\n", OutcomeKind.BAD_ANSWER),
    "part of the body": (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart", OutcomeKind.STREAM_BROKEN),
    "part of a chunk": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\npart", OutcomeKind.STREAM_BROKEN),
}


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "reset"])
@pytest.mark.parametrize("name", ENDS)
async def test_a_provider_that_dies(name: str, reset: bool) -> None:
    last, kind = ENDS[name]
    async with rigged(lasting(last, reset=reset)) as rig:
        outcome, _ = await rig.call()
        assert (outcome.kind, rig.pool.idle) == (kind, 0)
        assert outcome.maybe_executed is not outcome.committed
        assert rig.reply.started is outcome.committed
        assert rig.reply.end == ("aborted" if outcome.committed else "")


async def test_a_provider_that_refuses_is_redialled_and_then_unreachable() -> None:
    async with rigged(answering(OK)) as rig:
        port = free_port()
        rig.pool.dialer = Dialer(Address(scheme="http", host="127.0.0.1", port=port))
        outcome, attempt = await rig.call()
        assert (outcome.kind, outcome.maybe_executed, attempt.redials) == (OutcomeKind.UNREACHABLE, False, 2)
        assert str(port) in outcome.detail


async def test_a_provider_that_comes_back_in_the_connect_phase_is_reached_by_a_redial() -> None:
    async with rigged(answering(OK)) as rig:
        port = free_port()
        dead, alive = Dialer(Address(scheme="http", host="127.0.0.1", port=port)), rig.pool.dialer
        rig.pool.dialer = dead

        def come_back() -> None:
            rig.pool.dialer._target = alive._target

        asyncio.get_running_loop().call_later(0.01, come_back)
        outcome, attempt = await rig.call()
        assert (outcome.kind, attempt.redials) == (OutcomeKind.OK, 1)
        await alive.close()


async def test_a_certificate_that_is_not_trusted_is_unreachable_at_once() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    async with provider(answering(OK), tls=context) as peer:
        rig = Rig(peer)
        outcome, attempt = await rig.call()
        assert (outcome.kind, attempt.redials) == (OutcomeKind.UNREACHABLE, 0)
        assert "issuer certificate" in outcome.detail
        await rig.pool.close()


async def test_a_handshake_that_does_not_end_is_a_connect_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pool = Pool(Dialer(Address(scheme="https", host="localhost", port=silent.getsockname()[1])), idle_seconds=25.0)
        plan = HeaderPlan(host="h", own_credential=False, propagate_trace=False)
        transport = Transport(pool=pool, headers=plan, answer_headers=AnswerHeaders(), clock=FakeClock())
        exchange = make_exchange()
        with_attempt(exchange)
        exchange.deadline_at = 1000.1
        assert exchange.attempt is not None
        exchange.upstream_path = "/"
        outcome = await transport(exchange)
        assert (outcome.kind, outcome.maybe_executed) == (OutcomeKind.CONNECT_TIMEOUT, False)
        await pool.close()


async def test_a_bug_on_the_way_is_not_an_outcome_and_leaves_no_connection_behind() -> None:
    class Broken:
        def on_wire(self, now: float) -> None:
            """Does nothing."""

        def first_content(self, now: float) -> None:
            raise ZeroDivisionError

    async with rigged(answering(OK)) as rig:
        exchange: Exchange = rig.exchange(progress=Broken())
        with pytest.raises(ZeroDivisionError):
            await rig.transport(exchange)
        assert rig.pool.idle == 0
