"""Whether what is written at the policy's place is whole: swapped in at one stroke, or maybe still being written.

Modification times never decide that something changed, only that it may be unfinished: a file that was moved into
place has changed its inode's status after its last write; one that is being written has not.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

SWAPPED = "..data"
MOUNTS = Path("/proc/self/mountinfo")
MOUNT_POINT = 4
"""Which field of a line of mountinfo names the place (proc_pid_mountinfo(5), counted from 0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Which files stand at the policy's place: `base` is the resolved directory or file, `files` are (path, inode).

    `mounted`: the link `..data` leads there, as kubelet makes it; what it leads to is written before.
    """

    base: str
    files: frozenset[tuple[str, int]]
    mounted: bool = False


def standing(path: Path) -> Standing | None:
    """Returns what stands there now; None while it cannot be told."""
    real = os.path.realpath(path)
    swapped = os.path.join(real, SWAPPED)
    mounted = os.path.isdir(swapped)
    base = os.path.realpath(swapped) if mounted else real
    try:
        if not os.path.isdir(base):
            mounted = os.path.dirname(base) == os.path.realpath(os.path.join(path.parent, SWAPPED))
            return Standing(base=base, files=frozenset({(base, os.stat(base).st_ino)}), mounted=mounted)
        with os.scandir(base) as entries:
            names = [entry.path for entry in entries if not entry.name.startswith(".")]
        files = frozenset((name, os.stat(name).st_ino) for name in names)
        return Standing(base=base, files=files, mounted=mounted)
    except OSError:
        return None


def came_whole(old: Standing | None, new: Standing | None) -> bool:
    """Whether `new` came by a swap or by renames, so that no writer can still be at work on it.

    A swap of another link says nothing of the files that it leads to: somebody may be writing them.
    """
    if old is None or new is None or old == new:
        return False
    if new.mounted and new.base != old.base:
        return True
    came = new.files - old.files
    return bool(came) and all(_moved_in(name) for name, _ in came)


def _moved_in(name: str) -> bool:
    try:
        status = os.stat(name)
    except OSError:
        return False
    return status.st_ctime_ns > status.st_mtime_ns


def mounted_alone(place: Standing | None, mounts: Path = MOUNTS) -> list[str]:
    """Returns the files that are mounts of their own (a `subPath`): a swap of their source never reaches them."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    points = {_unescaped(line.split(" ")[MOUNT_POINT]) for line in lines if line.count(" ") > MOUNT_POINT}
    return sorted(name for name, _ in place.files if name in points) if place is not None else []


def _unescaped(name: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), name)
