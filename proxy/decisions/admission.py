"""Admission: the one place that waits for capacity (`semantics.md` §3).

Owns every queue. A waiter holds nothing; on its turn it takes, in one synchronous step, a place in every limit that
binds it, its requests and tokens of every quota, and a key; or it stays.

The order: whenever something comes back, of all queues' next waiters (a queue is one target, one lane and one class)
that now lack nothing the one with the lowest class goes, and of these one of the provider at which somebody has waited
the longest; and so on until none can. At a provider tenants take turns (`fair`), in a queue and among queues, and each
tenant's waiters go as they came. So nothing is left free that somebody could use: who lacks a place that only its own
target needs is passed by others, and loses no turn, because for what all need (the process's places) it still stands by
its arrival. In a class nobody starves: of those who came before it only finitely many can pass it. A newcomer goes at
once only if nobody of its class or a higher one stands before it at its target, and takes only what no waiter can use.

Who lacks tokens may be passed by others that need fewer, but only for `PASSING_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf

from proxy.decisions.forecast import back_at, in_vain, never, too_large
from proxy.decisions.keys import Key, Lack
from proxy.decisions.permits import Permit
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Queue, Refusal, Waiter
from proxy.decisions.shortage import Shortage, Thing, whose_turn
from proxy.decisions.standing import Standing
from proxy.decisions.taking import Missing, find

PASSING_SECONDS = 1.0
"""How long the first of those who lack tokens may be passed by others that need fewer."""
MOST_PASSING = 8
"""How many of a queue are looked at for one that needs fewer."""


class Admission:
    """Every queue of the process. All methods are synchronous and are told the time.

    `alarm(when)` is called with the time at which time alone may let somebody go: `tick` is due then. `out` are the
    permits that are out.
    """

    __slots__ = ("_standing", "alarm", "out")

    def __init__(self) -> None:
        self._standing = Standing()
        self.alarm: Callable[[float], None] = _nobody
        self.out: set[Permit] = set()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self._standing.waiting

    def __repr__(self) -> str:
        return repr(self._standing).replace("Standing", "Admission")

    def enter_at_once(
        self, line: Line, tried: Collection[str] | None, now: float, *, klass: int = 1, tokens: float = 0.0
    ) -> Permit | None:
        """Lets a call go when nobody waits anywhere and everything has a place for it; None: `enter` decides."""
        if self._standing.waiting:
            return None
        taken = self._take(line, klass, tokens, tried, now)
        return taken if isinstance(taken, Permit) else None

    def enter(self, line: Line, ask: Ask, now: float) -> Permit | Waiter | Refusal:
        """Lets a call go, or queues it, or refuses it at once: a newcomer never overtakes a waiter."""
        if (refusal := too_large(line, ask.tokens)) is not None and not line.observes:
            return refusal
        standing = self._standing
        if standing.waiting:
            # A key may have rested enough, a bucket have filled, or a provider be idle, since the last tick.
            self.pump(now, (line.room, *line.timed))
        before = line.queue_before(ask.klass) if standing.waiting else None
        if before is not None and before.shortage is not None:
            lack, shortage = before.lack, before.shortage
        else:
            missing = self._stands_behind(line, ask.klass, now) if standing.waiting else None
            taken = missing or self._take(line, ask.klass, ask.tokens, ask.tried, now)
            if isinstance(taken, Permit):
                return taken
            lack, shortage = taken[0], standing.shortage(taken[1])
        refusal = in_vain(line, ask, lack, shortage, now)
        if refusal is not None:
            return refusal
        waiter = standing.join(line, ask, lack, shortage, now)
        self._set_alarm(waiter, waiter.lack, now)
        first = shortage.first() if shortage.divisible else None
        if first is not None and first.needs_quota and not _blocks(first, now):
            self._at(now, now)  # it may need so little that it may pass
        return waiter

    def returned(self, permit: Permit, now: float) -> None:
        """A permit came back: who lacks one of its places, its quotas, or a key, may go now."""
        self.out.discard(permit)
        standing = self._standing
        if not standing.waiting:
            return
        line = permit.line
        things: list[Thing] = [*permit.limits, *permit.buckets, line.room]
        if line.ring is not None:
            things.append(line.ring)
        held = now - permit.taken_at
        if held >= 0:
            for shortage in standing.lacked(things):
                shortage.hold_ended(held, now)
        self.pump(now, things)

    def pump(self, now: float, things: Iterable[Thing] | None = None) -> None:
        """Lets every next waiter go that can, in their order, until none can.

        `things` are all that may have come back; without them anything may have changed, the policy too.
        """
        standing = self._standing
        turns: list[Shortage[Queue]] = []
        stuck: dict[Shortage[Queue], Waiter] = {}  # nobody is passed while somebody else still has a turn
        for shortage in [standing.everybody(now)] if things is None else standing.lacked(things):
            self._has_turn(shortage, turns, now)
        while (queue := whose_turn(turns) or whose_turn(stuck)) is not None:
            found, waiter = queue.shortage, queue.waiters.next
            assert found is not None
            may_pass = found not in turns
            if not may_pass:
                turns.remove(found)
            if may_pass and stuck.pop(found) is waiter:
                stays = not self._pass_by(found, queue, now)
            elif stays := not self._serve(queue, now) and queue.shortage is found:
                stuck[found] = waiter
            if not stays:
                self._has_turn(found, turns, now)
            for other in standing.to_look_at():
                self._has_turn(other, turns, now)

    def _has_turn(self, shortage: Shortage[Queue], turns: list[Shortage[Queue]], now: float) -> None:
        """Lets a shortage take its turn, unless nobody in it could go for certain."""
        if not shortage.members or shortage in turns:
            return
        if not shortage.certain(now):
            turns.append(shortage)
        else:
            self._at(shortage.idle_at(now), now)

    def tick(self, now: float) -> None:
        """Moves on what time alone decides: rests, quotas, idle capacity, promotions, waiters whose time is over."""
        standing = self._standing
        if not standing.waiting:
            return
        standing.promote(now)
        self.pump(now, standing.all_lacked())
        late = standing.late(now)
        if late:
            for waiter, refusal in late:
                self._refuse(waiter, refusal)
            self.pump(now, standing.all_lacked())
        self._at(standing.next_at, now)

    def leave(self, waiter: Waiter, now: float) -> None:
        """The waiter's caller has gone: what was handed to it meanwhile, and what it stood before, goes to the next."""
        self.goes_on(waiter)
        if waiter.permit is not None:
            waiter.permit.give_back(now)
        elif waiter.refusal is None:
            shortage = waiter.line.queues[waiter.klass].shortage
            self._standing.leave(waiter)
            if shortage is not None:
                self.pump(now, (shortage.thing, waiter.line.room))

    def flush(self, line: Line, refusal: Refusal, now: float) -> None:
        """Refuses everybody in a line at once (its breaker has opened), also who has a permit but has not gone on.

        Where a line observes, an open breaker refuses nobody.
        """
        if line.observes:
            return
        for queue in line.waiters:
            for waiter in tuple(queue):
                self._refuse(waiter, refusal)
        handed, line.handed = line.handed, set()
        for waiter in handed:
            permit, waiter.permit, waiter.refusal = waiter.permit, None, refusal
            if permit is not None:
                permit.give_back(now)
        self.pump(now, (line.room, *line.timed))

    def goes_on(self, waiter: Waiter) -> None:
        """The waiter's task runs again: what was handed to it is in use from now on."""
        waiter.line.handed.discard(waiter)

    # Taking

    def _take(
        self, line: Line, klass: int, tokens: float, tried: Collection[str] | None, now: float
    ) -> Permit | Missing:
        """Takes everything, or says what is missing and takes nothing."""
        found = find(line, klass, tokens, tried, now)
        if found is not None and not isinstance(found, Key):
            return found
        permit = Permit(line, found, now, self.returned, klass=klass, tokens=tokens)
        self.out.add(permit)
        return permit

    def _serve(self, queue: Queue, now: float) -> bool:
        """Decides about the next waiter of a queue; False when it stays."""
        waiter = queue.waiters.next
        missing = self._try(queue, waiter, now)
        if missing is None:
            return True
        refusal = never(queue.line, missing[0], waiter.tokens)
        if refusal is not None:
            self._refuse(waiter, refusal)
            return True
        self._lacks(queue, missing, now)
        return False

    def _lacks(self, queue: Queue, missing: Missing, now: float) -> None:
        """Notes what the next waiter of a queue was found to lack."""
        lack, thing = missing
        self._standing.lacks(queue, lack, self._standing.shortage(thing), now)
        self._set_alarm(queue.waiters.next, lack, now)

    def _pass_by(self, shortage: Shortage[Queue], stuck: Queue, now: float) -> bool:
        """Lets one go of those who need less of a thing than its first, or for whom another part of it is kept."""
        if not shortage.divisible:
            return False
        smaller, first, soonest = not isinstance(shortage.thing, Places), stuck.waiters.next, inf
        if smaller and _blocks(stuck, now):
            return False
        for queue in shortage.in_order():
            alike = queue.groups == stuck.groups
            if alike and not smaller:
                continue
            for waiter in queue.waiters.in_turn(MOST_PASSING if smaller else 1):
                if alike and waiter.tokens >= first.tokens:
                    continue
                missing = self._try(queue, waiter, now)
                if missing is None:
                    return True
                if missing[1] is not shortage.thing and waiter is queue.waiters.next:
                    self._lacks(queue, missing, now)
                elif smaller:
                    soonest = min(soonest, back_at(queue.line, missing[0], waiter.klass, waiter.tokens, now))
        self._at(soonest, now)
        return False

    def _try(self, queue: Queue, waiter: Waiter, now: float) -> Missing | None:
        """Lets a waiter of this queue go, or says what is missing."""
        missing = self._stands_behind(queue.line, queue.klass, now, waiter=waiter)
        if missing is not None:
            return missing
        taken = self._take(queue.line, waiter.klass, waiter.tokens, waiter.tried, now)
        if not isinstance(taken, Permit):
            return taken
        self._hand(waiter, taken)
        return None

    def _stands_behind(self, line: Line, klass: int, now: float, *, waiter: Waiter | None = None) -> Missing | None:
        """Returns what may not be taken although it might fit: those before a `waiter` have waited for more of it.

        Before a newcomer are all of its class. As long as they may be passed, `pump` lets go who needs less.
        """
        own = line.queues[klass] if waiter is not None else None
        for shortage in self._standing.lacked(line.timed):
            for queue in shortage.members:
                if not _blocks(queue, now) or queue.klass > klass:
                    continue
                if own is None or (queue.waiters.next is not waiter if queue is own else queue.goes_before(own)):
                    return Lack.QUOTA, shortage.thing
        return None

    def _hand(self, waiter: Waiter, permit: Permit) -> None:
        self._standing.leave(waiter, served=True)
        waiter.permit = permit
        waiter.line.handed.add(waiter)
        waiter.wake()

    def _refuse(self, waiter: Waiter, refusal: Refusal) -> None:
        self._standing.leave(waiter)
        waiter.refusal = refusal
        waiter.wake()

    def _set_alarm(self, waiter: Waiter, lack: Lack, now: float) -> None:
        """Asks to be looked at again when time alone may have brought back what is missing, or somebody's is over."""
        back = back_at(waiter.line, lack, waiter.klass, waiter.tokens, now)
        self._at(min(back, self._standing.next_at), now)

    def _at(self, when: float, now: float) -> None:
        if when < inf:
            self.alarm(max(when, now))


def _blocks(queue: Queue, now: float) -> bool:
    """Whether nobody behind it may take of the quota that it lacks: it was passed for long enough."""
    return queue.needs_quota and now - queue.waiters.next.lack_since > PASSING_SECONDS


def _nobody(when: float) -> None:
    """An alarm that nobody listens to: the ticker comes anyway."""
