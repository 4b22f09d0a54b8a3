"""The process of `sponson sim`: addresses as text, the event loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any

from proxy.simulation.provider.allowance import Refill
from proxy.simulation.provider.durations import parse_duration
from proxy.simulation.provider.grammar import parse_fault
from proxy.simulation.provider.group import SimulatorGroup
from proxy.simulation.provider.latency import parse_latency
from proxy.simulation.provider.limits import TokenRule
from proxy.simulation.provider.settings import AnswerStyle, SettingsError, SimulatorSettings
from proxy.simulation.provider.values import ratio

_AS_TEXT: dict[str, tuple[str, Callable[[str], Any]]] = {
    "latency": ("latency", parse_latency),
    "thinking": ("thinking", parse_latency),
    "heartbeat": ("heartbeat_seconds", parse_duration),
    "input_cost": ("input_cost", ratio),
    "keepalive": ("keepalive_seconds", parse_duration),
    "window": ("window_seconds", parse_duration),
}
"""The settings that flags give as texts: by flag, with what reads them."""


def parse_address(text: str) -> tuple[str, int]:
    """Reads `HOST:PORT` or `[V6]:PORT`; raises SettingsError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise SettingsError(f"{text!r} is not an address: write 127.0.0.1:9001 or [::1]:9001")
    return host, int(port)


def parse_listen(text: str) -> tuple[str, str, int]:
    """Reads `NAME=HOST:PORT`, or an address alone for a provider named `sim`; raises SettingsError."""
    name, equals, address = text.rpartition("=")
    if equals and not name:
        raise SettingsError(f"{text!r} has no name before the equals sign: write alpha=127.0.0.1:9001")
    host, port = parse_address(address)
    return name or "sim", host, port


def build_group(
    *,
    listen: Sequence[str],
    control: str | None,
    faults: Sequence[str],
    **rest: Any,
) -> SimulatorGroup:
    """Returns the providers that the flags describe, one for each `listen`; SettingsError names the flag."""
    with _flag("--listen"):
        places = [parse_listen(text) for text in listen]
    with _flag("--control"):
        control_at = parse_address(control) if control is not None else None
    for name, (setting, reader) in _AS_TEXT.items():
        with _flag(f"--{name.replace('_', '-')}"):
            rest[setting] = reader(rest.pop(name))
    read = []
    for text in faults:
        with _flag(f"--fault {text!r}"):
            read.append(parse_fault(text))
    common = SimulatorSettings(**{**rest, **_chosen(rest), "faults": tuple(read)})
    settings = [replace(common, name=name, host=host, port=port) for name, host, port in places]
    return SimulatorGroup(settings, control=control_at)


def _chosen(flags: dict[str, Any]) -> dict[str, Any]:
    return {
        "answer": AnswerStyle(flags["answer"]),
        "count_tokens": TokenRule(flags["count_tokens"]),
        "refill": Refill(flags["refill"]),
    }


@contextlib.contextmanager
def _flag(name: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise SettingsError(f"{name}: {error}") from None


def run_group(group: SimulatorGroup, say: Callable[[str], None]) -> None:
    """Runs until SIGINT or SIGTERM; tells where each provider listens. OSError when one cannot."""
    _run(_serve(group, say))


async def _serve(group: SimulatorGroup, say: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with group:
        for name, provider in group.providers.items():
            say(f"{name}: {provider.base_url} (OpenAI: {provider.base_url}/v1)")
        if group.control_port is not None:
            say(f"control: port {group.control_port}, /NAME/sim/requests, /NAME/sim/stats, /NAME/sim/faults")
        await stop.wait()


def _run(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
