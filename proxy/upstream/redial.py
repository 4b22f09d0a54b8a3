"""Redials: a second and third try to connect, by aiohttp-retry, inside the same attempt and its connect limit.

Nothing was sent, so a redial is always safe. The happy path never comes here: the first dial is the transport's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from aiohttp import ClientConnectionError, ClientConnectorDNSError, ClientResponse, ClientSession
from aiohttp_retry import RetryClient, RetryOptionsBase

from proxy.exchange import Attempt
from proxy.upstream.dialer import Dialer
from proxy.upstream.faults import hopeless
from proxy.upstream.shortage import cure_of
from proxy.upstream.wire import UpstreamConnection

REDIALS = 2
FIRST_PAUSE_SECONDS = 0.02


def worth_redialling(error: BaseException) -> bool:
    """Whether a failed dial may succeed a moment later; look-ups are asked again by attempts, not by redials."""
    if not isinstance(error, ClientConnectionError) or isinstance(error, ClientConnectorDNSError):
        return False
    return not hopeless(error) and cure_of(error) is None


class _Pauses(RetryOptionsBase):
    """Two more dials, soon; what is not worth one is not tried again."""

    def __init__(self) -> None:
        super().__init__(attempts=REDIALS, exceptions={ClientConnectionError}, retry_all_server_errors=False)

    def get_timeout(self, attempt: int, response: ClientResponse | None = None) -> float:
        return FIRST_PAUSE_SECONDS * 2.0**attempt


class _Connected:
    """What RetryClient takes for a response: a connection, which is good by being there."""

    status = 200
    method = "CONNECT"

    def __init__(self, connection: UpstreamConnection) -> None:
        self.connection = connection


class _Hopeless(Exception):
    """Carries an error past RetryClient, which retries whole families of exceptions."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _DialSession:
    """What RetryClient takes for a session: `request` dials."""

    def __init__(self, dialer: Dialer, attempt: Attempt, left: Callable[[], float]) -> None:
        self._dialer = dialer
        self._attempt = attempt
        self._left = left

    async def request(self, *args: Any, **kwargs: Any) -> _Connected:
        seconds = self._left()
        if seconds <= 0:
            raise TimeoutError
        self._attempt.redials += 1
        try:
            return _Connected(await self._dialer.dial(seconds))
        except ClientConnectionError as error:
            if worth_redialling(error):
                raise
            raise _Hopeless(error) from error

    async def close(self) -> None:
        """Has nothing to close."""


async def redial(dialer: Dialer, attempt: Attempt, left: Callable[[], float]) -> UpstreamConnection:
    """Dials again after a first failure, while `left()` seconds remain. Raises the last error."""
    await asyncio.sleep(min(FIRST_PAUSE_SECONDS, max(left(), 0.0)))
    session = cast(ClientSession, _DialSession(dialer, attempt, left))
    client = RetryClient(client_session=session, retry_options=_Pauses())
    try:
        response = await client.request("CONNECT", str(dialer.address))
    except _Hopeless as hopeless:
        raise hopeless.error from None
    return cast(_Connected, response).connection
