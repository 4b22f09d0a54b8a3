"""Merging: requests that differ in their inputs alone travel as one call (`semantics.md` §6a).

When they go is decided by a lane (`decisions/merging`), what becomes of them by `merged_call`. A request that has
nobody to travel with goes as it came, byte for byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from proxy.clock import Clock, Timer
from proxy.decisions.idempotency import credential_of, name_of
from proxy.decisions.likeness import CONDITIONS, VERSION_HEADERS, headers_of
from proxy.decisions.merging import Batch, Lane, MergeBounds, MergeSettings
from proxy.dialects.batchable import Batchable, batchable_of, inputs_of, rest_of
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.stage import CallNext
from proxy.stages.merged_call import Caller, MergedCall
from proxy.stages.recording import Ledger

NOT_PASSED: Final = frozenset({"accept-encoding"})
"""A merged answer is asked for unpacked."""
APART_SECONDS: Final = 60.0
"""Where a merged answer could not be dealt, the next one cannot be either: for so long they go alone."""
PURGED: Final = 4
"""How many lanes are looked at, and forgotten where nothing happens in them, when one is added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeScope:
    """Within what requests may travel together: `route` is a value of its own for each route.

    `credentials`: the headers that tell callers apart, where what they bring goes along or they are to stay apart.
    `headers` make a difference beside the usual ones. `most`: inputs that every provider of the route takes at once.
    `stale_tier` is the number of the tier that gives kept answers, None for none.
    """

    route: bytes
    whose: str = "tenant"
    credentials: Sequence[str] = ()
    headers: Sequence[str] = ()
    most: int
    stale_tier: int | None = None


class OpenLane:
    """A lane that is in use: its core, its timer, and by whose rules those who wait go (`stage`).

    Until `apart_until` everybody goes alone.
    """

    __slots__ = ("apart_until", "core", "stage", "timer", "timer_at", "window")

    def __init__(self) -> None:
        self.apart_until = 0.0
        self.core: Lane[Caller] = Lane()
        self.stage: MergingStage | None = None
        self.timer: Timer | None = None
        self.timer_at = self.window = 0.0

    def __repr__(self) -> str:
        return f"<OpenLane {self.core}>"


class MergeLanes:
    """The lanes of the process, which outlive every policy; those in which nothing happens are forgotten in time."""

    __slots__ = ("calls", "lanes", "merged", "split")

    def __init__(self) -> None:
        self.lanes: dict[bytes, OpenLane] = {}
        self.calls = self.merged = self.split = 0

    def __repr__(self) -> str:
        return f"<MergeLanes {len(self.lanes)} known, {self.merged} requests in {self.calls} calls>"

    def of(self, name: bytes, now: float) -> OpenLane:
        """Returns the lane of this name."""
        if name not in self.lanes:
            self._purge(now)
            self.lanes[name] = OpenLane()
        return self.lanes[name]

    def _purge(self, now: float) -> None:
        for _ in range(min(PURGED, len(self.lanes))):
            name = next(iter(self.lanes))
            lane = self.lanes.pop(name)
            if now < lane.apart_until or not lane.core.is_quiet(now, lane.window):
                self.lanes[name] = lane


class MergingStage:
    """Lets requests of one route travel together."""

    __slots__ = ("_bounds", "_clock", "_headers", "_known", "_lanes", "_ledger", "_scope", "_settings")

    def __init__(
        self, settings: MergeSettings, scope: MergeScope, *, lanes: MergeLanes, ledger: Ledger, clock: Clock
    ) -> None:
        self._settings = settings
        self._scope = scope
        self._bounds = MergeBounds(window=settings.window, inputs=min(settings.max, scope.most))
        self._headers = tuple(sorted({*VERSION_HEADERS, *(name.lower() for name in scope.headers)} - NOT_PASSED))
        self._lanes = lanes
        self._ledger = ledger
        self._clock = clock

    def __call__(self, exchange: Exchange, call_next: CallNext) -> Awaitable[Outcome]:
        """Passes a request that cannot travel with others, or is too large to."""
        batchable = self._batchable(exchange)
        if batchable is None:
            return call_next(exchange)
        assert exchange.document is not None
        asked = inputs_of(exchange.document, batchable)
        if asked is None or len(asked.values) > self._bounds.inputs:
            return call_next(exchange)
        return self._merged(Caller(exchange, batchable, asked, call_next))

    def _batchable(self, exchange: Exchange) -> Batchable | None:
        request, settings = exchange.request, self._settings
        if exchange.document is None or request.body is None or request.method != "POST" or exchange.facts.stream:
            return None
        conditional = not CONDITIONS.isdisjoint(request.fields.shape.first)
        if conditional or exchange.idempotency_key is not None or not exchange.repeatable:
            return None
        return batchable_of(exchange.operation, request.path, inputs=settings.inputs, results=settings.results)

    async def _merged(self, caller: Caller) -> Outcome:
        exchange, now = caller.exchange, self._clock.now()
        lane = self._lane(caller, now)
        if lane is None or now < lane.apart_until:
            return await caller.call_next(exchange)
        self._enter(lane, caller, now)
        if caller.batch is None or caller.call is not None:
            late = await self._wait(lane, caller)
            if late is not None:
                return late
        call = caller.call
        if call is None:
            return await self._alone(lane, caller)
        if call.singly:
            return await caller.call_next(exchange)
        if self._scope.stale_tier is not None and exchange.alike and call.failed:
            own = await self._own_stale(caller, self._scope.stale_tier)
            if own.committed:
                return own
        return call.answer(caller)

    async def _own_stale(self, caller: Caller, tier: int) -> Outcome:
        """Asks for what is kept for this one: a merged call has no kept answer, for it is like no other one."""
        exchange, facts = caller.exchange, caller.exchange.facts
        before = facts.tier, facts.provider, facts.model
        exchange.first_tier = tier
        outcome = await caller.call_next(exchange)
        if not outcome.committed:
            facts.tier, facts.provider, facts.model = before
        return outcome

    def _lane(self, caller: Caller, now: float) -> OpenLane | None:
        """Returns the lane of a request; None whose body may be read in several ways."""
        exchange, batchable = caller.exchange, caller.batchable
        assert exchange.request.body is not None
        assert exchange.document is not None
        rest = rest_of(exchange.request.body, exchange.document, batchable)
        return None if rest is None else self._lanes.of(self._name(caller, rest), now)

    async def _alone(self, lane: OpenLane, caller: Caller) -> Outcome:
        exchange, batch = caller.exchange, caller.batch
        assert batch is not None
        exchange.on_attempt = partial(self._began, lane, batch)
        try:
            return await caller.call_next(exchange)
        finally:
            exchange.on_attempt = None
            self._ended(lane, batch)

    async def _wait(self, lane: OpenLane, caller: Caller) -> Outcome | None:
        """Returns None when it is this one's turn, or its call has ended; an outcome when its own time is over."""
        timer = self._clock.call_at(caller.exchange.deadline_at, caller.wake)
        try:
            while not _is_settled(caller):
                await caller.news()
                if not _is_settled(caller) and self._is_late(caller):
                    self._leave(lane, caller)
                    return Outcome(OutcomeKind.TOTAL_TIMEOUT)
        except BaseException:
            self._leave(lane, caller)
            raise
        finally:
            timer.cancel()
        return None

    def _is_late(self, caller: Caller) -> bool:
        """Whether its own deadline has passed; the latest one of a call is the call's own to keep."""
        due, call = caller.exchange.deadline_at, caller.call
        return self._clock.now() >= due and (call is None or due < call.work.deadline_at)

    def _leave(self, lane: OpenLane, caller: Caller) -> None:
        if caller.call is not None:
            caller.call.leave(caller)
        elif caller.batch is not None:
            self._ended(lane, caller.batch)
        else:
            lane.core.leave(caller)
            self._set_timer(lane)

    def _enter(self, lane: OpenLane, caller: Caller, now: float) -> None:
        core, stage = lane.core, lane.stage
        if stage is not None and stage is not self and core.waiting:
            # They came under another policy, and go by that.
            stage.go(lane, core.flush())
        lane.stage, lane.window = self, self._bounds.window
        for batch in core.join(caller, self._bounds, now):
            self.go(lane, batch)
        self._set_timer(lane)

    def go(self, lane: OpenLane, batch: Batch[Caller]) -> None:
        """Lets a batch go: a lone one by itself, several as one call."""
        callers, lanes = batch.parcels, self._lanes
        for caller in callers:
            caller.batch = batch
        if len(callers) == 1:
            callers[0].wake()
            return
        lanes.calls += 1
        lanes.merged += len(callers)
        call = MergedCall(callers, ledger=self._ledger, clock=self._clock, ended=partial(self._call_ended, lane, batch))
        call.start(begun=partial(self._began, lane, batch))

    def _began(self, lane: OpenLane, batch: Batch[Caller]) -> None:
        """A call waits no more: those who wait behind it travel with it, or go if their window has passed."""
        if (call := batch.parcels[0].call) is not None and lane.stage is self:
            self._lanes.merged += call.take_along(batch, lane.core, self._bounds)
        lane.core.began(batch)
        self._look(lane, self._clock.now())

    def _ended(self, lane: OpenLane, batch: Batch[Caller]) -> None:
        lane.core.ended(batch)
        batch.parcels.clear()  # Else it and its callers would wait for the garbage collector.
        self._look(lane, self._clock.now())

    def _call_ended(self, lane: OpenLane, batch: Batch[Caller]) -> None:
        if (call := batch.parcels[0].call) is not None and call.singly:
            self._lanes.split += 1
            if call.undealt:
                lane.apart_until = self._clock.now() + APART_SECONDS
        self._ended(lane, batch)

    def _due(self, lane: OpenLane) -> None:
        lane.timer = None
        # Timers may be early by a part of a millisecond.
        self._look(lane, max(self._clock.now(), lane.timer_at))

    def _look(self, lane: OpenLane, now: float) -> None:
        if (overdue := lane.core.overdue(now)) is not None:
            (lane.stage or self).go(lane, overdue)
        self._set_timer(lane)

    def _set_timer(self, lane: OpenLane) -> None:
        due = lane.core.due
        if lane.timer is not None:
            if due == lane.timer_at:
                return
            lane.timer.cancel()
            lane.timer = None
        if due is not None:
            lane.timer_at = due
            lane.timer = self._clock.call_at(due, partial(self._due, lane))

    def _name(self, caller: Caller, rest: bytes) -> bytes:
        """Names the lane by all that has to be the same; one of another name never meets these."""
        scope, exchange, batchable = self._scope, caller.exchange, caller.batchable
        facts, fields = exchange.facts, exchange.request.fields
        parts = [
            scope.route,
            b"" if scope.whose == "route" else b"=" + _bytes(facts.tenant),
            facts.klass.encode(),
            b"%d" % exchange.first_tier,
            _bytes(exchange.request.target),
            _bytes(batchable.inputs),
            _bytes(batchable.results),
            caller.asked.kind.encode(),
            rest,
        ]
        said = [*headers_of(fields, self._headers)]
        parts += (b"%d" % len(said), *said, *credential_of(fields, scope.credentials))
        return name_of(parts)


def _is_settled(caller: Caller) -> bool:
    """Whether it is this one's turn to go alone, or what it travelled by has ended."""
    return caller.batch is not None if caller.call is None else caller.call.outcome is not None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
