"""Dialling: TCP, TLS, DNS and happy eyeballs by aiohttp's connector, below `ClientSession`.

Everything of aiohttp that is not public is used in this file only; its contract tests notice when another version
changes something.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from aiohttp import ClientConnectorError, ClientTimeout, TCPConnector
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from proxy.fields import Shapes
from proxy.upstream.address import Address
from proxy.upstream.ear import trusting_the_system
from proxy.upstream.lookup import Lookup
from proxy.upstream.vigil import Patience, Vigil
from proxy.upstream.wire import UpstreamConnection

DNS_SECONDS: Final = 10
"""For how long a look-up is believed."""
DISTRUST_SECONDS: Final = 1.0
"""Dials that fail cause at most one look-up in this time."""


class _DialTarget:
    """What the connector reads of a request; one per address."""

    def __init__(self, address: Address) -> None:
        self.url = URL.build(scheme=address.scheme, host=address.host, port=address.port)
        self.host, self.port = address.host, address.port
        self._tls = address.scheme == "https"
        self.ssl = True
        self.proxy = self.proxy_auth = self.proxy_headers = self.server_hostname = None
        self.connection_key = ConnectionKey(address.host, address.port, self._tls, True, None, None, None, None)

    def is_ssl(self) -> bool:
        return self._tls


class Dialer:
    """Opens connections to one address; keeps aiohttp's connector and its resolver's cache.

    `opened` and `failed` count all dials, redials too. `before` is awaited before each that is not a spare one.
    """

    __slots__ = ("_connector", "_forgot_at", "_lookup", "_target", "_vigil", "address", "before", "failed", "opened")

    def __init__(
        self,
        address: Address,
        *,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup | None = None,
        patience: Patience | None = None,
        connection: Callable[[Shapes], UpstreamConnection] = UpstreamConnection,
    ) -> None:
        self.address = address
        self.before: Callable[[], Awaitable[None]] | None = None
        self.opened = self.failed = 0
        self._target = _DialTarget(address)
        self._lookup = lookup or Lookup()
        self._forgot_at = float("-inf")
        self._vigil = Vigil(patience or Patience())
        self._connector = TCPConnector(
            limit=0,
            ttl_dns_cache=DNS_SECONDS,
            force_close=False,
            ssl=(tls or trusting_the_system()) if address.scheme == "https" else True,
            resolver=self._lookup,
            socket_factory=self._vigil.open_socket,
        )
        self._connector._factory = cast(Any, partial(connection, Shapes()))

    async def dial(self, seconds: float, *, spare: bool = False) -> UpstreamConnection:
        """Opens a connection within `seconds`, name look-up and TLS included. Raises aiohttp's errors, TimeoutError.

        A `spare` one is no request's.
        """
        if self.before is not None and not spare:
            await self.before()
        timeout = ClientTimeout(total=None, connect=seconds, sock_connect=seconds, ceil_threshold=float("inf"))
        try:
            lease = await self._connector.connect(cast(Any, self._target), traces=[], timeout=timeout)
        except Exception as error:
            self.failed += 1
            if isinstance(error, (ClientConnectorError, TimeoutError)):
                self._look_up_again()
            raise
        self.opened += 1
        connection = cast(UpstreamConnection, lease.protocol)
        peer = connection.transport.get_extra_info("peername") if connection.transport is not None else None
        connection.remote, connection.forget = peer[0] if peer else "", lease.close
        return connection

    def _look_up_again(self) -> None:
        """Forgets what is known of the name, now and then: nobody may be there because it has moved."""
        now = asyncio.get_running_loop().time()
        if now >= self._forgot_at + DISTRUST_SECONDS:
            self._forgot_at = now
            self._connector.clear_dns_cache()

    @property
    def hosts(self) -> frozenset[str]:
        """The addresses that the latest look-up gave; none where nothing had to be looked up."""
        return self._lookup.hosts

    def end_vanished(self, now: float) -> None:
        """Ends the connections whose peer acknowledges nothing any more; who waits for it is told at once."""
        for connection in self._vigil.vanished(self._connector._acquired, now):
            if connection.transport is not None:
                connection.transport.abort()
            connection.connection_lost(TimeoutError(errno.ETIMEDOUT, "nothing was acknowledged any more"))

    @property
    def open(self) -> int:
        """Connections that are open, idle ones included."""
        return len(self._connector._acquired)

    async def close(self) -> None:
        """Closes what the connector itself still holds."""
        await self._connector.close()
