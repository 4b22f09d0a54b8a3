"""Answer: the policy's own answer, when no provider can give one; a terminal tier."""

from __future__ import annotations

from http import HTTPStatus

from proxy.clock import Clock
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind

JSON = b"content-type: application/json\r\n"


class PolicyAnswer:
    """Answers with a fixed status and JSON body, without asking anybody."""

    __slots__ = ("_body", "_clock", "_phrase", "_status", "number", "own_key", "provider")

    def __init__(self, *, number: int, status: int, body: bytes, clock: Clock) -> None:
        self.number = number
        self.provider = ""
        self.own_key = False
        self._status = status
        self._phrase = _phrase(status)
        self._body = body
        self._clock = clock

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Writes the answer."""
        exchange.facts.first_byte_at = self._clock.now()
        exchange.reply.start(self._status, self._phrase, JSON, length=len(self._body), body=self._body)
        return Outcome(OutcomeKind.ANSWERED, status=self._status, committed=True)


def _phrase(status: int) -> bytes:
    """Returns the status's registered words, none for one that has none."""
    try:
        return HTTPStatus(status).phrase.encode("ascii")
    except ValueError:
        return b""
