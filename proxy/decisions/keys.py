"""Keys: weighted choice, rest after a 429, parking after a 401 (`semantics.md` §4).

A key's state is bound to its id and, for parking, to its secret's hash: a new secret is a new chance.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from proxy.decisions.left import Left
from proxy.decisions.places import Places
from proxy.decisions.quota import Bucket
from proxy.exchange import Credential
from proxy.outcome import Outcome, OutcomeKind

LONGEST_REST_SECONDS = 3600.0


class Lack(StrEnum):
    """What a call that may not go now is missing."""

    PERMIT = "permit"
    IDLE = "idle"
    """P2 runs in idle capacity, and there is none."""
    QUOTA = "quota"
    """Requests or tokens per minute."""
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
    limit: int | None
    weight: float
    left: float


class Pinned(set[str]):
    """The keys that were tried, where `only` one may be used: its account may have executed the request already."""

    def __init__(self, tried: Collection[str], *, only: str) -> None:
        super().__init__(tried)
        self.only = only


LEAST_PART = 0.01
"""A key of which next to nothing is left is still chosen now and then: what it says next may be better."""


class Key:
    """One credential's state. `places` is its own concurrency share, None without one.

    `requests` and `tokens` are its own buckets, `left` what its provider last said is left; `metered`: it has any
    bucket.
    """

    __slots__ = (
        "_secret_hash", "credential", "current", "id", "left", "metered", "parked", "places", "requests",
        "rests_until", "tokens", "weight",
    )  # fmt: skip

    def __init__(self, key_id: str) -> None:
        self.id = key_id
        self.weight = 1.0
        self.credential: Credential | None = None
        self.places: Places | None = None
        self.current = 0.0
        self.rests_until = 0.0
        self.parked = False
        self.requests: tuple[Bucket, ...] = ()
        self.tokens: tuple[Bucket, ...] = ()
        self.metered = False
        self.left = Left()
        self._secret_hash = ""

    def reconfigure(
        self,
        *,
        weight: float,
        places: Places | None,
        requests: tuple[Bucket, ...] = (),
        tokens: tuple[Bucket, ...] = (),
    ) -> None:
        """Takes its limits as the policy now has them."""
        self.weight = weight
        self.places = places
        self.requests, self.tokens = requests, tokens
        self.metered = bool(requests or tokens)

    @property
    def usable(self) -> bool:
        """Whether waiting may bring it back."""
        return not self.parked and self.credential is not None

    def part(self, now: float) -> float:
        """Returns how much (0-1) is left of it, by its own buckets and by its provider's word."""
        part = self.left.part(now)
        for bucket in (*self.requests, *self.tokens):
            part = min(part, bucket.part(now))
        return part

    def quota_wait(self, now: float, tokens: float, *, urgent: bool) -> float:
        """Returns the seconds until its buckets let a call of so many tokens go; 0 for now."""
        waits = [bucket.wait(1.0, now, urgent=urgent) for bucket in self.requests]
        waits += [bucket.wait(tokens, now, urgent=urgent) for bucket in self.tokens]
        return max(waits, default=0.0)

    def renew(self, credential: Credential | None, secret_hash: str) -> None:
        """Takes the secret as it now is; another secret ends parking and rest, which belonged to the old one."""
        self.credential = credential
        if secret_hash != self._secret_hash:
            self._secret_hash = secret_hash
            self.parked = False
            self.rests_until = 0.0
            self.left = Left()

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

    def choose(
        self,
        now: float,
        tried: Collection[str] | None,
        *,
        klass: int = 1,
        tokens: float = 0.0,
        groups: Collection[str] = (),
    ) -> Key | Lack:
        """Returns the next key by smooth choice, weighted by what is left of each, untried ones first. Takes nothing.

        Without one it says what is missing: of what the keys lack, that by which one of them is soonest usable.
        """
        keys = self.keys
        if tried is not None:
            keys = tuple(allowed(keys, tried))
        if len(keys) == 1:
            return self._lack(keys[0], now, klass, tokens, groups) or keys[0]
        lacks = [Lack.NO_KEY]
        fresh = [key for key in keys if key.id not in tried] if tried else keys
        for candidates in (fresh, keys) if tried else (fresh,):
            free = []
            for key in candidates:
                lack = self._lack(key, now, klass, tokens, groups)
                if lack is None:
                    free.append(key)
                else:
                    lacks.append(lack)
            if free:
                return _smoothly(free, now)
        return min(lacks, key=_SOONEST.__getitem__)

    @staticmethod
    def _lack(key: Key, now: float, klass: int, tokens: float, groups: Collection[str]) -> Lack | None:
        if key.parked or key.credential is None:
            return Lack.NO_KEY
        if key.rests_until > now:
            return Lack.KEY
        places = key.places
        if places is not None and places.used >= places.common and not places.free(groups):
            return Lack.PERMIT
        if key.metered and key.quota_wait(now, tokens, urgent=klass == 0) > 0:
            return Lack.QUOTA
        return None

    def has_other(self, now: float, tried: Collection[str]) -> bool:
        """Whether a key that this request has not tried could be used now."""
        return any(key.id not in tried for key in usable(self, now))

    def has_place(self, groups: Collection[str]) -> bool:
        """Whether tokens would let a call of these groups go: some key that counts them has a place for it."""
        return any(key.metered and key.usable and (key.places is None or key.places.free(groups)) for key in self.keys)

    def usable_at(self, now: float) -> float | None:
        """Returns when the first key has rested enough; None when none ever can be used by waiting."""
        times = [max(key.rests_until, now) for key in self.keys if key.usable]
        return min(times) if times else None

    def quota_at(self, now: float, tokens: float, *, urgent: bool) -> float:
        """Returns when the first key has rested and has quota for so many tokens; endless when none ever has."""
        return min(self._ready_at(now, tokens, urgent=urgent), default=inf)

    def more_at(self, now: float, tokens: float, *, urgent: bool) -> float:
        """Returns when the next key that now rests or lacks quota has both; endless when there is none."""
        return min((when for when in self._ready_at(now, tokens, urgent=urgent) if when > now), default=inf)

    def _ready_at(self, now: float, tokens: float, *, urgent: bool) -> Iterator[float]:
        """Yields of each key that waiting may bring back when it has rested and has quota."""
        for key in self.keys:
            if key.usable:
                yield max(key.rests_until, now + key.quota_wait(now, tokens, urgent=urgent))

    def never(self, tokens: float) -> bool:
        """Whether no key that waiting may bring back can ever carry so many tokens."""
        keys = [key for key in self.keys if key.usable]
        return bool(keys) and all(any(bucket.never(tokens) for bucket in key.tokens) for key in keys)

    def part(self, now: float) -> float:
        """Returns how much (0-1) is left of the key of which the most is left; 0 when none can be used now."""
        return max((key.part(now) for key in usable(self, now)), default=0.0)

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
                limit=key.places.size if key.places is not None else None,
                weight=key.weight,
                left=key.part(now),
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


_SOONEST = {Lack.PERMIT: 0, Lack.QUOTA: 1, Lack.KEY: 2, Lack.NO_KEY: 3}


def allowed(keys: Iterable[Key], tried: Collection[str] | None) -> Iterator[Key]:
    """Yields the keys that a request may use: all of them, or the one to which it is pinned."""
    return (key for key in keys if not isinstance(tried, Pinned) or key.id == tried.only)


def usable(ring: KeyRing, now: float) -> Iterator[Key]:
    """Yields the keys that are neither parked nor resting."""
    return (key for key in ring.keys if key.usable and key.rests_until <= now)


def _smoothly(keys: Sequence[Key], now: float) -> Key:
    """Chooses by smooth weighted round robin; each key weighs as much as is left of it."""
    total = 0.0
    best = keys[0]
    for key in keys:
        weight = key.weight * max(key.part(now), LEAST_PART)
        total += weight
        key.current += weight
        if key.current > best.current:
            best = key
    best.current -= total
    return best
