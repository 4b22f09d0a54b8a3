"""What was counted of work: tokens and refusals, by key, executions and what was given without one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from proxy.simulation.provider.allowance import MINUTE
from proxy.simulation.provider.executions import Executions


@dataclass(slots=True, kw_only=True)
class KeyCounts:
    """One key's calls that were let in, the tokens counted for them, and its calls that a rate limit refused."""

    requests: int = 0
    tokens: int = 0
    refusals: int = 0


class Tally:
    """Counts since the start or the last reset; `tpm` is what all keys together are granted, None without a limit."""

    def __init__(self, executions: Executions, *, tpm: float | None, now: float) -> None:
        self._executions = executions
        self._tpm = tpm
        self._zero(now)

    def _zero(self, now: float) -> None:
        self._since = now
        self._by_key: dict[str, KeyCounts] = {}
        self.replays = 0
        self.conflicts = 0

    def __repr__(self) -> str:
        return f"Tally({self._by_key!r}, {self._executions!r})"

    def let_in(self, key: str, tokens: int) -> None:
        """Counts a call and what its arrival cost."""
        counts = self._of(key)
        counts.requests += 1
        counts.tokens += tokens

    def produced(self, key: str, tokens: int) -> None:
        """Counts tokens of an answer."""
        self._of(key).tokens += tokens

    def refused(self, key: str) -> None:
        """Counts a refusal by a rate limit."""
        self._of(key).refusals += 1

    def counts(self, now: float) -> dict[str, Any]:
        """Returns the fields that `Stats` has of work."""
        known = self._by_key.values()
        return {
            "allowed_tokens": None if self._tpm is None else self._tpm * (now - self._since) / MINUTE,
            "counted_tokens": sum(each.tokens for each in known),
            "refusals": sum(each.refusals for each in known),
            "by_key": {key: replace(each) for key, each in self._by_key.items()},
            "executions": self._executions.total,
            "duplicates": self._executions.duplicates,
            "repeated_bodies": self._executions.repeated_bodies,
            "replays": self.replays,
            "conflicts": self.conflicts,
        }

    def reset(self, now: float) -> None:
        """Begins to count anew; no limit is fuller for it."""
        self._executions.reset()
        self._zero(now)

    def _of(self, key: str) -> KeyCounts:
        return self._by_key.setdefault(key, KeyCounts())
