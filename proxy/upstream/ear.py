"""What a provider says while a large body is on its way to it: an early answer is heard (RFC 9112 §9.5, §9.6).

A write to a connection that its peer has reset ends it, with what the peer had said before and nobody has read: the
answer that says why. So whoever writes asks first whether something is to be read. For what comes between the
question and the write the socket has a second descriptor, which outlives its transport.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Final

READ_BYTES: Final = 65536


class OpenObject(ssl.SSLObject):
    """One connection's TLS; `incoming` takes what comes from the wire, also when its transport is gone."""

    incoming: ssl.MemoryBIO | None = None


class OpenContext(ssl.SSLContext):
    """A client's context whose connections can be read to the end by more than their transport."""

    sslobject_class = OpenObject

    def wrap_bio(self, incoming: ssl.MemoryBIO, *args: Any, **rest: Any) -> ssl.SSLObject:
        """Returns the TLS of one connection, as event loops ask for it."""
        wrapped = super().wrap_bio(incoming, *args, **rest)
        assert isinstance(wrapped, OpenObject)
        wrapped.incoming = incoming
        return wrapped


@cache
def trusting_the_system() -> ssl.SSLContext:
    """Returns the context that trusts whom the system trusts; made once, because it reads many certificates."""
    context = ssl.create_default_context()
    # It is to have every default of this Python's, and nothing makes a subclass with them.
    context.__class__ = OpenContext
    context.set_alpn_protocols(("http/1.1",))
    return context


class Ear:
    """Listens to one connection while a body is sent on it. `close` must be called: until then the socket is open."""

    __slots__ = ("_poll", "_socket", "_tls")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._socket: socket.socket | None = None
        self._poll = select.poll()
        self._tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        found = transport.get_extra_info("socket")
        if found is None or found.fileno() < 0:
            return
        try:
            self._socket = socket.socket(fileno=os.dup(found.fileno()))
        except OSError:
            # No descriptor is left: then only what comes in time is heard.
            return
        self._poll.register(self._socket, select.POLLIN)

    def __repr__(self) -> str:
        return f"<Ear {'closed' if self._socket is None else 'open'}>"

    @property
    def hears(self) -> bool:
        """Whether something has come that nobody has read."""
        return self._socket is not None and bool(self._poll.poll(0))

    def tell(self, take: Callable[[bytes], None]) -> None:
        """Hands over what came before the connection was lost and nobody has read; then listens no longer."""
        try:
            while self._socket is not None and (data := self._socket.recv(READ_BYTES, socket.MSG_DONTWAIT)):
                if self._tls is None:
                    take(data)
                else:
                    _decipher(self._tls, data, take)
        except OSError:
            # A reset, or nothing more for now; `SSLError`, which says so within TLS, is one too.
            pass
        self.close()

    def close(self) -> None:
        """Listens no longer."""
        found, self._socket = self._socket, None
        if found is not None:
            self._poll.unregister(found)
            found.close()


def _decipher(tls: ssl.SSLObject, data: bytes, take: Callable[[bytes], None]) -> None:
    """Hands over what these bytes from the wire mean. Raises `SSLError` where they mean no more."""
    if not isinstance(tls, OpenObject) or tls.incoming is None:
        return
    tls.incoming.write(data)
    try:
        while plain := tls.read(READ_BYTES):
            take(plain)
    except ssl.SSLWantReadError:
        return
