"""The terminal stage: one attempt on the wire.

Owns the table of what may go wrong below. Dials or reuses, writes, reads the head, and then relays the answer, or
holds it back while it could still be replaced. Whatever happens, the connection goes back to its pool or is killed.
"""

from __future__ import annotations

from typing import Final

from aiohttp import ClientConnectorError, ClientError

from proxy.body import BodyBroken
from proxy.clock import Clock
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.upstream.answer import MalformedAnswer
from proxy.upstream.call import Call
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from proxy.upstream.pool import Pool

DIAL_ERRORS: Final[tuple[tuple[type[BaseException], OutcomeKind], ...]] = (
    (TimeoutError, OutcomeKind.CONNECT_TIMEOUT),
    (ClientConnectorError, OutcomeKind.UNREACHABLE),
    (ClientError, OutcomeKind.UNREACHABLE),
    (OSError, OutcomeKind.UNREACHABLE),
    (ValueError, OutcomeKind.UNREACHABLE),
)
HEAD_ERRORS: Final[tuple[tuple[type[BaseException], OutcomeKind], ...]] = (
    (MalformedAnswer, OutcomeKind.BAD_ANSWER),
    (OSError, OutcomeKind.DISCONNECTED),
)
BODY_ERRORS: Final[tuple[tuple[type[BaseException], OutcomeKind], ...]] = (
    (BodyBroken, OutcomeKind.STREAM_BROKEN),
    (OSError, OutcomeKind.STREAM_BROKEN),
)
"""What each exception means in each phase: the one place to treat a new one."""

_DIAL_EXPECTED: Final = (ClientError, OSError, TimeoutError, ValueError)
_EXPECTED: Final = (BodyBroken, MalformedAnswer, OSError, TimeoutError)


class Transport:
    """The terminal of one provider's pipelines."""

    __slots__ = ("_answer_headers", "_clock", "_headers", "_pool")

    def __init__(self, *, pool: Pool, headers: HeaderPlan, answer_headers: AnswerHeaders, clock: Clock) -> None:
        self._pool = pool
        self._headers = headers
        self._answer_headers = answer_headers
        self._clock = clock

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Makes one upstream call; returns once its last byte has been relayed, or it has failed."""
        call = Call(exchange, self._pool, self._answer_headers, self._clock)
        try:
            connection = call.reuse()
            if connection is None:
                try:
                    connection = await call.dial()
                except _DIAL_EXPECTED as error:
                    return call.not_connected(_kind(DIAL_ERRORS, error), error)
            call.send(connection, self._headers)
            try:
                while not call.took(await connection.head()):
                    pass
            except _EXPECTED as error:
                return call.no_head(_kind(HEAD_ERRORS, error), error)
            outcome = call.whole()
            if outcome is not None:
                return outcome
            try:
                return await call.answer()
            except _EXPECTED as error:
                return call.broken(_kind(BODY_ERRORS, error), error)
        finally:
            call.close()


def _kind(table: tuple[tuple[type[BaseException], OutcomeKind], ...], error: BaseException) -> OutcomeKind:
    return next((kind for family, kind in table if isinstance(error, family)), OutcomeKind.BUG)
