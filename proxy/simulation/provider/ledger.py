"""What the provider really received, how each request ended, and the counts over all of them."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from proxy.simulation.provider.tally import KeyCounts, Tally

RING = 1000
BODY_START = 1024


class Ending(StrEnum):
    """How a request ended; `open` is one that has not."""

    OPEN = "open"
    ANSWERED = "answered"
    CLIENT_CLOSED = "client_closed"
    RESET = "reset"
    CUT = "cut"
    STOPPED = "stopped"


@dataclass(slots=True, kw_only=True)
class Received:
    """One request as it came; `headers` keep order and case, `at_seconds` counts from the start.

    `execution` is 0 where no model did the work, else the how manyth execution it was of its idempotency key, or of
    its body where it has no key; `replayed` was answered from an earlier one. `tokens` were counted for it; it
    brought `inputs` texts.
    """

    number: int
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    peer: str
    at_seconds: float
    body_bytes: int = 0
    body_sha256: str = ""
    body_start: str = ""
    model: str | None = None
    stream: bool = False
    inputs: int = 0
    fault: str | None = None
    status: int | None = None
    tokens: int = 0
    idempotency_key: str | None = None
    execution: int = 0
    replayed: bool = False
    ended: Ending = Ending.OPEN
    ended_after_seconds: float | None = None

    def header(self, name: str) -> str | None:
        """Returns the first header of this name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)

    def note_body(self, body: bytes) -> None:
        """Keeps size, hash and beginning of the raw body."""
        self.body_bytes = len(body)
        self.body_sha256 = hashlib.sha256(body).hexdigest()
        self.body_start = body[:BODY_START].decode("utf-8", "replace")

    def as_json(self) -> dict[str, Any]:
        """Returns what /sim/requests shows."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts since the start or the last reset; `in_flight` are being served, `queued` wait for a place.

    `inputs`: texts that all ended calls brought, `most_inputs` those of the largest one.

    `allowed_tokens`: what the tokens per minute allow in that time, None without such a limit; `refusals`: by rate
    limits. `duplicates`: executions of an idempotency key that had been executed before; `repeated_bodies`: the same
    of an equal body, whatever its key. `replays` and `conflicts` met the answer, or the other body, of their key.
    """

    received: int
    inputs: int
    most_inputs: int
    in_flight: int
    peak_in_flight: int
    queued: int
    peak_queued: int
    by_status: dict[str, int] = field(default_factory=dict)
    by_model: dict[str, int] = field(default_factory=dict)
    by_ending: dict[str, int] = field(default_factory=dict)
    by_fault: dict[str, int] = field(default_factory=dict)
    allowed_tokens: float | None = None
    counted_tokens: int = 0
    refusals: int = 0
    by_key: dict[str, KeyCounts] = field(default_factory=dict)
    executions: int = 0
    duplicates: int = 0
    repeated_bodies: int = 0
    replays: int = 0
    conflicts: int = 0


class Ledger:
    """Keeps the last 1000 requests and counts all; `queued` asks the capacity how many wait, `tally` counts work."""

    def __init__(self, *, now: Callable[[], float], queued: Callable[[], int], tally: Tally) -> None:
        self._now = now
        self._tally = tally
        self._started_at = now()
        self._queued = queued
        self._ring: deque[Received] = deque(maxlen=RING)
        self._number = 0
        self._in_flight = 0
        self._zero()

    def _zero(self) -> None:
        self._received = 0
        self._peak_in_flight = self._in_flight
        self._peak_queued = self._queued()
        self._inputs = 0
        self._most_inputs = 0
        self._by_status: Counter[str] = Counter()
        self._by_model: Counter[str] = Counter()
        self._by_ending: Counter[str] = Counter()
        self._by_fault: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"Ledger({self.stats()!r})"

    @property
    def requests(self) -> tuple[Received, ...]:
        """The last requests, oldest first."""
        return tuple(self._ring)

    def open(self, *, method: str, target: str, headers: tuple[tuple[str, str], ...], peer: str) -> Received:
        """Notes a request whose head has come."""
        at = self._now() - self._started_at
        self._number += 1
        self._received += 1
        seen = Received(number=self._number, method=method, target=target, headers=headers, peer=peer, at_seconds=at)
        self._ring.append(seen)
        return seen

    def queue_grows(self) -> None:
        """Notes that one more is about to wait."""
        self._peak_queued = max(self._peak_queued, self._queued() + 1)

    def serving_begins(self) -> None:
        """Counts a request in flight, until `serving_ends`."""
        self._in_flight += 1
        self._peak_in_flight = max(self._peak_in_flight, self._in_flight)

    def serving_ends(self) -> None:
        """Counts it out again."""
        self._in_flight -= 1

    def close(self, seen: Received) -> None:
        """Counts a request that has ended; its `ended` says how."""
        seen.ended_after_seconds = self._now() - self._started_at - seen.at_seconds
        self._by_ending[seen.ended.value] += 1
        self._inputs += seen.inputs
        self._most_inputs = max(self._most_inputs, seen.inputs)
        if seen.status is not None:
            self._by_status[str(seen.status)] += 1
        if seen.model is not None:
            self._by_model[seen.model] += 1
        if seen.fault is not None:
            self._by_fault[seen.fault] += 1

    def stats(self) -> Stats:
        """Returns the counts of this moment."""
        return Stats(
            received=self._received,
            inputs=self._inputs,
            most_inputs=self._most_inputs,
            in_flight=self._in_flight,
            peak_in_flight=self._peak_in_flight,
            queued=self._queued(),
            peak_queued=self._peak_queued,
            by_status=dict(self._by_status),
            by_model=dict(self._by_model),
            by_ending=dict(self._by_ending),
            by_fault=dict(self._by_fault),
            **self._tally.counts(self._now()),
        )

    def reset(self) -> None:
        """Forgets counts and requests; what is open goes on and counts when it ends."""
        self._ring.clear()
        self._tally.reset(self._now())
        self._zero()
