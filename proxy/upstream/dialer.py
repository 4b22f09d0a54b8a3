"""Dialling: TCP, TLS, DNS and happy eyeballs by aiohttp's connector, below `ClientSession`.

Everything of aiohttp that is not public is used in this file only; its contract tests notice when another version
changes something.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import Any, Final, cast

from aiohttp import ClientTimeout, TCPConnector
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from proxy.fields import Shapes
from proxy.upstream.address import Address
from proxy.upstream.wire import UpstreamConnection

DNS_SECONDS: Final = 10


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
    """Opens connections to one address; keeps aiohttp's connector and its resolver's cache."""

    __slots__ = ("_connector", "_target", "address")

    def __init__(self, address: Address, *, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._target = _DialTarget(address)
        self._connector = TCPConnector(
            limit=0, ttl_dns_cache=DNS_SECONDS, force_close=False, ssl=tls if tls is not None else True
        )
        self._connector._factory = cast(Any, partial(UpstreamConnection, Shapes()))

    async def dial(self, seconds: float) -> UpstreamConnection:
        """Opens a connection within `seconds`, name look-up and TLS included. Raises aiohttp's errors, TimeoutError."""
        timeout = ClientTimeout(total=None, connect=seconds, sock_connect=seconds, ceil_threshold=float("inf"))
        lease = await self._connector.connect(cast(Any, self._target), traces=[], timeout=timeout)
        connection = cast(UpstreamConnection, lease.protocol)
        connection.lease = lease
        return connection

    @property
    def open(self) -> int:
        """Connections that are open, idle ones included."""
        return len(self._connector._acquired)

    async def close(self) -> None:
        """Closes what the connector itself still holds."""
        await self._connector.close()
