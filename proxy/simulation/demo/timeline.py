"""What the breakers did and when, from the lines that the proxy logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

CLOSED = "closed"
OPEN = "open"
_PREFIX = "breaker "
_WHY = {
    "consecutive": "too many failures in a row",
    "failure_ratio": "too large a part of its calls failed",
    "slow": "too many slow calls",
    "probe_failed": "a probe failed",
    "probe_neutral": "the probes gave no answer",
    "probes_ok": "its probes succeeded",
    "waited": "waited long enough, lets probes through",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A breaker's new state; `at` in seconds since the epoch."""

    at: float
    provider: str
    model: str
    state: str
    why: str
    open_seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """What happened, for people."""
        until = f" for {self.open_seconds:.1f} s" if self.open_seconds else ""
        return f"breaker of {self.provider} {self.model}: {self.state}{until} ({_WHY.get(self.why, self.why)})"


def change_in(line: Mapping[str, Any]) -> Change | None:
    """Returns the change that a log line tells of, None for a line about something else."""
    message = str(line.get("msg", ""))
    if line.get("logger") != "sponson.process" or not message.startswith(_PREFIX):
        return None
    return Change(
        at=datetime.fromisoformat(str(line["time"])).timestamp(),
        provider=str(line.get("provider", "")),
        model=str(line.get("model", "")),
        state=message.removeprefix(_PREFIX).replace("_", "-"),
        why=str(line.get("why", "")),
        open_seconds=float(line.get("open_seconds", 0.0)),
    )


class Timeline:
    """All changes so far, and the state of every breaker that changed."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def read(self, lines: Iterable[Mapping[str, Any]]) -> list[Change]:
        """Takes lines in; returns the changes among them."""
        found = [change for line in lines if (change := change_in(line)) is not None]
        self.changes += found
        return found

    @property
    def by_breaker(self) -> dict[tuple[str, str], list[Change]]:
        """(provider, model) → its changes, in order."""
        found: dict[tuple[str, str], list[Change]] = {}
        for change in self.changes:
            found.setdefault((change.provider, change.model), []).append(change)
        return found

    @property
    def not_closed(self) -> list[str]:
        """The breakers that are open or half-open now, by name and state."""
        last = ((name, changes[-1].state) for name, changes in self.by_breaker.items())
        return [f"{' '.join(name)} {state}" for name, state in last if state != CLOSED]
