"""How a policy is put in place: renamed, written in place, torn, swapped as kubelet does, gone for a moment.

One directory serves all: while it has the link `..data`, what the link leads to is the policy; without it the files
of the directory itself are. Going from one to the other is one rename or unlink, too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from time import monotonic

FILE = "policy.yaml"
LINK = "..data"
TORN_SECONDS = 0.35
"""A half that stands longer than this may be looked at: writers that slow must rename."""


class Way(StrEnum):
    """How a change arrives."""

    RENAMED = "renamed into place"
    IN_PLACE = "written in place"
    TORN = "written in place in two parts"
    SWAPPED = "swapped, as a ConfigMap is"
    GONE = "gone for a moment, then there"
    BURST = "five swaps in a row"


class Hands:
    """Writes policies to a directory. `written_at` is when the last byte was in place."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.file = place / FILE
        self.link = place / LINK
        self.written_at = 0.0
        self._version = 0

    def rename(self, content: bytes) -> None:
        """Moves a file into place; files count again, where a swap stood."""
        new = self.place / ".new"
        new.write_bytes(content)
        new.replace(self.file)
        self._drop_link()
        self._written()

    def write(self, content: bytes) -> None:
        """Writes the file in place, at one go."""
        self._be_a_file()
        self.file.write_bytes(content)
        self._written()

    async def tear(self, content: bytes, cut: int, seconds: float, between: Callable[[], object]) -> bool:
        """Writes the file in place in two parts; returns whether the half stood too short to be taken for whole."""
        self._be_a_file()
        began = monotonic()
        with self.file.open("wb", buffering=0) as file:
            file.write(content[:cut])
            between()
            await asyncio.sleep(seconds)
            file.write(content[cut:])
        self._written()
        return self.written_at - began < TORN_SECONDS

    def swap(self, content: bytes) -> None:
        """Swaps a version in: a new directory, the link renamed over the old one, the old directory removed."""
        old = self.link.resolve() if self.link.is_symlink() else None
        self._version += 1
        data = self.place / f"..v{self._version}"
        data.mkdir()
        (data / FILE).write_bytes(content)
        new = self.place / "..data_tmp"
        new.symlink_to(data.name)
        new.replace(self.link)
        self._written()
        if old is not None:
            shutil.rmtree(old)

    def vanish(self) -> None:
        """Takes the policy away."""
        self.file.unlink(missing_ok=True)
        self._drop_link()

    def _be_a_file(self) -> None:
        if self.link.is_symlink():
            self.rename((self.link / FILE).read_bytes())

    def _drop_link(self) -> None:
        if self.link.is_symlink():
            old = self.link.resolve()
            os.unlink(self.link)
            shutil.rmtree(old)

    def _written(self) -> None:
        self.written_at = monotonic()
