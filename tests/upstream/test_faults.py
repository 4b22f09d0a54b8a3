"""Dials that fail by what their peer is: what is told, with which cure, and whether another try could help."""

from __future__ import annotations

import asyncio
import datetime
import errno
import socket
import ssl
from collections.abc import Callable

import pytest
import trustme
from aiohttp import ClientConnectorDNSError, ClientConnectorError, ClientConnectorSSLError, ServerDisconnectedError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from proxy.outcome import OutcomeKind
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.faults import CERTIFICATES, HANDSHAKES, hopeless, why
from tests.upstream.peer import OK, PATIENCE_SECONDS, PeerWire, answering, provider
from tests.upstream.rig import Rig
from tests.upstream.test_redial import KEY

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def a_server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def expired(authority: trustme.CA) -> ssl.SSLContext:
    return a_server(authority.issue_cert("localhost", not_before=NOW - 9 * DAY, not_after=NOW - DAY))


def too_early(authority: trustme.CA) -> ssl.SSLContext:
    return a_server(authority.issue_cert("localhost", not_before=NOW + DAY, not_after=NOW + 9 * DAY))


def of_another_name(authority: trustme.CA) -> ssl.SSLContext:
    return a_server(authority.issue_cert("models.test"))


def of_an_unknown_authority(authority: trustme.CA) -> ssl.SSLContext:
    return a_server(trustme.CA().issue_cert("localhost"))


def self_signed(authority: trustme.CA) -> ssl.SSLContext:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), NOW - DAY, NOW + DAY)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with trustme.Blob(
        private + made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    ).tempfile() as pem:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
    return context


def of_tls_1_0(authority: trustme.CA) -> ssl.SSLContext:
    context = a_server(authority.issue_cert("localhost"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1
    return context


PEERS: dict[Callable[[trustme.CA], ssl.SSLContext], tuple[str, str]] = {
    expired: ("has expired", "renew"),
    too_early: ("not yet valid", "clock"),
    of_another_name: ("mismatch", "base_url"),
    of_an_unknown_authority: ("local issuer", "SSL_CERT_FILE"),
    self_signed: ("self-signed", "SSL_CERT_FILE"),
}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
async def test_tls_that_cannot_succeed_is_told_with_its_cure_and_not_tried_again(
    authority: trustme.CA, peer: Callable[[trustme.CA], ssl.SSLContext]
) -> None:
    fault, cure = PEERS[peer]
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with provider(answering(OK), tls=peer(authority)) as there:
        rig = Rig(there)
        rig.pool.dialer = Dialer(there.address, tls=trusting)
        outcome, attempt = await rig.call()
        assert (outcome.kind, outcome.should_retry, attempt.redials) == (OutcomeKind.UNREACHABLE, False, 0)
        assert (outcome.maybe_executed, attempt.sent_bytes) == (False, 0)
        assert fault in outcome.detail
        assert cure in outcome.detail
        await rig.pool.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated")
async def test_a_provider_that_speaks_old_tls_only_is_told_so(authority: trustme.CA) -> None:
    # In a thread: the event loop's own TLS ends such a handshake without the alert that tells the version.
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            accepted, _ = listener.accept()
            with pytest.raises(ssl.SSLError), accepted:
                of_tls_1_0(authority).wrap_socket(accepted, server_side=True)

        serving = asyncio.get_running_loop().run_in_executor(None, refuse)
        dialer = Dialer(Address(scheme="https", host="localhost", port=listener.getsockname()[1]))
        with pytest.raises(ClientConnectorSSLError) as caught:
            await dialer.dial(PATIENCE_SECONDS)
        await serving
        assert hopeless(caught.value)
        assert "TLS 1.2" in why(caught.value)
        await dialer.close()


async def test_a_provider_that_speaks_no_tls_is_told_so() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.reader.read(1 << 16)
        await wire.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await wire.gone()

    async with provider(script) as there:
        rig = Rig(there)
        rig.pool.dialer = Dialer(Address(scheme="https", host="localhost", port=there.port))
        outcome, attempt = await rig.call()
        assert (outcome.kind, outcome.should_retry, attempt.redials) == (OutcomeKind.UNREACHABLE, False, 0)
        assert "http://" in outcome.detail
        await rig.pool.close()


async def test_a_handshake_that_breaks_off_is_tried_again() -> None:
    async def script(wire: PeerWire) -> None:
        await wire.reader.read(1)

    async with provider(script) as there:
        rig = Rig(there)
        rig.pool.dialer = Dialer(Address(scheme="https", host="localhost", port=there.port))
        outcome, attempt = await rig.call()
        assert (outcome.kind, outcome.should_retry, attempt.redials) == (OutcomeKind.UNREACHABLE, None, 2)
        assert there.connections == 3
        await rig.pool.close()


async def test_where_the_provider_has_other_addresses_another_attempt_may_reach_one_of_them(
    authority: trustme.CA,
) -> None:
    async with provider(answering(OK), tls=of_an_unknown_authority(authority)) as there:
        rig = Rig(there)
        rig.pool.alone = False
        outcome, attempt = await rig.call()
        assert (outcome.kind, outcome.should_retry, attempt.redials) == (OutcomeKind.UNREACHABLE, None, 0)
        await rig.pool.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_NONAME, "Name or service not known")), True),
        (ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_AGAIN, "Temporary failure")), False),
        (ClientConnectorDNSError(KEY, OSError(None, "the name has no address")), False),
        (ClientConnectorError(KEY, ConnectionRefusedError(errno.ECONNREFUSED, "refused")), False),
        (ServerDisconnectedError(), False),
        (TimeoutError(), False),
        (ValueError("no name"), False),
    ],
)
def test_what_is_hopeless_besides_tls(error: Exception, expected: bool) -> None:
    assert hopeless(error) is expected


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TimeoutError(), "time ran out"),
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "connection timed out"),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), "connection reset by peer"),
        (ClientConnectorError(KEY, OSError(errno.EHOSTUNREACH, "No route to host")), "no route to host"),
        (ServerDisconnectedError(), "server disconnected"),
        (OSError(), "OSError"),
    ],
)
def test_why_says_what_the_system_says(error: Exception, said: str) -> None:
    assert why(error) == said


def test_no_cure_speaks_of_turning_verification_off() -> None:
    for cure in (*CERTIFICATES.values(), *HANDSHAKES.values()):
        assert not {"disable", "insecure", "skip", "verify"} & set(cure.lower().split())
