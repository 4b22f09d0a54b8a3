from __future__ import annotations

import errno
import socket

import pytest
from aiohttp import ClientConnectorDNSError, ClientConnectorError, ServerDisconnectedError

from proxy.decisions.fallback import moves_on
from proxy.decisions.verdict import Verdict, verdict_of
from proxy.outcome import OutcomeKind, Reason
from proxy.upstream.dialer import Dialer
from proxy.upstream.shortage import CURES, cure_of
from proxy.upstream.wire import UpstreamConnection
from tests.upstream.peer import OK, answering
from tests.upstream.rig import rigged
from tests.upstream.test_redial import KEY


class Short(Dialer):
    """Cannot open a socket."""

    tries = 0

    async def dial(self, seconds: float, *, spare: bool = False) -> UpstreamConnection:
        """Raises what the connector makes of it."""
        self.tries += 1
        raise ClientConnectorError(KEY, OSError(errno.EMFILE, "Too many open files"))


@pytest.mark.parametrize("number", CURES)
def test_a_shortage_is_ours_however_it_is_told(number: int) -> None:
    error = OSError(number, "no")
    for told in (error, ClientConnectorError(KEY, error), ClientConnectorDNSError(KEY, error)):
        assert cure_of(told) == CURES[number]


@pytest.mark.parametrize(
    "error",
    [
        ClientConnectorError(KEY, ConnectionRefusedError(errno.ECONNREFUSED, "refused")),
        ClientConnectorDNSError(KEY, socket.gaierror(socket.EAI_NONAME, "unknown")),
        ClientConnectorError(KEY, OSError("Multiple exceptions: refused, unreachable")),
        ServerDisconnectedError(),
        TimeoutError(),
        UnicodeError(),
    ],
)
def test_everything_else_is_not(error: Exception) -> None:
    assert cure_of(error) is None


async def test_a_shortage_is_told_with_its_cure_and_blames_nobody_else() -> None:
    async with rigged(answering(OK)) as rig:
        short = rig.pool.dialer = Short(rig.peer.address)
        outcome, attempt = await rig.call()
        assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.UPSTREAM_UNREACHABLE)
        assert "ulimit -n" in outcome.detail
        assert (short.tries, attempt.redials, attempt.sent_bytes) == (1, 0, 0)
        assert verdict_of(outcome) is Verdict.NOT_RECORDED
        assert moves_on(outcome, own_key=True, repeatable=False, resendable=False)
