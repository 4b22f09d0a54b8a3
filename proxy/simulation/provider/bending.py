"""What a fault makes of an answer before it is sent: pure functions over events and bodies."""

from __future__ import annotations

from proxy.simulation.provider.answers import Event
from proxy.simulation.provider.faults import CutBy, Fault, FaultKind, Place


def bent_stream(events: list[Event], error: Event, fault: Fault | None) -> tuple[list[Event], CutBy | None]:
    """Returns the events to send, and how the stream is cut after them (None: it ends properly).

    `error` is the event that `error-in-200` sends in the place of the rest.
    """
    match fault:
        case Fault(kind=FaultKind.CUT) if fault.events < len(events):
            return events[: fault.events], fault.by
        case Fault(kind=FaultKind.ERROR_IN_200, place=Place.BEFORE):
            return [error], None
        case Fault(kind=FaultKind.ERROR_IN_200):
            return [*_first_half(events), error], None
        case _:
            return events, None


def _first_half(events: list[Event]) -> list[Event]:
    contents = [index for index, event in enumerate(events) if event.content]
    return events[: contents[(len(contents) - 1) // 2] + 1]


def bent_body(body: bytes, fault: Fault | None) -> tuple[bytes, CutBy | None]:
    """Returns the bytes to send of a body, and how the answer is cut after them (None: it is whole)."""
    if fault is None or fault.kind is not FaultKind.CUT:
        return body, None
    return body[: len(body) // 2], fault.by
