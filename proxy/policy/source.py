"""Reads the bytes of a policy: a file, or all policy files of a directory, from one resolved place.

A mounted ConfigMap is swapped by moving the link `..data`: it is resolved once, so that no reading mixes two
versions.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from proxy.policy.problem import PolicyUnreadable
from proxy.policy.reading import read_bounded

LARGEST_POLICY = 1 << 20
"""Bytes, all files together."""

SUFFIXES = (".yaml", ".yml")
SWAPPED = "..data"
ATTEMPTS = 50
NO_FILES = "has no policy files: expected names that end with .yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyBytes:
    """The files of a policy as (name, content), in the order of their names."""

    files: tuple[tuple[str, bytes], ...]

    @property
    def digest(self) -> str:
        """SHA-256 of names and contents, in hexadecimal; equal digests are the same policy."""
        total = hashlib.sha256()
        for name, content in self.files:
            encoded = name.encode("utf-8", "surrogateescape")
            total.update(b"%d:%d:" % (len(encoded), len(content)) + encoded + content)
        return total.hexdigest()


def read_policy(path: Path) -> PolicyBytes:
    """Returns the bytes of the policy at `path`. Raises `PolicyUnreadable`.

    Files keep their own names. Of a file over the size limit only so much is read that this can be seen.
    """
    for _ in range(ATTEMPTS):
        base = _resolved(path)
        try:
            found: PolicyBytes | tuple[str, str] = PolicyBytes(files=tuple(_read(path, base)))
        except OSError as error:
            found = (str(error.filename or path), _why(error))
        # After a swap the old directory is removed: what was read of it may be a part.
        if _resolved(path) == base:
            break
    else:
        found = (str(path), "changes faster than it can be read")
    if isinstance(found, tuple):
        # An exception with a name here would refer to itself, by its traceback.
        raise PolicyUnreadable(*found)
    return found


def _resolved(path: Path) -> str:
    base = os.path.realpath(path)
    swapped = os.path.join(base, SWAPPED)
    return os.path.realpath(swapped) if os.path.isdir(swapped) else base


def _read(path: Path, base: str) -> Iterable[tuple[str, bytes]]:
    if not os.path.isdir(base):
        return [(path.name, read_bounded(base, LARGEST_POLICY))]
    names = sorted(name for name in os.listdir(base) if _is_policy(base, name))
    if not names:
        raise FileNotFoundError(0, NO_FILES, str(path))
    return [(name, read_bounded(os.path.join(base, name), LARGEST_POLICY)) for name in names]


def _is_policy(base: str, name: str) -> bool:
    hidden = name.startswith(".")
    return not hidden and name.endswith(SUFFIXES) and not os.path.isdir(os.path.join(base, name))


def _why(error: OSError) -> str:
    if error.strerror == NO_FILES:
        return NO_FILES
    return f"cannot be read: {(error.strerror or type(error).__name__).lower()}"
