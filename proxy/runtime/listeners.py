"""The listeners for applications' traffic, as one: what is under way, and its end. And what leads to them."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address

from proxy.downstream.listen import CannotListen, bind, parse_address
from proxy.downstream.server import DataServer
from proxy.exchange import CancelCause


class Listeners:
    """Several data servers that drain together."""

    def __init__(self, servers: Iterable[DataServer]) -> None:
        self._servers = tuple(servers)

    @property
    def draining(self) -> bool:
        """Whether a shutdown has begun."""
        return self._servers[0].draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        for server in self._servers:
            server.draining = draining

    @property
    def refusing(self) -> bool:
        """Whether what comes is refused."""
        return self._servers[0].refusing

    @refusing.setter
    def refusing(self, refusing: bool) -> None:
        for server in self._servers:
            server.refusing = refusing

    @property
    def last_arrival(self) -> float:
        """When a request came last."""
        return max(server.last_arrival for server in self._servers)

    @property
    def in_flight(self) -> int:
        """Exchanges under way."""
        return sum(server.in_flight for server in self._servers)

    @property
    def busy(self) -> int:
        """Exchanges under way, and answers that are not delivered to their end."""
        return sum(server.busy for server in self._servers)

    def stop_listening(self) -> None:
        """Takes no new connection, and closes those that are idle."""
        for server in self._servers:
            server.stop_listening()

    def cancel_all(self, cause: CancelCause) -> None:
        """Ends every exchange under way."""
        for server in self._servers:
            server.cancel_all(cause)

    async def close(self) -> None:
        """Ends every connection."""
        for server in self._servers:
            await server.close()


class OwnPorts:
    """Tells whether a connection leads to this process: it stays on this machine, and its port is one of ours."""

    def __init__(self) -> None:
        self._ports: set[int] = set()

    def add(self, sockets: Iterable[socket.socket]) -> None:
        """These are ours."""
        self._ports.update(one.getsockname()[1] for one in sockets)

    def __call__(self, remote: str, port: int, here: str) -> bool:
        """Whether a connection to this address and port, from the address `here`, does."""
        if port not in self._ports:
            return False
        return remote == here or not remote or ip_address(remote.partition("%")[0]).is_loopback


def bound_to(flag: str, text: str) -> list[socket.socket]:
    """Binds and listens: only who listens is told of another who has the port, and uvloop keeps that to itself."""
    try:
        sockets = bind(parse_address(text))
        for one in sockets:
            one.listen()
    except CannotListen as error:
        raise CannotListen(f"{flag}: {error}") from error
    except OSError as error:
        raise CannotListen(f"{flag}: cannot listen on {text}: {error.strerror}; choose another port") from error
    return sockets
