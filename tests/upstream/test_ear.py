from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import trustme

from proxy.upstream.ear import Ear, OpenContext, OpenObject, trusting_the_system
from tests.upstream.peer import RESET_ON_CLOSE

SAID = b"HTTP/1.1 413 No\r\ncontent-length: 0\r\n\r\n"


class FakeTransport(asyncio.BaseTransport):
    """A transport as far as an ear asks it."""

    def __init__(self, connected: socket.socket | None, *, tls: ssl.SSLObject | None = None) -> None:
        super().__init__({"socket": connected, "ssl_object": tls})


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours and the provider's end of a connection."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        ours = stack.enter_context(socket.create_connection(listening.getsockname()))
        theirs = stack.enter_context(listening.accept()[0])
        ours.setblocking(False)
        yield ours, theirs


def told(ear: Ear) -> bytes:
    heard: list[bytes] = []
    ear.tell(heard.append)
    return b"".join(heard)


def test_it_hears_whether_something_is_to_be_read(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear = Ear(FakeTransport(ours))
    assert not ear.hears
    theirs.sendall(SAID)
    assert ear.hears
    assert ours.recv(1000) == SAID
    assert not ear.hears
    ear.close()


@pytest.mark.parametrize("resets", [True, False], ids=["reset", "closed"])
def test_it_tells_what_was_said_before_the_connection_broke_under_a_write(
    ends: tuple[socket.socket, socket.socket], resets: bool
) -> None:
    ours, theirs = ends
    ear = Ear(FakeTransport(ours))
    ours.sendall(b"unread by the provider")
    theirs.sendall(SAID)
    if resets:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    theirs.close()
    ours.setblocking(True)
    with pytest.raises(ConnectionError):
        ours.sendall(bytes(1 << 26))
    ours.close()
    assert told(ear) == SAID


def test_it_tells_all_of_it(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear = Ear(FakeTransport(ours))
    theirs.sendall(SAID + bytes(200_000))
    theirs.close()
    assert told(ear) == SAID + bytes(200_000)


def test_it_tells_once_and_waits_for_nothing(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ear = Ear(FakeTransport(ours))
    theirs.sendall(SAID)
    assert told(ear) == SAID
    theirs.sendall(SAID)
    assert (told(ear), ear.hears) == (b"", False)


def shaken(ours: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject, ssl.MemoryBIO]:
    """Both ends of a TLS connection after its handshake, and what the provider's end sends."""
    authority = trustme.CA()
    authority.configure_trust(ours)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("provider.test").configure_cert(theirs)
    to_us, to_them = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ours.wrap_bio(to_us, to_them, server_hostname="provider.test")
    server = theirs.wrap_bio(to_them, to_us, server_side=True)
    for end in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    with suppress(ssl.SSLWantReadError):
        client.read(1)
    return client, server, to_us


def test_under_tls_it_tells_what_the_bytes_mean(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    client, server, sent = shaken(OpenContext(ssl.PROTOCOL_TLS_CLIENT))
    ear = Ear(FakeTransport(ours, tls=client))
    server.write(SAID)
    server.write(bytes(100_000))
    data = sent.read()
    ours_already, rest = data[:10], data[10:]
    # The transport had read a part of a record when it was lost.
    assert isinstance(client, OpenObject)
    assert client.incoming is not None
    client.incoming.write(ours_already)
    theirs.sendall(rest)
    theirs.close()
    assert told(ear) == SAID + bytes(100_000)


def test_under_tls_of_another_kind_nothing_is_told(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    client, server, sent = shaken(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    ear = Ear(FakeTransport(ours, tls=client))
    server.write(SAID)
    theirs.sendall(sent.read())
    assert ear.hears
    assert told(ear) == b""


def test_bytes_that_mean_nothing_under_tls_are_nobodys_answer(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    client, _, _ = shaken(OpenContext(ssl.PROTOCOL_TLS_CLIENT))
    ear = Ear(FakeTransport(ours, tls=client))
    theirs.sendall(SAID)
    assert told(ear) == b""


def test_the_system_is_trusted_as_by_default_and_nobody_else() -> None:
    context, default = trusting_the_system(), ssl.create_default_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (context.options, context.verify_flags) == (default.options, default.verify_flags)
    assert isinstance(context, OpenContext)
    assert context.cert_store_stats() == default.cert_store_stats()


def test_a_transport_that_has_ended_says_nothing() -> None:
    ended = socket.socket()
    ended.close()
    for transport in (FakeTransport(None), FakeTransport(ended)):
        ear = Ear(transport)
        assert (ear.hears, told(ear)) == (False, b"")
        ear.close()


def test_it_leaves_no_descriptor_open(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    ears = [Ear(FakeTransport(ours)) for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before + 5
    for ear in ears:
        ear.close()
        ear.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert theirs.fileno() >= 0


@pytest.mark.parametrize("spare", [-1, 2, 5])
def test_where_descriptors_are_few_connections_need_them_more(
    ends: tuple[socket.socket, socket.socket], spare: int
) -> None:
    ours, theirs = ends
    theirs.sendall(SAID)
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (theirs.fileno() + 1 + spare, hard))
    try:
        ear = Ear(FakeTransport(ours))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == before
    assert (ear.hears, told(ear)) == (True, b"")
    assert ours.recv(1000) == SAID
    ear.close()
