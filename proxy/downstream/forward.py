"""The forward listener (`--forward`): targets in absolute form, and CONNECT. Whom it may reach, the policy says.

Else it is the data listener: the same bounds, framing rules, loop detection and shutdown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from proxy.clock import Clock
from proxy.downstream.arrival import Arrival
from proxy.downstream.connections import ConnectionServer
from proxy.downstream.hops import hop_problem
from proxy.downstream.incoming import framing_problem
from proxy.downstream.reply import HttpReply
from proxy.downstream.server import EXCESS, MALFORMED, DataServer, Front
from proxy.downstream.wire import Connection
from proxy.exchange import Exchange
from proxy.fields import Fields
from proxy.outcome import Outcome, Reason, refused
from proxy.ports import Bits
from proxy.trace_context import Sampler

CONNECT: Final = "CONNECT"
ORIGIN_FORM: Final = (
    "this port is a forward proxy: it takes CONNECT and whole addresses (http://host/path); "
    "send requests with a path alone to the port of --listen"
)
_WITH_BODY: Final = "CONNECT has no body; send what follows when the tunnel is there"


class ForwardFront(Front, Protocol):
    """What the forward listener needs of the running policy."""

    def aim(self, exchange: Exchange) -> Outcome | None:
        """Finds out whose a target is, and makes the request one to its owner; returns the refusal of all others."""
        ...


class ForwardConnection(Connection):
    """A client's connection that may become a tunnel; then an end of its half is one of that half only."""

    __slots__ = ()

    def on_headers_complete(self) -> None:
        """The head is whole; what follows one that asks for a tunnel is no HTTP."""
        super().on_headers_complete()
        if self._declining and self.waiting and self.waiting[-1].method == CONNECT:
            self.waiting[-1].switching = self.waiting[-1].should_close = True
            self._declining = False

    def eof_received(self) -> bool | None:
        """Keeps its own half open for whoever has taken it over."""
        return self.finish() or super().eof_received()


class ForwardConnections(ConnectionServer):
    """The connections of the forward listener."""

    def __call__(self) -> Connection:
        """Makes the protocol of one new connection."""
        return ForwardConnection(self._handler, self.connections, self._shapes)


class ForwardServer(DataServer):
    """Accepts what is to be forwarded, and runs each through the pipeline of the policy's provider that it is for."""

    def __init__(self, current: Callable[[], ForwardFront], *, sampler: Sampler, clock: Clock, bits: Bits) -> None:
        super().__init__(current, sampler=sampler, clock=clock, bits=bits)
        self._aims = current
        self.protocols = ForwardConnections(self._handle)

    def _problem(self, arrival: Arrival, exchange: Exchange) -> Outcome | None:
        if arrival.malformed:
            return refused(Reason.BAD_REQUEST, detail=EXCESS.get(arrival.excess, MALFORMED), status=arrival.excess)
        if self.refusing:
            return refused(Reason.SHUTTING_DOWN, retry_after=1.0)
        tunnel = arrival.method == CONNECT
        wrong = framing_problem(arrival, forwards=True) or (
            _WITH_BODY if tunnel and _has_body(arrival.fields) else ORIGIN_FORM if _is_path(arrival.target) else None
        )
        if wrong is not None:
            arrival.end()
            return refused(Reason.BAD_REQUEST, detail=wrong)
        if arrival.fields.shape.counts_hops and (hop := hop_problem(arrival, self.pseudonym)) is not None:
            return hop
        if tunnel and isinstance(exchange.reply, HttpReply):
            exchange.request.switch = partial(HttpReply.establish, exchange.reply)
        return self._aims().aim(exchange)


def _has_body(fields: Fields) -> bool:
    return "transfer-encoding" in fields.shape.first or fields.get("content-length", "0") != "0"


def _is_path(target: str) -> bool:
    return target.startswith("/") or target == "*"
