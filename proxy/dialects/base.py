"""What a dialect can say (`Dialect`) and which call a path stands for (`Operation`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from proxy.dialects.stream import StreamScanner
    from proxy.exchange import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A call that a provider's interface knows.

    `name` is the operation of the OpenTelemetry GenAI conventions, `kind` the wire's own (`chat`,
    `responses`, ...). `inference`: computes an answer and changes nothing, so it may be repeated by
    default. `streams`: may answer with an event stream. `usage_on_request`: that stream tells its usage only to
    those who ask for it.
    """

    name: str
    kind: str
    dialect: Dialect
    inference: bool = True
    streams: bool = False
    usage_on_request: bool = False


class Dialect(Protocol):
    """A provider's wire format."""

    @property
    def name(self) -> str:
        """The word for it in the policy."""
        ...

    def error_body(self, *, status: int, reason: str, message: str, request_id: str) -> bytes:
        """Returns the JSON body of an error answer; its `code` is `reason`.

        An empty `message` is replaced by the standing advice for the reason (`wording.advice`).
        """
        ...

    def error_event(self, *, reason: str, message: str, operation: Operation | None = None) -> bytes:
        """Returns a whole event that shows a break inside a stream that answers `operation`.

        Write it only between events: what it is appended to would else be completed by it, and be read.
        """
        ...

    def usage_of(self, document: Mapping[str, Any]) -> Usage | None:
        """Returns the tokens that a whole answer reports; None when it reports none."""
        ...

    def scanner(self, operation: Operation) -> StreamScanner:
        """Returns a fresh scanner for an event stream that answers `operation`."""
        ...
