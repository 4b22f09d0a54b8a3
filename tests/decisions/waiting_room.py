"""What admission's tests share: limits, keys and lines in small numbers."""

from __future__ import annotations

from collections.abc import Collection

from proxy.decisions.admission import Admission
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.keys import Key, KeyRing
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Refusal, Waiter
from proxy.decisions.room import QueueSettings, Room
from proxy.exchange import Credential

NOW = 1000.0


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


def a_line(room: Room, *limits: Places, ring: KeyRing | None = None, name: str = "alpha/m") -> Line:
    line = Line(name, room)
    line.reconfigure(limits, ring)
    return line


def an_ask(
    klass: int = 1,
    *,
    bytes: int = 0,
    queue: float = 10.0,
    quota_wait: float = 30.0,
    deadline_at: float = float("inf"),
    tried: Collection[str] | None = None,
) -> Ask:
    limits = WaitLimits(queue=queue, quota_wait=quota_wait)
    return Ask(klass=klass, bytes=bytes, limits=limits, deadline_at=deadline_at, tried=tried)


class Desk:
    """An admission with one line, and callers who may be sure of what they get."""

    def __init__(self, *limits: Places, ring: KeyRing | None = None, room: Room | None = None) -> None:
        self.admission = Admission()
        self.room = room or a_room()
        self.line = a_line(self.room, *limits, ring=ring)
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
