"""The contract with aiohttp, upstream: dialling, with and without TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
import trustme
from aiohttp import ClientConnectorCertificateError, ClientConnectorError

from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.lookup import Lookup
from tests.ports import free_port
from tests.upstream.peer import ASK, OK, PATIENCE_SECONDS, PeerWire, answering, ask, provider


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


def client_side(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_an_own_authority_is_trusted_through_the_context_and_the_connection_is_reused(
    authority: trustme.CA,
) -> None:
    async with provider(answering(OK, OK), tls=server_side(authority)) as peer:
        dialer = Dialer(peer.address, tls=client_side(authority))
        connection = await dialer.dial(PATIENCE_SECONDS)
        assert await ask(connection) == (200, b"ok")
        assert await ask(connection) == (200, b"ok")
        assert connection.usable
        connection.kill()
        await dialer.close()


@pytest.mark.parametrize("fault", ["unknown authority", "wrong name"])
async def test_a_certificate_that_does_not_fit_is_told_apart(authority: trustme.CA, fault: str) -> None:
    wrong = fault == "wrong name"
    async with provider(answering(OK), tls=server_side(authority, "other.test" if wrong else "localhost")) as peer:
        dialer = Dialer(peer.address, tls=client_side(authority) if wrong else ssl.create_default_context())
        with pytest.raises(ClientConnectorCertificateError):
            await dialer.dial(PATIENCE_SECONDS)
        await dialer.close()


async def test_a_kill_is_prompt_under_tls_though_the_peer_goes_on_sending(authority: trustme.CA) -> None:
    ended = asyncio.Event()

    async def script(wire: PeerWire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while not wire.writer.is_closing():
                await wire.send(b"z" * 1024)
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with provider(script, tls=server_side(authority)) as peer:
        dialer = Dialer(peer.address, tls=client_side(authority))
        connection = await dialer.dial(PATIENCE_SECONDS)
        connection.expect(body=True)
        connection.write(ASK, b"")
        await connection.head()
        connection.kill()
        async with asyncio.timeout(10.0):
            await ended.wait()
        await dialer.close()


async def test_a_handshake_that_never_ends_is_bounded_to_the_fraction_of_a_second() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dialer = Dialer(Address(scheme="https", host="localhost", port=silent.getsockname()[1]))
        loop = asyncio.get_running_loop()
        start = loop.time()
        with pytest.raises(TimeoutError):
            await dialer.dial(0.2)
        assert loop.time() - start < 5.0
        await dialer.close()


async def test_a_refused_connection_tells_its_error_number() -> None:
    dialer = Dialer(Address(scheme="http", host="127.0.0.1", port=free_port()))
    with pytest.raises(ClientConnectorError) as caught:
        await dialer.dial(PATIENCE_SECONDS)
    assert caught.value.os_error.errno is not None
    await dialer.close()


async def test_an_impossible_name_fails_as_one_of_the_dial_errors() -> None:
    dialer = Dialer(Address(scheme="http", host="x" * 64 + ".invalid", port=80))
    with pytest.raises((ClientConnectorError, ValueError, OSError)):
        await dialer.dial(PATIENCE_SECONDS)
    await dialer.close()


@pytest.mark.parametrize(
    ("host", "text"), [("a.test", "http://a.test:80"), ("127.0.0.1", "http://127.0.0.1:80"), ("::1", "http://[::1]:80")]
)
def test_an_address_reads_like_a_url(host: str, text: str) -> None:
    assert str(Address(scheme="http", host=host, port=80)) == text


async def test_dialling_that_is_cancelled_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dialer = Dialer(Address(scheme="https", host="localhost", port=silent.getsockname()[1]))
        dialling = asyncio.ensure_future(dialer.dial(PATIENCE_SECONDS))
        await asyncio.sleep(0.05)
        dialling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dialling
        assert not dialer._connector._acquired
        await dialer.close()


@pytest.mark.parametrize(
    ("host", "asked"), [("localhost", "localhost"), ("localhost.", "localhost"), ("127.0.0.1", None)]
)
async def test_the_name_in_the_handshake_is_the_provider_s_without_a_final_dot(
    authority: trustme.CA, host: str, asked: str | None
) -> None:
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    context.sni_callback = lambda _, name, __: names.append(name)
    async with provider(answering(OK), tls=context) as peer:
        here = Lookup(lambda *_, **how: socket.getaddrinfo("127.0.0.1", peer.port, type=how["type"]))
        address = Address(scheme="https", host=host, port=peer.port)
        dialer = Dialer(address, tls=client_side(authority), lookup=here)
        connection = await dialer.dial(PATIENCE_SECONDS)
        assert await ask(connection) == (200, b"ok")
        assert names == [asked]
        connection.kill()
        await dialer.close()
