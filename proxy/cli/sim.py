"""`sponson sim`: simulated model providers, to try a policy against."""

from __future__ import annotations

from typing import Any

import click

_HELP = """Run simulated model providers, OpenAI and Anthropic shaped, that fail when told to.

Answers are invented and deterministic by seed. GET /sim/requests shows what really arrived, GET /sim/stats
counts it, POST /sim/faults replaces the faults. A fault names one kind (status=503, reset, silence, cut=3,
error-in-200, drip=20ms, slow=2s, refuse, lost) and whom it meets (from=, to=, rate=, model=, key=, first=, every=,
provider=), for example:

\b
  sponson sim --listen alpha=127.0.0.1:9001 --listen beta=127.0.0.1:9002 \\
    --latency lognormal:300ms,0.5 --tokens-per-second 50 \\
    --fault "status=503,provider=alpha,from=10s,to=20s" --fault "slow=2s,rate=5%"

\b
  sponson sim --api-key sk-1 --api-key sk-2 --key-rpm 60 --key-tpm 100000 --deduplicate --fault "lost,rate=5%"
"""


def _apply_profile(context: click.Context, parameter: click.Parameter, text: str | None) -> None:
    """Makes the profile's provider the default of the other flags."""
    from proxy.simulation.provider.profiles import parse_profile

    if text is not None:
        try:
            context.default_map = {**(context.default_map or {}), **parse_profile(text).flags()}
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None


_OPTIONS = (
    click.option(
        "--profile",
        default=None,
        metavar="NAME[:SCALE]",
        is_eager=True,
        expose_value=False,
        callback=_apply_profile,
        help="A provider as known from the field, tokens divided by SCALE: research-agents. Other flags go above it.",
    ),
    click.option(
        "--listen",
        multiple=True,
        default=["sim=127.0.0.1:9001"],
        metavar="[NAME=]HOST:PORT",
        help="Address of a provider and its name; again for each further provider. Port 0 takes a free one.",
    ),
    click.option(
        "--control",
        default=None,
        metavar="HOST:PORT",
        help="Address for /NAME/sim/... and /NAME/health, reachable while a provider refuses connections.",
    ),
    click.option(
        "--latency",
        default="constant:0s",
        metavar="DIST",
        help="Time before the first byte: 200ms, uniform:100ms,300ms, or lognormal:MEDIAN,SIGMA.",
    ),
    click.option(
        "--thinking",
        default="constant:0s",
        metavar="DIST",
        help="Time between the head of a stream and its first token.",
    ),
    click.option(
        "--heartbeat",
        default="0s",
        metavar="DURATION",
        help="A silent stream gets a comment (Anthropic: a ping) so often; 0s: never.",
    ),
    click.option(
        "--tokens-per-second",
        type=float,
        default=0.0,
        metavar="N",
        help="Pace of streams, one token an event; 0 sends at once.",
    ),
    click.option(
        "--output-tokens",
        type=int,
        default=16,
        metavar="N",
        help="Length of an answer, unless the caller's max_tokens is smaller.",
    ),
    click.option(
        "--answer",
        type=click.Choice(["words", "echo"]),
        default="words",
        help="What answers say: invented words, or the caller's last text again.",
    ),
    click.option(
        "--concurrency",
        type=int,
        default=None,
        metavar="N",
        help="Requests served at once; further ones wait in the provider's queue. Without it: any number.",
    ),
    click.option(
        "--queue",
        type=int,
        default=None,
        metavar="N",
        help="Places in that queue; when it is full, requests are refused. Without it: any number.",
    ),
    click.option(
        "--queue-full-status",
        type=int,
        default=503,
        metavar="503|429",
        help="Status of a request that finds the queue full.",
    ),
    click.option(
        "--api-key",
        "api_keys",
        multiple=True,
        metavar="KEY",
        help="A key to accept, again for each; others get 401. Without it every caller is accepted.",
    ),
    click.option(
        "--rpm",
        type=float,
        default=None,
        metavar="N",
        help="Requests per minute of the account, all keys together; more get 429. Without it: any number.",
    ),
    click.option(
        "--tpm",
        type=float,
        default=None,
        metavar="N",
        help="Tokens per minute of the account.",
    ),
    click.option(
        "--key-rpm",
        type=float,
        default=None,
        metavar="N",
        help="Requests per minute of each key.",
    ),
    click.option(
        "--key-tpm",
        type=float,
        default=None,
        metavar="N",
        help="Tokens per minute of each key.",
    ),
    click.option(
        "--count-tokens",
        type=click.Choice(["arrival", "used"]),
        default="arrival",
        help="When tokens count: prompt and max_tokens at arrival, or the prompt then and the answer as produced.",
    ),
    click.option(
        "--refill",
        type=click.Choice(["continuous", "window"]),
        default="continuous",
        help="How limits fill again: as time passes, or at once when a window ends.",
    ),
    click.option(
        "--window",
        default="60s",
        metavar="DURATION",
        help="So much of a rate can be used at once.",
    ),
    click.option(
        "--idempotency-header",
        default="idempotency-key",
        metavar="NAME",
        help="The header whose value /sim/requests and the counts of executions go by.",
    ),
    click.option(
        "--deduplicate",
        is_flag=True,
        help="Answer a request whose idempotency key was executed with the answer of then, without executing it.",
    ),
    click.option(
        "--conflict-status",
        type=int,
        default=409,
        metavar="409|422",
        help="Status of a request with a used idempotency key and another body.",
    ),
    click.option(
        "--model",
        "models",
        multiple=True,
        default=["sim-chat", "sim-embed"],
        metavar="NAME",
        help="A name for GET /v1/models, again for each; calls may use any name.",
    ),
    click.option(
        "--embedding-dimensions",
        type=int,
        default=64,
        metavar="N",
        help="Length of an embedding, unless the caller asks for another.",
    ),
    click.option(
        "--input-cost",
        default="0",
        metavar="RATIO",
        help="What each further input of a call adds to its latency: 0.05 or 5%. With 0 a batch costs what one does.",
    ),
    click.option(
        "--max-inputs",
        type=int,
        default=2048,
        metavar="N",
        help="Inputs that one call may bring; more get 400.",
    ),
    click.option(
        "--poison",
        default=None,
        metavar="TEXT",
        help="A call fails with 400 if any of its inputs holds this text.",
    ),
    click.option(
        "--shuffle",
        is_flag=True,
        help="Give the vectors and choices of one answer in any order; their index says which is whose.",
    ),
    click.option(
        "--keepalive",
        default="75s",
        metavar="DURATION",
        help="How long an idle connection is kept.",
    ),
    click.option(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="Equal seeds give equal answers, latencies and faults.",
    ),
    click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar="SCRIPT",
        help="Something that goes wrong, such as status=503,from=10s,to=20s; again for each.",
    ),
)


def _with_options(function: Any) -> Any:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class _CannotStart(click.ClickException):
    exit_code = 2


@click.command("sim", help=_HELP, context_settings={"show_default": True})
@_with_options
def command(**options: Any) -> None:
    """Builds the settings, one for each address, and runs until a signal comes."""
    from proxy.simulation.provider.launch import build_group, run_group

    try:
        group = build_group(**options)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    try:
        run_group(group, click.echo)
    except OSError as error:
        raise _CannotStart(f"{error.strerror or error}: choose another --listen or --control") from None
