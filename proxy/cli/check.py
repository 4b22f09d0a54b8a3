"""`sponson check PATH`: says all that is wrong with a policy. No network; no secrets unless asked."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import click

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
        _refuse([str(unreadable)])
    except PolicyError as error:
        _refuse(_under(path, map(str, error.problems)))
    else:
        click.echo(f"{path}: ok ({_contents(snapshot)})")
        for line in _under(path, snapshot.warnings):
            click.echo(f"{line} (warning)")


def _refuse(lines: list[str]) -> None:
    for line in lines:
        click.echo(line)
    click.echo(_counted(len(lines), "problem"))
    raise SystemExit(1)


def _under(path: Path, lines: Iterable[str]) -> list[str]:
    """The lines with the folder in front of the file's name, as editors and terminals follow it."""
    folder = path if path.is_dir() else path.parent
    return [os.path.join(folder, line) if folder != Path() else line for line in lines]


def _contents(snapshot: PolicySnapshot) -> str:
    routes = len(snapshot.routes or ())
    return f"{_counted(len(snapshot.providers), 'provider')}, {_counted(routes, 'route')}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
