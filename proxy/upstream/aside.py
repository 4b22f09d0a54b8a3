"""Connections beside those to a provider's own addresses: of forwarded requests, and of tunnels.

`/status` and metrics show the provider's own addresses, and each of them once.
"""

from __future__ import annotations

from proxy.upstream.pool import Pool


class Aside:
    """A pool that is counted nowhere else."""

    __slots__ = ("pool",)

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def __repr__(self) -> str:
        return f"<Aside {self.pool!r}>"

    async def close(self) -> None:
        """Closes what is idle, and what is in use when it comes back."""
        await self.pool.close()
