"""`sponson run`: the proxy."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proxy.downstream.listen import ListenAddress, parse_address
from proxy.runtime.compiler import PolicyCompiler
from proxy.runtime.machine import TooFewFiles, allow_files
from proxy.settings import ProcessSettings, instance_index

if TYPE_CHECKING:
    from proxy.clock import Clock
    from proxy.runtime.process import Telemetry

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


class Duration(click.ParamType[float]):
    """`250ms`, `5s`, `10m`, `1h`; a plain number is seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns seconds."""
        match = _DURATION.fullmatch(str(value).strip())
        if match is None:
            self.fail(f"{value!r} is no duration; write for example 250ms, 5s or 2m", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


NOT_YET = {
    "--transparent": "listener for redirected connections",
    "--store": "where batches, jobs and dead letters are kept",
    "--coordinator": "leases and fleet-wide quotas",
    "--admin-token-file": "token for changes through the admin port",
}


def _later(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the flags of the contract that are not built yet: refused by name, never ignored."""
    for flag, meaning in NOT_YET.items():
        variable = "SPONSON_" + flag.strip("-").replace("-", "_").upper()
        option = click.option(flag, envvar=variable, hidden=True, expose_value=False, callback=_refuse, help=meaning)
        command = option(command)
    return command


def _refuse(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(f"{param.opts[0]} ({param.envvar}) is not supported yet; start without it", ctx)


@click.command("run")
@click.option(
    "--policy",
    envvar="SPONSON_POLICY",
    show_envvar=True,
    required=True,
    type=click.Path(path_type=Path),
    help="File or directory.",
)
@click.option(
    "--listen",
    envvar="SPONSON_LISTEN",
    show_envvar=True,
    default="127.0.0.1:4000",
    show_default=True,
    help="Where the application's requests are taken; 127.0.0.1 means ::1 too, :PORT all interfaces.",
)
@click.option(
    "--admin",
    envvar="SPONSON_ADMIN",
    show_envvar=True,
    default="127.0.0.1:4001",
    show_default=True,
    help="Probes, metrics and status; reading only.",
)
@click.option(
    "--forward",
    envvar="SPONSON_FORWARD",
    show_envvar=True,
    default=None,
    help="Where a forward proxy listens (HTTP_PROXY, HTTPS_PROXY); it reaches the policy's hosts only.  [default: off]",
)
@click.option(
    "--linger",
    envvar="SPONSON_LINGER",
    show_envvar=True,
    default="2s",
    type=Duration(),
    show_default=True,
    help="After SIGTERM: how long no new call must have come before exit.",
)
@click.option(
    "--drain",
    envvar="SPONSON_DRAIN",
    show_envvar=True,
    default="25s",
    type=Duration(),
    show_default=True,
    help="Longest shutdown.",
)
@click.option(
    "--state-dir",
    envvar="SPONSON_STATE_DIR",
    show_envvar=True,
    default=None,
    type=click.Path(path_type=Path),
    help="Where later features keep things; nothing is kept there yet.",
)
@click.option(
    "--log-format",
    envvar="SPONSON_LOG_FORMAT",
    show_envvar=True,
    default=None,
    type=click.Choice(["text", "json"]),
    help="[default: text on a terminal, else json]",
)
@_later
def command(**flags: Any) -> None:
    """Run the proxy until SIGTERM.

    Exit codes: 0 done, 1 a bug while ending, 2 could not start, 143 cut short by a second signal.
    """
    try:
        settings, index = _settings(flags), instance_index(os.environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        allow_files()
    except TooFewFiles as error:
        raise click.UsageError(str(error)) from error
    compiler = PolicyCompiler(instance_index=index, environ=settings.environ)
    # The child imports what it needs while this process does the same.
    compiler.warm_up()
    import uvloop

    from otel.setup import build_telemetry
    from proxy.runtime.run import run

    def telemetry(clock: Clock) -> Telemetry:
        return build_telemetry(settings.environ, wall_ns=clock.wall_ns)

    async def to_the_end() -> None:
        code = await run(settings, compiler, telemetry)
        logging.shutdown()
        with suppress(OSError):  # nobody reads it
            sys.stderr.flush()
        # Threads that hang, in a dead collector or on a child, must not hold the exit.
        os._exit(code)

    uvloop.run(to_the_end())


def _settings(flags: dict[str, Any]) -> ProcessSettings:
    addresses: dict[str, ListenAddress] = {}
    for flag in ("listen", "admin", "forward"):
        if flags[flag] is None:
            continue
        try:
            addresses[flag] = parse_address(flags[flag])
        except ValueError as error:
            raise ValueError(f"--{flag} (SPONSON_{flag.upper()}): {error}") from error
    for (one, here), (other, there) in combinations(addresses.items(), 2):
        if here == there and here.port:
            raise ValueError(f"--{one} and --{other} are both {here}; give each a port of its own")
    return ProcessSettings(
        policy=flags["policy"],
        listen=flags["listen"],
        admin=flags["admin"],
        forward=flags["forward"],
        linger_seconds=flags["linger"],
        drain_seconds=flags["drain"],
        log_format=flags["log_format"] or ("text" if sys.stderr.isatty() else "json"),
        state_dir=flags["state_dir"],
        environ=dict(os.environ),
    )
