"""Faults as text again, for people and for /sim/faults: what `grammar` reads back unchanged."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.simulation.provider.durations import format_duration
from proxy.simulation.provider.faults import CutBy, Fault, FaultKind, Selector


def format_fault(fault: Fault) -> str:
    """Returns the text that `parse_fault` reads back as this fault."""
    return ",".join([_head(fault), *_option_parts(fault), *_selector_parts(fault.select)])


def _head(fault: Fault) -> str:
    match fault.kind:
        case FaultKind.STATUS:
            return f"status={fault.status}"
        case FaultKind.CUT:
            return f"cut={fault.events}"
        case FaultKind.ERROR_IN_200:
            return f"error-in-200={fault.place}"
        case FaultKind.DRIP | FaultKind.SLOW:
            return f"{fault.kind}={format_duration(fault.delay_seconds)}"
        case _:
            return fault.kind.value


def _option_parts(fault: Fault) -> Iterable[str]:
    if fault.code is not None:
        yield f"code={fault.code}"
    if fault.retry is not None:
        yield f"retry-after={format_duration(fault.retry.seconds)}"
        yield f"form={'+'.join(fault.retry.forms)}"
    if fault.by is not CutBy.CLOSE:
        yield f"by={fault.by}"


def _selector_parts(select: Selector) -> Iterable[str]:
    if select.from_seconds:
        yield f"from={format_duration(select.from_seconds)}"
    if select.to_seconds is not None:
        yield f"to={format_duration(select.to_seconds)}"
    for name in ("provider", "model", "key", "first", "every"):
        if (value := getattr(select, name)) is not None:
            yield f"{name}={value}"
    if select.rate is not None:
        yield f"rate={format(select.rate, 'f') if select.rate < 0.0001 else select.rate}"
