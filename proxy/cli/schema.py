"""`sponson schema`: prints the JSON Schema of a policy, for editors."""

from __future__ import annotations

import click

from proxy.policy.schema.export import json_schema_text


@click.command(name="schema")
def command() -> None:
    """Print the JSON Schema of a policy, for editors and other tools."""
    click.echo(json_schema_text(), nl=False)
