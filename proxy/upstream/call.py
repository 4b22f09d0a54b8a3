"""One attempt's state on the wire: its connection, its watch, its answer, and how each phase may fail."""

from __future__ import annotations

from typing import Final

from proxy.body import Body
from proxy.clock import Clock
from proxy.exchange import Attempt, CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason, kind_of_status, refused
from proxy.request import BodyTooLarge
from proxy.upstream.answer import AnswerHead
from proxy.upstream.faults import hopeless, why
from proxy.upstream.guarded import forbidden
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from proxy.upstream.keep import KEPT_KINDS, hint
from proxy.upstream.pool import Pool
from proxy.upstream.redial import redial, worth_redialling
from proxy.upstream.relay import Relay
from proxy.upstream.shortage import cure_of
from proxy.upstream.tunnel import Tunnel
from proxy.upstream.upload import UploadPump
from proxy.upstream.vigil import VANISHED
from proxy.upstream.watch import Watch
from proxy.upstream.whole import relay_whole
from proxy.upstream.wire import UpstreamConnection
from proxy.websocket.handshake import agrees

BODILESS: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})
STALE_STATUS: Final = 408
SURELY_SENT: Final = 16384
"""A request of up to so many bytes has left the process as soon as it was written on an idle connection."""
PLAIN: Final = frozenset({200, 201, 202, 203})
"""Good statuses whose answers have bodies."""


class Call:
    """An attempt while it uses the network. `close` must be called, whatever happened."""

    __slots__ = (
        "_answer_headers",
        "_pool",
        "_pump",
        "attempt",
        "clock",
        "connection",
        "exchange",
        "late",
        "message",
        "payload",
        "reusable",
        "stalled",
        "watch",
    )

    message: AnswerHead
    payload: Body
    watch: Watch

    def __init__(self, exchange: Exchange, pool: Pool, answer_headers: AnswerHeaders, clock: Clock) -> None:
        assert exchange.attempt is not None
        self.exchange = exchange
        self.attempt: Attempt = exchange.attempt
        self.clock = clock
        self.connection: UpstreamConnection | None = None
        self.late = False
        self.reusable = False
        self.stalled = False
        self._pool = pool
        self._pump: UploadPump | None = None
        self._answer_headers = answer_headers

    def reuse(self) -> UpstreamConnection | None:
        """Takes an idle connection; None when there is none."""
        now = self.clock.now()
        pool, attempt, exchange = self._pool, self.attempt, self.exchange
        attempt.address = pool.peer
        if exchange.progress is not None:
            exchange.progress.on_wire(now)
        again = exchange.repeatable and exchange.replayable and exchange.payload is not None
        connection = self.connection = pool.take(now) if again else pool.take_silent(now)
        if connection is not None:
            attempt.reused = True
            attempt.connected_at = now
        return connection

    async def dial(self) -> UpstreamConnection:
        """Opens a connection within the connect limit and the deadline. Raises what prevented it."""
        pool, attempt, now = self._pool, self.attempt, self.clock.now()
        due = min(now + attempt.limits.connect, self.exchange.deadline_at)
        if due <= now:
            self.late = True
            raise TimeoutError
        pool.dials += 1
        try:
            self.connection = await pool.dialer.dial(due - now)
        except Exception as error:
            if not worth_redialling(error):
                raise
            self.connection = await redial(pool.dialer, attempt, lambda: due - self.clock.now())
        now = attempt.connected_at = self.clock.now()
        pool.opened(self.connection, now)
        return self.connection

    def send(self, connection: UpstreamConnection, headers: HeaderPlan) -> None:
        """Writes head and body, or the head alone and starts to pass the body on; the answer's limit runs from here.

        Where the connection is lost already nothing is written, and the next read says why.
        """
        self._guard(connection)
        if connection.transport is None or connection.transport.is_closing():
            return
        exchange = self.exchange
        request, payload = exchange.request, exchange.payload
        connection.expect(body=request.method != "HEAD")
        if payload is None:
            self._send_upload(connection, headers)
            return
        bare = not payload and (request.method in BODILESS or "content-length" not in request.fields)
        size = -1 if bare else len(payload)
        switches = bare and request.switch is not None
        head = headers.handshake_head(exchange) if switches else headers.request_head(exchange, size)
        connection.write(head, payload)
        sent = self.attempt.sent_bytes = len(head) + len(payload)
        if sent > SURELY_SENT and not _is_sent(connection):
            connection.listen()
        if not exchange.replayable:
            exchange.forget_body()

    def took(self, head: tuple[AnswerHead, Body]) -> bool:
        """Takes the head of an answer; False when it is an interim one: the final one is still to come."""
        message, payload = head
        code = message.code
        if code < 200 and code != 101:
            return False
        self.message, self.payload = message, payload
        attempt, fields = self.attempt, message.headers
        attempt.head_at = self.clock.now()
        attempt.status = code
        if (at := fields.shape.first.get("keep-alive")) is not None:
            self._pool.told(fields.lines[at])
        if self._answer_headers.heeds_rates and (plan := self._answer_headers.rates(fields.shape)) is not None:
            attempt.rates = plan.read(fields.lines, self.clock.wall_ns() / 1e9)
        return True

    def whole(self) -> Outcome | None:
        """Relays a good answer that is here already, and plain to read; None: `answer` has to see to it."""
        message, payload = self.message, self.payload
        if not payload.is_eof() or message.code not in PLAIN or self._pump is not None:
            return None
        fields, exchange = message.headers, self.exchange
        first = fields.shape.first
        if "content-encoding" in first:
            return None
        at = first.get("content-type")
        kind = fields.lines[at].lower() if at is not None else b""
        if b"text/" in kind or exchange.request.method == "HEAD":
            return None
        lines = self._answer_headers.forward(fields)
        operation = exchange.operation if b"json" in kind else None
        outcome = relay_whole(self, lines, operation, payload.taken(), now=self.attempt.head_at)
        self.reusable = not message.should_close
        return outcome

    async def answer(self) -> Outcome:
        """Relays the answer, or keeps it when it is a failing one. Raises what broke it."""
        message = self.message
        if message.code == 101 and self._agreed(message):
            return await Tunnel(self, self._answer_headers.forward(message.headers)).run()
        if message.code == 101:
            return Outcome(OutcomeKind.BAD_ANSWER, maybe_executed=True, detail="a 101 that nobody asked for")
        if message.code == STALE_STATUS and self.attempt.reused:
            # It was closing while the request was on its way: a server that has read a request answers that one.
            return Outcome(OutcomeKind.DISCONNECTED, detail="a 408 on a reused connection")
        relay = Relay(self, self._answer_headers.forward(message.headers))
        if kind_of_status(message.code) in KEPT_KINDS or (message.code >= 400 and hint(message.headers)):
            outcome = await relay.failing()
        else:
            outcome = await relay.run()
        self.reusable = not message.should_close and self.payload.at_eof() and (self._pump is None or self._pump.done)
        return outcome

    def _agreed(self, message: AnswerHead) -> bool:
        request, connection = self.exchange.request, self.connection
        assert connection is not None
        return request.switch is not None and connection.switched and agrees(request.fields, message.headers)

    def not_connected(self, kind: OutcomeKind, error: BaseException) -> Outcome:
        """Returns the outcome of a failed dial: nothing was sent. Our own shortage is a refusal of our own."""
        if (cure := cure_of(error)) is not None:
            return refused(Reason.UPSTREAM_UNREACHABLE, detail=cure)
        if (cause := forbidden(error)) is not None:
            return refused(Reason.FORBIDDEN_TARGET, detail=str(cause.strerror))
        if self.late or self.clock.now() >= self.exchange.deadline_at:
            kind = OutcomeKind.TOTAL_TIMEOUT
        detail = f"{why(error)} while connecting to {self._pool.address}"
        return Outcome(kind, should_retry=False if self._pool.alone and hopeless(error) else None, detail=detail)

    def no_head(self, kind: OutcomeKind, error: BaseException) -> Outcome:
        """Returns the outcome of a connection that ended before the head: what was sent may have been executed."""
        if (problem := self._upload_problem()) is not None:
            return problem
        if getattr(error, "errno", None) in VANISHED and self.connection is not None:
            self._pool.distrust(self.connection, self.attempt.connected_at)
        kind = self.watch.expired or kind
        what = "no head within the limit" if self.watch.expired else f"{why(error)} before the head"
        return Outcome(kind, maybe_executed=self.attempt.sent_bytes > 0, detail=what)

    def broken(self, kind: OutcomeKind, error: BaseException) -> Outcome:
        """Returns the outcome of an answer that ended before its end; the relay has shown the break to the caller."""
        if self.stalled:
            return Outcome(OutcomeKind.CLIENT_LEFT, committed=True, detail="the client stopped reading")
        committed = self.exchange.reply.started
        if (problem := self._upload_problem()) is not None:
            problem.committed = committed
            return problem
        kind = self.watch.expired or kind
        return Outcome(
            kind,
            status=self.attempt.status,
            committed=committed,
            maybe_executed=not committed,
            detail="the limit passed in the body" if self.watch.expired else f"{why(error)} in the body",
        )

    def close(self) -> None:
        """Ends the attempt: the connection goes back to its pool, or is killed."""
        if self._pump is not None:
            self._pump.stop()
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if connection.watch is not None:
            connection.watch.rest()
        sent = self._pump is None and self.attempt.sent_bytes <= SURELY_SENT
        if not sent:
            sent = _is_sent(connection)
            connection.hear_no_more()
        if self.reusable and sent:
            self._pool.put(connection, self.clock.now())
        else:
            connection.kill()

    def content_came(self, now: float) -> None:
        """Notes the first content of the answer, once; what a failing one brings is no content."""
        if not self.attempt.first_content_at and self.message.code < 400:
            self.attempt.first_content_at = now
            if self.exchange.progress is not None:
                self.exchange.progress.first_content(now)

    def _guard(self, connection: UpstreamConnection) -> None:
        """Watches the time to the head: the first-byte limit of a stream, else the answer limit, and the deadline."""
        now, limits, deadline_at = self.attempt.connected_at, self.attempt.limits, self.exchange.deadline_at
        watch = connection.watch
        if watch is None:
            watch = connection.watch = Watch(self.clock)
        self.watch = watch
        watch.guard(self._expired)
        if self.exchange.facts.stream:
            watch.arm(now + limits.first_byte, OutcomeKind.FIRST_BYTE_TIMEOUT, deadline_at=deadline_at)
        else:
            watch.arm(now + limits.answer, OutcomeKind.ANSWER_TIMEOUT, deadline_at=deadline_at)

    def _send_upload(self, connection: UpstreamConnection, headers: HeaderPlan) -> None:
        request = self.exchange.request
        assert request.upload is not None
        head = headers.request_head(self.exchange, request.upload.length)
        connection.write(head, b"")
        self.attempt.sent_bytes = len(head)
        request.upload_taken = True
        connection.listen()
        self._pump = UploadPump(request.upload, connection)

    def _upload_problem(self) -> Outcome | None:
        if self._pump is None:
            return None
        if self._pump.problem is None:
            if not (self._pump.waits and self.watch.expired):
                return None
            # The provider could not answer: it was still waiting for the caller.
            detail = "the request's body did not come within the answer's limit; send it faster"
            return Outcome(OutcomeKind.CALLER_ERROR, reason=Reason.BAD_REQUEST, detail=detail)
        reason = Reason.BODY_TOO_LARGE if isinstance(self._pump.problem, BodyTooLarge) else Reason.BAD_REQUEST
        return Outcome(OutcomeKind.CALLER_ERROR, reason=reason, detail=f"the request's body: {self._pump.problem}")

    def _expired(self) -> None:
        if self.stalled:
            self.exchange.cancel_cause = CancelCause.STALLED
            self.exchange.reply.abort()
        if self.connection is not None:
            self.connection.abort()


def _is_sent(connection: UpstreamConnection) -> bool:
    """Whether no part of a request waits to be sent still, after its answer: no other may come behind it."""
    return connection.transport is None or not connection.transport.get_write_buffer_size()
