"""What admission's tests share: limits, quotas, keys and lines in small numbers."""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from proxy.decisions.admission import Admission
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Key, KeyRing
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Refusal, Waiter
from proxy.decisions.quota import Bucket
from proxy.decisions.room import QueueSettings, Room
from proxy.exchange import Credential

NOW = 1000.0
MOMENT = 0.001


def a_key(key_id: str, *, size: int | None = None) -> Key:
    key = Key(key_id)
    key.places = Places(f"key {key_id}", size) if size is not None else None
    key.renew(Credential(key_id=key_id, header=(b"x-api-key", key_id.encode())), f"hash of {key_id}")
    return key


def a_ring(*keys: Key) -> KeyRing:
    ring = KeyRing()
    ring.reconfigure(keys, rest_seconds=60.0)
    return ring


def a_room(name: str = "alpha", *, share: int = 4, most: int = 0, most_bytes: int = 1000) -> Room:
    room = Room(name)
    room.reconfigure(QueueSettings(max=most, bytes=most_bytes), share=share)
    return room


def a_bucket(
    per_minute: float, *, burst: float = 5.0, most: float = inf, reserved: float = 0.0, label: str = "tpm of alpha"
) -> Bucket:
    """One that has given its first request, of nothing; 5 s fill it."""
    bucket = Bucket(label, NOW)
    bucket.reconfigure(per_minute, NOW, burst=burst, most=most, reserved=reserved)
    bucket.take(0.0, NOW)
    return bucket


def a_line(
    room: Room,
    *limits: Places,
    ring: KeyRing | None = None,
    name: str = "alpha/m",
    requests: tuple[Bucket, ...] = (),
    tokens: tuple[Bucket, ...] = (),
    lanes: Collection[str] = (),
) -> Line:
    line = Line(name, room, lanes=lanes)
    line.reconfigure(limits, ring, requests=requests, tokens=tokens)
    return line


def an_ask(
    klass: int = 1,
    *,
    bytes: int = 0,
    queue: float = 10.0,
    quota_wait: float = 30.0,
    deadline_at: float = inf,
    tried: Collection[str] | None = None,
) -> Ask:
    limits = WaitLimits(queue=queue, quota_wait=quota_wait)
    return Ask(klass=klass, bytes=bytes, limits=limits, deadline_at=deadline_at, tried=tried)


def sized(tokens: float, klass: int = 1, *, tenant: str = "", queue: float = 10.0, quota_wait: float = 30.0) -> Ask:
    """The ask of a call that takes so many tokens."""
    limits = WaitLimits(queue=queue, quota_wait=quota_wait)
    return Ask(klass=klass, limits=limits, tokens=tokens, tenant=tenant)


def patient(klass: int = 2, *, promote_after: float = inf) -> Ask:
    """The ask of a call that may wait as long as P2 does."""
    limits = WaitLimits(queue=600.0, quota_wait=600.0)
    return Ask(klass=klass, limits=limits, promote_after=promote_after)


class Desk:
    """An admission with one line, and callers who may be sure of what they get. `alarms` are the times asked for."""

    def __init__(
        self,
        *limits: Places,
        ring: KeyRing | None = None,
        room: Room | None = None,
        requests: tuple[Bucket, ...] = (),
        tokens: tuple[Bucket, ...] = (),
    ) -> None:
        self.admission = Admission()
        self.alarms: list[float] = []
        self.admission.alarm = self.alarms.append
        self.room = room or a_room()
        self.line = a_line(self.room, *limits, ring=ring, requests=requests, tokens=tokens)
        self.now = NOW

    def goes(self, ask: Ask | None = None, line: Line | None = None) -> Permit:
        answer = self.admission.enter(line or self.line, ask or an_ask(), self.now)
        assert isinstance(answer, Permit), answer
        return answer

    def waits(self, ask: Ask | None = None, line: Line | None = None) -> Waiter:
        answer = self.admission.enter(line or self.line, ask or an_ask(), self.now)
        assert isinstance(answer, Waiter), answer
        return answer

    def refused(self, ask: Ask | None = None, line: Line | None = None) -> Refusal:
        answer = self.admission.enter(line or self.line, ask or an_ask(), self.now)
        assert isinstance(answer, Refusal), answer
        return answer

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self.admission.tick(self.now)

    def rings(self, until: float) -> None:
        """Time goes by, and admission looks again only when it asked to: at the earliest alarm, which forgets others.

        Like the process's alarm, one that is due rings a moment later.
        """
        while self.alarms and min(self.alarms) <= until:
            self.now = max(min(self.alarms), self.now + MOMENT)
            self.alarms.clear()
            self.admission.tick(self.now)
        self.now = max(until, self.now)
