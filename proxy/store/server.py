"""A Redis or Valkey server: where it is, connections to it, and what went wrong with it in one word.

Nothing of what the server says is told to people: an old one repeats a password that it does not understand.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from redis.asyncio import Redis

DEFAULT_PORT = 6379
CONNECT_SECONDS = 2.0
REPLY_SECONDS = 0.5
"""How long one reply may take; then the connection counts as lost."""


class LibraryMissing(Exception):
    """The library that speaks to such a server is not installed."""


class Trouble(StrEnum):
    """What went wrong: a closed set, so that it can be a label."""

    CONNECTION = "connection"
    TIMEOUT = "timeout"
    PASSWORD = "password"
    TLS = "tls"
    REFUSED = "refused"
    """It was understood and not done: read only, out of memory, not allowed."""
    PROTOCOL = "protocol"
    """What it says is not what such a server says."""

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server is, out of `redis://host:port/db` or, with TLS, `rediss://`. Raises `ValueError`."""

    host: str
    port: int = DEFAULT_PORT
    database: int = 0
    tls: bool = False

    @classmethod
    def of(cls, url: str) -> Address:
        """Reads a URL; one with credentials, or more than is used, is refused without showing it."""
        parts = urlsplit(url)
        database = unquote(parts.path).removeprefix("/")
        if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
            raise ValueError("a cache server is written redis://HOST:PORT/DATABASE, or rediss:// for TLS")
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise ValueError("the URL of a cache server holds host, port and database only")
        if database and not (database.isascii() and database.isdigit()):
            raise ValueError("the database of a cache server is a number")
        return cls(
            host=parts.hostname,
            port=parts.port or DEFAULT_PORT,
            database=int(database or 0),
            tls=parts.scheme == "rediss",
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.database}"


@dataclass(slots=True, kw_only=True, eq=False)
class Server:
    """A server and who we are to it; `connection` makes clients of one connection each."""

    address: Address
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    authorities: str | None = None
    """A file of certificate authorities in place of the system's."""

    def connection(self) -> Redis:
        """Returns a client that connects when it is first asked, and repeats nothing by itself."""
        require_library()
        from redis.asyncio import Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        address = self.address
        return Redis(
            host=address.host,
            port=address.port,
            db=address.database,
            username=self.username,
            password=self.password,
            ssl=address.tls,
            ssl_ca_certs=self.authorities,
            socket_timeout=REPLY_SECONDS,
            socket_connect_timeout=CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            max_connections=1,
            client_name="sponson",
        )


def require_library() -> None:
    """Raises `LibraryMissing`, which names the extra, where the library is not installed."""
    try:
        import redis.asyncio  # noqa: F401 - only those load it who have such a server
    except ImportError as error:
        raise LibraryMissing("a cache in Redis or Valkey needs the extra: pip install 'sponson[redis]'") from error


def trouble(error: BaseException) -> Trouble:
    """Returns what an error amounts to; of a group, its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    from redis import exceptions

    if isinstance(error, ssl.SSLError) or isinstance(error.__cause__ or error.__context__, ssl.SSLError):
        return Trouble.TLS
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthenticationWrongNumberOfArgsError):
        return Trouble.PASSWORD
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return Trouble.TIMEOUT
    if isinstance(error, exceptions.ConnectionError | OSError):
        return Trouble.CONNECTION
    return Trouble.REFUSED if isinstance(error, exceptions.ResponseError) else Trouble.PROTOCOL
