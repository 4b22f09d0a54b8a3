"""What this machine allows: open files (sockets are files), and connections that wait to be accepted."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.downstream.connections import BACKLOG
from proxy.downstream.room import MOST_CONNECTIONS

MOST_FILES: Final = 1 << 16
FEWEST_FILES: Final = 64
"""Files that a proxy with a handful of calls has open."""
OWN_FILES: Final = 48
"""What it has open without a single call, and what the admin port has of its own."""
FEWEST_CONNECTIONS: Final = 8
FEW_FILES: Final = 1024
SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
FEW_WAITING: Final = BACKLOG // 4


class TooFewFiles(Exception):
    """It could not even start; the message names the cure."""


def allow_files() -> int:
    """Takes all the files that this process may open, and returns how many. Raises `TooFewFiles`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems allow less than they say
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    files = open_files()
    if files < FEWEST_FILES:
        raise TooFewFiles(
            f"only {files} files may be open (ulimit -n); allow at least {FEWEST_FILES}, and two more for every call"
        )
    return files


def open_files() -> int:
    """Returns how many files may be open now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_FILES if soft == resource.RLIM_INFINITY else soft


def most_connections(files: int) -> int:
    """Returns how many clients may be connected at once: each may have a call, which has a connection of its own."""
    return max(FEWEST_CONNECTIONS, min(MOST_CONNECTIONS, (files - OWN_FILES) // 2))


def most_waiting(path: Path = SOMAXCONN) -> int:
    """Returns how many connections the system lets wait until they are accepted; the backlog where it says nothing."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return BACKLOG


def shortages(files: int, waiting: int) -> Iterator[str]:
    """Yields what an operator should know of limits that are tight, with the cure."""
    if files < FEW_FILES:
        yield (
            f"only {files} files may be open: at most {most_connections(files)} clients at once; "
            f"allow {FEW_FILES} or more (ulimit -n)"
        )
    if waiting < FEW_WAITING:
        yield (
            f"only {waiting} new connections may wait to be accepted: in a burst of more, callers wait for a second "
            f"and longer; allow {BACKLOG} (sysctl net.core.somaxconn)"
        )
