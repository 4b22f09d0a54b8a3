"""What a provider says while a large body is on its way to it: an early answer is heard (RFC 9112 §9.5, §9.6).

A write to a connection that its peer has reset ends it, with what the peer had said before and nobody has read: the
answer that says why. So whoever writes asks first whether something is to be read. For what comes between the
question and the write the socket has a second descriptor, which outlives its transport.
"""

from __future__ import annotations

import asyncio
import os
import resource
import select
import ssl
from collections.abc import Callable
from functools import cache
from typing import Any, Final

READ_BYTES: Final = 65536
NONE: Final = -1


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

    __slots__ = ("_own", "_poll", "_tls")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._own = NONE
        self._poll = select.poll()
        self._tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        connected = transport.get_extra_info("socket")
        descriptor = connected.fileno() if connected is not None else NONE
        if descriptor != NONE:
            self._own = _second(descriptor)
            self._poll.register(descriptor if self._own == NONE else self._own, select.POLLIN)

    def __repr__(self) -> str:
        return f"<Ear {'without' if self._own == NONE else 'with'} a descriptor of its own>"

    @property
    def hears(self) -> bool:
        """Whether something has come that nobody has read."""
        return bool(self._poll.poll(0))

    def tell(self, take: Callable[[bytes], None]) -> None:
        """Hands over what came before the connection was lost and nobody has read; then listens no longer."""
        try:
            while self._own != NONE and (data := os.read(self._own, READ_BYTES)):
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
        own, self._own = self._own, NONE
        if own != NONE:
            self._poll.unregister(own)
            os.close(own)


def _second(descriptor: int) -> int:
    """Returns a second descriptor of the socket; `NONE` when the last quarter is reached, which connections need."""
    try:
        own = os.dup(descriptor)
    except OSError:
        return NONE
    if own * 4 < resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 3:
        return own
    os.close(own)
    return NONE


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
