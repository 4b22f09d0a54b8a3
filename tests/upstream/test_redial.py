from __future__ import annotations

import errno
import socket
import ssl
from typing import cast

import pytest
from aiohttp import (
    ClientConnectionError,
    ClientConnectorCertificateError,
    ClientConnectorDNSError,
    ClientConnectorError,
    ClientConnectorSSLError,
    ServerDisconnectedError,
)
from aiohttp.client_reqrep import ConnectionKey

from proxy.exchange import Attempt
from proxy.upstream.address import Address
from proxy.upstream.dialer import Dialer
from proxy.upstream.redial import REDIALS, redial, worth_redialling
from proxy.upstream.wire import UpstreamConnection
from tests.fakes import LIMITS

KEY = ConnectionKey("a.test", 80, False, True, None, None, None, None)
REFUSED = ClientConnectorError(KEY, ConnectionRefusedError(111, "refused"))
SHORT = ClientConnectorError(KEY, OSError(errno.EMFILE, "too many open files"))
NO_NAME = ClientConnectorDNSError(KEY, OSError(-2, "unknown"))
NO_ANSWER = ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_AGAIN, "try again"))
NO_TLS = ClientConnectorSSLError(KEY, ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"))
BROKE_OFF = ClientConnectorSSLError(KEY, ssl.SSLEOFError(8, "EOF occurred in violation of protocol"))
BAD_NAME = ClientConnectorCertificateError(KEY, ssl.CertificateError("wrong"))
CONNECTION = cast(UpstreamConnection, object())


class FakeDialer:
    address = Address(scheme="http", host="a.test", port=80)

    def __init__(self, *script: BaseException | None) -> None:
        self._script = list(script)
        self.given: list[float] = []

    async def dial(self, seconds: float) -> UpstreamConnection:
        self.given.append(seconds)
        step = self._script.pop(0)
        if step is not None:
            raise step
        return CONNECTION


def an_attempt() -> Attempt:
    return Attempt(number=1, tier=1, provider="a", model="m", limits=LIMITS)


@pytest.mark.parametrize("failures", range(REDIALS))
async def test_it_dials_again_until_it_succeeds_and_counts(failures: int) -> None:
    dialer, attempt = FakeDialer(*[REFUSED] * failures, None), an_attempt()
    assert await redial(cast(Dialer, dialer), attempt, lambda: 4.0) is CONNECTION
    assert (attempt.redials, dialer.given) == (failures + 1, [4.0] * (failures + 1))


async def test_it_gives_up_with_the_last_error() -> None:
    last = ServerDisconnectedError()
    dialer, attempt = FakeDialer(*[REFUSED] * (REDIALS - 1), last, None), an_attempt()
    with pytest.raises(ServerDisconnectedError) as caught:
        await redial(cast(Dialer, dialer), attempt, lambda: 4.0)
    assert caught.value is last
    assert attempt.redials == REDIALS


@pytest.mark.parametrize("error", [NO_NAME, BAD_NAME, NO_TLS, SHORT])
async def test_what_is_wrong_a_moment_later_too_ends_it_at_once(error: Exception) -> None:
    dialer, attempt = FakeDialer(error, None), an_attempt()
    with pytest.raises(type(error)) as caught:
        await redial(cast(Dialer, dialer), attempt, lambda: 4.0)
    assert caught.value is error
    assert attempt.redials == 1


async def test_it_does_not_dial_when_the_connect_limit_has_passed() -> None:
    dialer, attempt = FakeDialer(None), an_attempt()
    with pytest.raises(TimeoutError):
        await redial(cast(Dialer, dialer), attempt, lambda: 0.0)
    assert dialer.given == []


async def test_a_limit_that_passes_while_dialling_ends_it() -> None:
    dialer, attempt = FakeDialer(TimeoutError(), None), an_attempt()
    with pytest.raises(TimeoutError):
        await redial(cast(Dialer, dialer), attempt, lambda: 4.0)
    assert len(dialer.given) == 1


@pytest.mark.parametrize(
    ("error", "worth"),
    [
        (REFUSED, True),
        (ServerDisconnectedError(), True),
        (ClientConnectionError(), True),
        (SHORT, False),
        (NO_NAME, False),
        (NO_ANSWER, False),
        (BAD_NAME, False),
        (NO_TLS, False),
        (BROKE_OFF, True),
        (TimeoutError(), False),
        (UnicodeError(), False),
    ],
)
def test_what_is_worth_another_dial(error: BaseException, worth: bool) -> None:
    assert worth_redialling(error) is worth
