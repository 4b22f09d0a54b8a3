"""Dials that failed for want of something of this machine's: they say nothing about the provider."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Final

_MEMORY: Final = "the system has no memory left for another socket; lower the limits' concurrency, or give it more"

CURES: Final[Mapping[int, str]] = {
    errno.EMFILE: "this process has too many files open; raise its limit (ulimit -n), or lower the limits' concurrency",
    errno.ENFILE: "this machine has too many files open; raise its limit (sysctl fs.file-max)",
    errno.EAGAIN: "this process may start no further thread; raise its limit (the container's pids, or ulimit -u)",
    errno.ENOBUFS: _MEMORY,
    errno.ENOMEM: _MEMORY,
    errno.EADDRNOTAVAIL: "this machine has no local port or address left for a connection; let more stay idle, "
    "or widen its ports (sysctl net.ipv4.ip_local_port_range). For an IPv6 address: it may have no IPv6",
}
"""What each system error means here, and what an operator can do."""


def cure_of(error: BaseException) -> str | None:
    """Returns what was short and its cure; None where the provider or its network is to blame."""
    cause = getattr(error, "os_error", error)
    return CURES.get(cause.errno) if isinstance(cause, OSError) and cause.errno is not None else None
