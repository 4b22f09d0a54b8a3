"""Reads a file that is read again and again: a pipe or a device could never begin to answer, or never end."""

from __future__ import annotations

import os
import stat

NOT_REGULAR = "not a regular file"


def read_bounded(name: str, most: int) -> bytes:
    """Returns the content, of a longer one a byte more than `most`. Raises `OSError`."""
    kind = os.stat(name).st_mode
    # Of a directory, the attempt to read it says what it is.
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise OSError(0, NOT_REGULAR, name)
    with open(name, "rb") as file:
        return file.read(most + 1)
