"""A request as its connection hands it over: its head, its body on the way, and the way back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final, Protocol, cast

from proxy.body import Body, BodyBroken
from proxy.exchange import Exchange
from proxy.fields import Fields, HeadTooLarge, TargetTooLong, fields_of
from proxy.link import Link

LINGER_SECONDS: Final = 2.0
LONGEST_LINGER_SECONDS: Final = 30.0
"""After an early answer a client that sends on is listened to so long at most, and one that sends nothing shorter."""
VERSIONS: Final = {"1.1": (1, 1), "1.0": (1, 0)}
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})


class ClientLink(Protocol):
    """What a request needs of its connection."""

    transport: asyncio.Transport | None
    paused: bool
    last: bool

    def pause_reading(self) -> None:
        """Brings nothing more for now."""
        ...

    def resume_reading(self) -> None:
        """Goes on."""
        ...

    async def drain(self) -> None:
        """Returns when the client has taken enough. Raises `ReaderGone`."""
        ...

    def cancel(self) -> None:
        """Cancels what is served."""
        ...


class Arrival:
    """One request of a connection; `target` is as it was written.

    `should_close`: the client wants no other answer. `malformed`: bytes that are none, which can only be refused.
    `switching`: it asks for a WebSocket. `excess`: the status that says what of a malformed one is too large, or 0.
    """

    __slots__ = (
        "_connection", "excess", "exchange", "fields", "malformed", "method", "payload", "should_close", "switching",
        "target", "version",
    )  # fmt: skip

    def __init__(self, connection: ClientLink, method: str, target: str, fields: Fields, payload: Body) -> None:
        self._connection = connection
        self.method = method
        self.target = target
        self.fields = fields
        self.payload = payload
        self.version = (1, 1)
        self.excess = 0
        self.should_close = self.malformed = self.switching = False
        self.exchange: Exchange | None = None

    def __repr__(self) -> str:
        # A target may carry a secret.
        return f"<Arrival {self.method}{' malformed' * self.malformed}>"

    @property
    def link(self) -> Link:
        """The connection, for who takes it over."""
        return cast(Link, self._connection)

    @property
    def transport(self) -> asyncio.Transport | None:
        """The connection; None once it is lost."""
        return self._connection.transport

    @property
    def paused(self) -> bool:
        """True while the client does not take what is written."""
        return self._connection.paused

    @property
    def closing(self) -> bool:
        """True when the server takes no further request on this connection."""
        return self._connection.last

    async def drain(self) -> None:
        """Returns when the client has taken enough. Raises `ReaderGone`."""
        await self._connection.drain()

    def end(self) -> None:
        """Makes this the connection's last request; its body may still be read."""
        self._connection.last = True

    def cancel(self) -> None:
        """Cancels whatever handles this request; its connection ends with it."""
        self._connection.cancel()


def only_framing(asked: Arrival) -> bytes:
    """Returns the bytes of another head whose body is framed as this one's, and that says nothing else."""
    lines = [b"%b: %b\r\n" % field for field in asked.fields.raw if field[0].lower() in _FRAMING]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lines)


def excess_of(error: BaseException | None) -> int:
    """Returns the status for a head that is too large (RFC 9110 §15.5.15, RFC 6585 §5); 0 for any other error."""
    if isinstance(error, TargetTooLong):
        return 414
    return 431 if isinstance(error, HeadTooLarge) else 0


def unknown(connection: ClientLink, data: bytes, *, excess: int = 0) -> Arrival:
    """Returns what stands for bytes that are no request: they may begin anywhere; only a whole line has a path."""
    words = data.partition(b"\r\n")[0].split(b" ")
    target = words[1] if len(words) == 3 and words[2].startswith(b"HTTP/") else b""
    path = target.partition(b"?")[0].decode("latin-1") if target.startswith(b"/") else "/"
    body = Body(connection)
    body.end()
    arrival = Arrival(connection, "UNKNOWN", path, fields_of(()), body)
    arrival.malformed = arrival.should_close = True
    arrival.excess = excess
    return arrival


async def linger(payload: Body) -> bool:
    """Reads on for a while after an early answer, so that the client can read it before its writes fail.

    Returns whether the end of the body came; then another request may follow.
    """
    # A stopped upload lets go of the reader in its own next step.
    await asyncio.sleep(0)
    with contextlib.suppress(TimeoutError, BodyBroken):
        loop = asyncio.get_running_loop()
        last = loop.time() + LONGEST_LINGER_SECONDS
        async with asyncio.timeout(LINGER_SECONDS) as limit:
            while await payload.readany():
                limit.reschedule(min(loop.time() + LINGER_SECONDS, last))
    return payload.is_eof()
