"""What was executed, and how often: by idempotency key and by body. Nothing here answers; `service` does.

A claim is what the first request with a key leaves behind: its body's fingerprint, and the seed from which its answer
can be given again to the byte.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

REMEMBERED = 100_000


@dataclass(slots=True, kw_only=True, eq=False)
class Claim:
    """One idempotency key: `number` is that of the first request, `users` are being served, `executed` counts."""

    key: str
    fingerprint: str
    seed: int
    number: int
    users: int = 0
    executed: int = 0


class Executions:
    """The last 100,000 keys and bodies; older ones are forgotten, and would count as new."""

    def __init__(self) -> None:
        self._claims: OrderedDict[str, Claim] = OrderedDict()
        self._bodies: OrderedDict[str, int] = OrderedDict()
        self._zero()

    def _zero(self) -> None:
        self.total = 0
        self.duplicates = 0
        self.repeated_bodies = 0

    def __repr__(self) -> str:
        return f"Executions({self.total}, duplicates={self.duplicates}, {len(self._claims)} keys)"

    def find(self, key: str | None) -> Claim | None:
        """Returns the claim of a key that is in use or was executed."""
        return None if key is None else self._claims.get(key)

    def begin(self, key: str, fingerprint: str, *, seed: int, number: int) -> Claim:
        """Returns the claim of a key, a new one for its first request; `end` follows."""
        claim = self._claims.get(key)
        if claim is None:
            claim = Claim(key=key, fingerprint=fingerprint, seed=seed, number=number)
            self._claims[key] = claim
            if len(self._claims) > REMEMBERED:
                self._claims.popitem(last=False)
        claim.users += 1
        return claim

    def end(self, claim: Claim) -> None:
        """A request is over; a key under which nothing was executed is free again."""
        claim.users -= 1
        if not claim.users and not claim.executed and self._claims.get(claim.key) is claim:
            del self._claims[claim.key]

    def execute(self, claim: Claim | None, fingerprint: str) -> int:
        """Counts an execution; returns the how manyth of its key (of its body, without a key) it is."""
        self.total += 1
        times = self._bodies.get(fingerprint, 0) + 1
        self._bodies[fingerprint] = times
        self.repeated_bodies += times > 1
        if len(self._bodies) > REMEMBERED:
            self._bodies.popitem(last=False)
        if claim is None:
            return times
        claim.executed += 1
        self.duplicates += claim.executed > 1
        return claim.executed

    def reset(self) -> None:
        """Sets the counts to zero, and forgets bodies; keys keep their answers."""
        self._bodies.clear()
        self._zero()
