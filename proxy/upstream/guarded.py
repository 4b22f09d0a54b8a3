"""Look-ups for whom only a name is listed: addresses that such a name must not lead to are left out of the answer.

What is dialled is what was looked at: no second look-up can say something else (DNS rebinding).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from aiohttp.abc import ResolveResult

from proxy.upstream.lookup import Lookup


class ForbiddenAddress(OSError):
    """A name leads only where it must not."""

    def __init__(self, host: str) -> None:
        super().__init__(
            None, f"{host} leads to this machine, a link-local or a metadata address; list its host and port"
        )


class GuardedLookup(Lookup):
    """Leaves out what is `forbidden`."""

    def __init__(self, forbidden: Callable[[str], bool], ask: Callable[..., Any] = socket.getaddrinfo) -> None:
        super().__init__(ask)
        self._forbidden = forbidden

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Returns the addresses that are left. Raises `ForbiddenAddress`, OSError."""
        found = await super().resolve(host, port, family)
        left = [result for result in found if not self._forbidden(result["host"])]
        if not left:
            raise ForbiddenAddress(host)
        self.hosts = frozenset(result["host"] for result in left)
        return left


def forbidden(error: BaseException) -> ForbiddenAddress | None:
    """Returns why a dial failed, where it was because of that."""
    cause = getattr(error, "os_error", error)
    return cause if isinstance(cause, ForbiddenAddress) else None
