"""The command's entry: finds a subcommand's module when it is called, so that `run` imports only what it needs."""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version

import click

COMMANDS = {
    "run": "Run the proxy.",
    "check": "Check a policy, offline.",
    "diff": "Say what a change of policy does to live state, offline.",
    "inject": "Add the sidecar to Kubernetes manifests.",
    "schema": "Print the policy's JSON Schema.",
    "demo": "Run the proxy against simulated providers, with traffic.",
    "sim": "Run the provider simulator alone.",
}


class LazyGroup(click.Group):
    """A group whose subcommands are modules of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a subcommand."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"proxy.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _version() -> str:
    try:
        return version("sponson")
    except PackageNotFoundError:
        return "unknown"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(_version(), prog_name="sponson")
def main() -> None:
    """A per-pod proxy for the traffic between an application and model providers."""
