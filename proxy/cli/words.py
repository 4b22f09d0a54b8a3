"""What the commands that read policies say in the same words."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

import click


def refuse(problems: Collection[str], *, code: int) -> NoReturn:
    """Writes a line for each problem and how many they are, and exits."""
    for line in (*problems, counted(len(problems), "problem")):
        click.echo(line)
    raise SystemExit(code)


def under(path: Path, lines: Iterable[str]) -> list[str]:
    """Returns the lines with the folder in front of the file's name, as editors and terminals follow it."""
    folder = path if path.is_dir() else path.parent
    return [os.path.join(folder, line) if folder != Path() else line for line in lines]


def counted(count: int, what: str) -> str:
    """Returns "1 route", "2 routes"."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
