"""Keys: weighted choice, rest after a 429, parking after a 401 (`semantics.md` §4).

A key's state is bound to its id and, for parking, to its secret's hash: a new secret is a new chance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from proxy.decisions.places import Places
from proxy.exchange import Credential
from proxy.outcome import Outcome, OutcomeKind

LONGEST_REST_SECONDS = 3600.0


class Lack(StrEnum):
    """What a call that may not go now is missing."""

    PERMIT = "permit"
    KEY = "key"
    """All usable keys rest."""
    NO_KEY = "no_key"
    """Every key is parked or has no secret: waiting cannot help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStatistics:
    """A snapshot for `/status`; times are seconds from now."""

    id: str
    state: str
    rests_for: float
    in_use: int
    limit: int | None
    weight: float


class Key:
    """One credential's state. `places` is its own concurrency share, None without one."""

    __slots__ = ("_secret_hash", "credential", "current", "id", "parked", "places", "rests_until", "weight")

    def __init__(self, key_id: str) -> None:
        self.id = key_id
        self.weight = 1.0
        self.credential: Credential | None = None
        self.places: Places | None = None
        self.current = 0.0
        self.rests_until = 0.0
        self.parked = False
        self._secret_hash = ""

    def renew(self, credential: Credential | None, secret_hash: str) -> None:
        """Takes the secret as it now is; another secret ends parking and rest, which belonged to the old one."""
        self.credential = credential
        if secret_hash != self._secret_hash:
            self._secret_hash = secret_hash
            self.parked = False
            self.rests_until = 0.0

    def __repr__(self) -> str:
        return f"<Key {self.id}{' parked' * self.parked}>"


class KeyRing:
    """The keys of one provider. `on_change(key id, state, seconds)` is told of rests and parking."""

    __slots__ = ("_on_change", "keys", "rest_seconds")

    def __init__(self, on_change: Callable[[str, str, float], None] = lambda key_id, state, seconds: None) -> None:
        self._on_change = on_change
        self.keys: tuple[Key, ...] = ()
        self.rest_seconds = 60.0

    def reconfigure(self, keys: Sequence[Key], *, rest_seconds: float) -> None:
        """Takes the keys as the policy now has them; each keeps its own state."""
        self.keys = tuple(keys)
        self.rest_seconds = rest_seconds

    def rewire(self, on_change: Callable[[str, str, float], None]) -> None:
        """Replaces who is told of rests and parking."""
        self._on_change = on_change

    def choose(self, now: float, tried: Collection[str] | None) -> Key | Lack:
        """Returns the next key by smooth weighted choice, untried ones first; or what is missing. Takes nothing."""
        best: Key | None = None
        lack = Lack.NO_KEY
        total = 0.0
        fresh = [key for key in self.keys if key.id not in tried] if tried else self.keys
        for candidates in (fresh, self.keys) if tried else (fresh,):
            for key in candidates:
                if key.parked or key.credential is None:
                    continue
                if key.rests_until > now:
                    lack = Lack.KEY if lack is Lack.NO_KEY else lack
                    continue
                if key.places is not None and key.places.used >= key.places.size:
                    lack = Lack.PERMIT
                    continue
                total += key.weight
                key.current += key.weight
                if best is None or key.current > best.current:
                    best = key
            if best is not None:
                best.current -= total
                return best
        return lack

    def has_other(self, now: float, tried: Collection[str]) -> bool:
        """Whether a key that this request has not tried could be used now."""
        return any(
            key.id not in tried and not key.parked and key.credential is not None and key.rests_until <= now
            for key in self.keys
        )

    def usable_at(self, now: float) -> float | None:
        """Returns when the first key can be used again; None when none ever can by waiting."""
        times = [max(key.rests_until, now) for key in self.keys if not key.parked and key.credential is not None]
        return min(times) if times else None

    def judge(self, key: Key, outcome: Outcome, now: float, *, used: Credential | None) -> None:
        """Draws the consequences of an attempt's end for its key: a rest, or parking, or nothing.

        `used` is the credential that the attempt was sent with: what a provider says of an old secret is not held
        against the one that has replaced it meanwhile.
        """
        if key.credential is None or used is None or key.credential.line != used.line:
            return
        if outcome.kind is OutcomeKind.RATE_LIMITED:
            seconds = self.rest_seconds if outcome.retry_after is None else outcome.retry_after
            until = now + min(seconds, LONGEST_REST_SECONDS)
            if until > key.rests_until:
                key.rests_until = until
                self._on_change(key.id, "resting", until - now)
        elif outcome.kind is OutcomeKind.CREDENTIAL_REJECTED and outcome.key_fault and not key.parked:
            key.parked = True
            self._on_change(key.id, "parked", 0.0)

    def statistics(self, now: float) -> tuple[KeyStatistics, ...]:
        """Returns a snapshot of every key."""
        return tuple(
            KeyStatistics(
                id=key.id,
                state=self._state(key, now),
                rests_for=max(0.0, key.rests_until - now),
                in_use=key.places.used if key.places is not None else 0,
                limit=key.places.size if key.places is not None else None,
                weight=key.weight,
            )
            for key in self.keys
        )

    @staticmethod
    def _state(key: Key, now: float) -> str:
        if key.credential is None:
            return "no_secret"
        if key.parked:
            return "parked"
        return "resting" if key.rests_until > now else "usable"
