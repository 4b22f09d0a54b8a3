"""`sponson check PATH`: says all that is wrong with a policy. No network; no secrets unless asked."""

from __future__ import annotations

import os
from pathlib import Path

import click

from proxy.cli.words import counted, refuse, under
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError, PolicyUnreadable
from proxy.policy.secret_sources import secret_problems
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import read_policy


@click.command(name="check")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--secrets", is_flag=True, help="Also check that every secret exists and is well-formed.")
def command(path: Path, *, secrets: bool) -> None:
    """Check the policy at PATH, a file or a directory, and report all problems at once.

    A line each: file:line:column: path: message. Exits 0 when there are none, else 1.
    """
    try:
        snapshot = load_policy(read_policy(path))
        if secrets and (missing := list(secret_problems(snapshot, os.environ))):
            raise PolicyError(missing)
    except PolicyUnreadable as unreadable:
        refuse([str(unreadable)], code=1)
    except PolicyError as error:
        refuse(under(path, map(str, error.problems)), code=1)
    else:
        click.echo(f"{path}: ok ({_contents(snapshot)})")
        for line in under(path, snapshot.warnings):
            click.echo(f"{line} (warning)")


def _contents(snapshot: PolicySnapshot) -> str:
    routes = len(snapshot.routes or ())
    return f"{counted(len(snapshot.providers), 'provider')}, {counted(routes, 'route')}"
