"""`sponson diff OLD NEW`: says what a reload from OLD to NEW does to live state. No network, no secrets."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from proxy.cli.words import counted, refuse, under
from proxy.policy.difference.change import Difference, Section, Sign, Value, When
from proxy.policy.difference.compare import differences
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError, PolicyUnreadable, one_line
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import read_policy
from proxy.settings import instance_index

PROBLEMS, UNREADABLE = 1, 2
PLAIN_WIDTH = 110
INDENT = " " * 4
COLOURS = {Sign.ADDED: "green", Sign.REMOVED: "red", Sign.CHANGED: "cyan"}
LEGEND = {
    When.DECISION: "the new value counts for calls that run or wait already, too",
    When.REQUEST: "requests that began before the reload end by the old value",
}
AGAIN = "What is new or begins anew goes on where it was, if the running process has had it within the last 10 minutes."


@click.command(name="diff")
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
def command(old: Path, new: Path) -> None:
    """Say what a proxy that runs the policy OLD does to its live state when it reloads to NEW.

    Both are files or directories. Shares are those of one instance; SPONSON_INSTANCE_INDEX says which.

    Exits 0, also when they differ; 1 when one has problems, which are reported as `check` does; 2 when one cannot be
    read.
    """
    try:
        index = instance_index(os.environ)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    before, after = _loaded(old, index), _loaded(new, index)
    if isinstance(before, PolicySnapshot) and isinstance(after, PolicySnapshot):
        _tell(old, new, before, after)
        return
    failed = [one for one in (before, after) if isinstance(one, _Unfit)]
    lines = list(dict.fromkeys(line for one in failed for line in one.lines))
    refuse(lines, code=max(one.code for one in failed))


class _Unfit:
    """A policy that cannot be compared: why, and the exit code."""

    __slots__ = ("code", "lines")

    def __init__(self, lines: Iterable[str], *, code: int) -> None:
        self.lines = list(lines)
        self.code = code


def _loaded(path: Path, index: int | None) -> PolicySnapshot | _Unfit:
    try:
        return load_policy(read_policy(path), instance_index=index)
    except PolicyUnreadable as unreadable:
        return _Unfit([str(unreadable)], code=UNREADABLE)
    except PolicyError as error:
        return _Unfit(under(path, map(str, error.problems)), code=PROBLEMS)


def _tell(old: Path, new: Path, before: PolicySnapshot, after: PolicySnapshot) -> None:
    found = differences(before, after)
    width = shutil.get_terminal_size((PLAIN_WIDTH, 0)).columns if sys.stdout.isatty() else PLAIN_WIDTH
    click.secho(f"{old} → {new}", bold=True)
    for section in found.sections:
        click.echo()
        _tell_section(section, width)
    click.echo()
    unchanged = ", ".join(counted(count, kind) for kind, count in found.unchanged)
    if not found.sections:
        click.echo(f"No difference: a reload keeps everything as it is ({unchanged}).")
    elif unchanged:
        click.echo(f"Unchanged: {unchanged}.")
    for line in _legend(found):
        click.echo(_wrapped(line, width, first="", rest="  "))
    told = {_what(line) for line in before.warnings}
    for line in under(new, (line for line in after.warnings if _what(line) not in told)):
        click.echo(f"{line} (warning)")


def _tell_section(section: Section, width: int) -> None:
    click.secho(f"{section.sign} {one_line(section.subject)}", fg=COLOURS[section.sign], bold=True)
    for line in _table(section):
        click.echo(line)
    for effect in section.effects:
        click.echo(_wrapped(effect, width, first=f"{INDENT}- ", rest=f"{INDENT}  "))
    for warning in section.warnings:
        click.secho(_wrapped(warning, width, first=f"{INDENT}! ", rest=f"{INDENT}  "), fg="yellow")


def _table(section: Section) -> Iterator[str]:
    """Names, values and notes in columns."""
    added = section.sign is Sign.ADDED
    rows = [(one_line(v.name), one_line(v.new) if added else _step(v), v.note) for v in section.values]
    names, steps = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    for name, step, note in rows:
        yield f"{INDENT}{name:{names}}  {step:{steps}}  {note}".rstrip()


def _step(value: Value) -> str:
    return one_line(f"{value.old} → {value.new}")


def _legend(found: Difference) -> Iterator[str]:
    notes = [value.note for section in found.sections for value in section.values]
    for when, meaning in LEGEND.items():
        if any(note.startswith(when) for note in notes):
            yield f"{when}: {meaning}."
    added = any(section.sign is Sign.ADDED for section in found.sections)
    if added or any("anew" in effect for section in found.sections for effect in section.effects):
        yield AGAIN


def _what(warning: str) -> str:
    """What a warning is about, without its place."""
    return warning.partition(": ")[2]


def _wrapped(text: str, width: int, *, first: str, rest: str) -> str:
    return textwrap.fill(
        one_line(text), max(width, 40), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    )
