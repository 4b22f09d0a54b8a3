"""The data listener: one exchange per request; knows what is in flight, so that a shutdown can wait for it."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Protocol

from proxy.clock import Clock
from proxy.dialects.lookup import operation_of
from proxy.downstream.arrival import Arrival
from proxy.downstream.connections import ConnectionServer
from proxy.downstream.hops import hop_problem
from proxy.downstream.incoming import framing_problem, request_of
from proxy.downstream.reply import HttpReply
from proxy.exchange import CancelCause, Exchange, Facts
from proxy.fields import MAX_FIELD, MAX_FIELDS, MAX_HEAD, Fields
from proxy.outcome import Outcome, Reason, refused
from proxy.ports import Bits
from proxy.stage import CallNext
from proxy.trace_context import Sampler, TraceContext, join_trace, new_trace

MALFORMED = "the request is not well-formed HTTP; send it again correctly framed"
EXCESS = {
    414: f"the request's target is longer than {MAX_FIELD >> 10} KiB; put what is long into the body",
    431: f"the request's head is too large: {MAX_FIELD >> 10} KiB a field, {MAX_FIELDS} fields and "
    f"{MAX_HEAD >> 10} KiB in all are taken; send less",
}
OWN_PATHS = "/sponson/"
_log = logging.getLogger("sponson.downstream")


class Front(Protocol):
    """What the server needs of the running policy."""

    @property
    def call(self) -> CallNext:
        """The whole pipeline."""
        ...

    @property
    def refuse(self) -> Callable[[Exchange, Outcome], None]:
        """Answers and records a request that never enters the pipeline."""
        ...


class DataServer:
    """Accepts requests and runs each through the pipeline of the policy that is current when it arrives."""

    def __init__(self, current: Callable[[], Front], *, sampler: Sampler, clock: Clock, bits: Bits) -> None:
        self._current = current
        self._sampler = sampler
        self._clock = clock
        self._bits = bits
        self.pseudonym = ""
        """This process's own name in `Via`."""
        self._prefix = f"{bits(40):010x}"
        self._count = 0
        self.protocols = ConnectionServer(self._handle)
        self.live: dict[Exchange, Arrival] = {}
        self.last_arrival = 0.0
        self.draining = False
        self.refusing = False

    @property
    def in_flight(self) -> int:
        """Exchanges under way."""
        return len(self.live)

    @property
    def busy(self) -> int:
        """Exchanges under way; when there are none, answers that are not taken to the end, and heads that begin."""
        return len(self.live) or self.protocols.unsent

    async def listen(self, sockets: list[socket.socket]) -> None:
        """Starts to accept on bound sockets."""
        self.protocols.listen(sockets)

    def stop_listening(self) -> None:
        """Takes no new connection, and closes those that are idle."""
        self.protocols.stop_listening()

    def cancel_all(self, cause: CancelCause) -> None:
        """Ends every exchange under way; each shows its caller a break."""
        for exchange, arrival in list(self.live.items()):
            exchange.cancel_cause = exchange.cancel_cause or cause
            arrival.cancel()

    async def close(self) -> None:
        """Ends every connection."""
        self.protocols.close()

    async def _handle(self, arrival: Arrival) -> bool:
        """One request; whatever happens, nothing is written after what is on the wire."""
        request = request_of(arrival)
        self._count += 1
        now = self.last_arrival = self._clock.now()
        facts = Facts(f"{self._prefix}{self._count:08x}", now, self._clock.wall_ns())
        facts.trace = self._trace(request.fields)
        reply = HttpReply(arrival, request, facts, closing=self.draining)
        if arrival.switching:
            # With a request of its own: else both would refer to each other, and wait for the garbage collector.
            reply = HttpReply(arrival, request_of(arrival), facts, closing=self.draining)
            request.switch = reply.switch
        exchange = arrival.exchange = Exchange(request, reply, facts)
        self.live[exchange] = arrival
        try:
            front = self._current()
            problem = self._problem(arrival, exchange)
            if problem is not None:
                operation = operation_of(exchange.request.path)
                exchange.dialect = operation.dialect if operation is not None else None
                front.refuse(exchange, problem)
            else:
                await front.call(exchange)
        except Exception:  # noqa: BLE001 - the server's last resort: nothing may follow what is on the wire
            _log.exception("request %s met a bug after its pipeline", exchange.facts.request_id)
            reply.abort()
        finally:
            del self.live[exchange]
        if not reply.started:
            reply.abort()
        return reply.keeps_alive

    def _trace(self, fields: Fields) -> TraceContext:
        shape = fields.shape
        if "traceparent" not in shape.first or "traceparent" in shape.repeated:
            # Of several nobody knows which is meant.
            return new_trace(self._sampler, self._bits)
        state = ",".join(fields.getall("tracestate"))
        return join_trace(fields["traceparent"], state, sampler=self._sampler, bits=self._bits)

    def _problem(self, arrival: Arrival, exchange: Exchange) -> Outcome | None:
        if arrival.malformed:
            return refused(Reason.BAD_REQUEST, detail=EXCESS.get(arrival.excess, MALFORMED), status=arrival.excess)
        if self.refusing:
            return refused(Reason.SHUTTING_DOWN, retry_after=1.0)
        if (wrong := framing_problem(arrival)) is not None:
            # What follows on the connection may be another reading of the same bytes.
            arrival.end()
            return refused(Reason.BAD_REQUEST, detail=wrong)
        if arrival.fields.shape.counts_hops and (hop := hop_problem(arrival, self.pseudonym)) is not None:
            return hop
        if exchange.request.path.startswith(OWN_PATHS):
            return refused(Reason.NO_ROUTE, detail="paths under /sponson/ are the proxy's own; this one is unknown")
        return None
