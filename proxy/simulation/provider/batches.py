"""Calls of several inputs: what each further one costs, how many may come at once, and one that spoils all."""

from __future__ import annotations

from proxy.simulation.provider.asks import Ask, BadAsk
from proxy.simulation.provider.settings import SimulatorSettings


def check(ask: Ask, settings: SimulatorSettings) -> None:
    """Raises BadAsk for more inputs than allowed, and where any text holds the poison: the whole call fails then."""
    if ask.field and len(ask.texts) > settings.max_inputs:
        raise BadAsk(f"'{ask.field}' holds more than {settings.max_inputs} items", ask.field)
    if settings.poison is None:
        return
    for index, text in enumerate(ask.texts):
        if settings.poison in text:
            param = f"{ask.field}[{index}]" if len(ask.texts) > 1 else ask.field or "messages"
            raise BadAsk(f"Invalid '{param}': this model cannot process that text.", param)


def work_factor(ask: Ask | None, settings: SimulatorSettings) -> float:
    """Returns how many times longer this call takes than one with a single input."""
    if ask is None:
        return 1.0
    return 1.0 + settings.input_cost * (len(ask.texts) - 1)
