"""Rolling results: the last N calls, none older than a time, with exact running sums."""

from __future__ import annotations

from collections import deque


class Entry:
    """One call in the window; its end may turn it into a failure later, without counting it again."""

    __slots__ = ("at", "failed", "slow", "stands")

    def __init__(self, at: float, *, failed: bool, slow: bool) -> None:
        self.at = at
        self.failed = failed
        self.slow = slow
        self.stands = True


class ResultWindow:
    """The last `calls` results of the last `seconds`. A plain success is only its time: most results are that."""

    __slots__ = ("_entries", "calls", "failures", "seconds", "slow")

    def __init__(self, *, calls: int, seconds: float) -> None:
        self.calls = calls
        self.seconds = seconds
        self._entries: deque[Entry | float] = deque()
        self.failures = 0
        self.slow = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<ResultWindow {len(self)} calls, {self.failures} failed, {self.slow} slow>"

    def add(self, now: float, *, failed: bool, slow: bool = False) -> Entry:
        """Records one result and drops what has become too old or too many."""
        entry = Entry(now, failed=failed, slow=slow)
        self._entries.append(entry)
        self.failures += failed
        self.slow += slow
        self.expire(now)
        return entry

    def succeeded(self, now: float) -> None:
        """Records a plain success; nothing will be told of it later."""
        entries = self._entries
        entries.append(now)
        first = entries[0]
        if len(entries) > self.calls or (first.at if isinstance(first, Entry) else first) < now - self.seconds:
            self.expire(now)

    def fail(self, entry: Entry, now: float) -> bool:
        """Turns a recorded result into a failure; returns False when it stands in the window no more."""
        self.expire(now)
        if entry.stands and not entry.failed:
            entry.failed = True
            self.failures += 1
        return entry.stands

    def expire(self, now: float) -> None:
        """Drops what is older than the window, and the oldest above its size."""
        entries = self._entries
        oldest = now - self.seconds
        while entries:
            first = entries[0]
            at = first.at if isinstance(first, Entry) else first
            if len(entries) <= self.calls and at >= oldest:
                return
            entries.popleft()
            if isinstance(first, Entry):
                self.failures -= first.failed
                self.slow -= first.slow
                first.stands = False

    def clear(self) -> None:
        """Forgets everything."""
        for entry in self._entries:
            if isinstance(entry, Entry):
                entry.stands = False
        self._entries.clear()
        self.failures = self.slow = 0


class RateWindow:
    """How many events fell into the last `seconds`, in ten steps; for budgets, not for limits."""

    __slots__ = ("_counts", "_step", "_step_at")

    STEPS = 10

    def __init__(self, *, seconds: float) -> None:
        self._step = seconds / self.STEPS
        self._counts = [0] * self.STEPS
        self._step_at = 0

    def add(self, now: float) -> None:
        """Counts one event."""
        self._advance(now)
        self._counts[self._step_at % self.STEPS] += 1

    def total(self, now: float) -> int:
        """Returns the events of the last `seconds`."""
        self._advance(now)
        return sum(self._counts)

    def _advance(self, now: float) -> None:
        step = int(now / self._step)
        if step == self._step_at:
            return
        for gone in range(max(self._step_at + 1, step - self.STEPS + 1), step + 1):
            self._counts[gone % self.STEPS] = 0
        self._step_at = max(self._step_at, step)
