"""`/status`, `/policy` and the gauges: read from the cores, when somebody looks. No secret is here to be shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from proxy.clock import Clock
from proxy.decisions.admission import Admission
from proxy.decisions.bodies import BodyMemory
from proxy.decisions.breaker import Breaker, BreakerState
from proxy.decisions.keys import KeyRing
from proxy.decisions.observing import Tally
from proxy.decisions.pace import Pace
from proxy.decisions.places import Places
from proxy.decisions.queues import Line
from proxy.decisions.room import Room
from proxy.observer import Reading, Would
from proxy.runtime.guard import ANY_MODEL
from proxy.runtime.kept_state import Identity, KeptState
from proxy.runtime.reload import PolicyState
from proxy.runtime.status_cache import cache_gauges, cache_status
from proxy.runtime.status_connections import connection_counters, connection_gauges, connection_status
from proxy.runtime.status_idempotency import idempotency_status
from proxy.runtime.status_limits import limit_gauges, limits_status
from proxy.runtime.status_merging import merging_gauges, merging_status
from proxy.runtime.status_tenants import tenant_status

_BREAKER_LEVEL = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


def _size(places: Places) -> int:
    return places.size


def _its_own_name(provider: str, model: str) -> str:
    return model


class StatusReader:
    """Reads everything that is kept; `label(provider, model)` gives a model's name in metrics."""

    def __init__(
        self,
        kept: KeptState,
        clock: Clock,
        label: Callable[[str, str], str] = _its_own_name,
        *,
        admission: Admission,
    ) -> None:
        self._kept = kept
        self._admission = admission
        self._clock = clock
        self._label = label

    def status(self) -> dict[str, Any]:
        """Returns the state of all cores as JSON values; times are seconds, from now where they lie ahead."""
        return {
            "breakers": list(self._breakers()),
            **limits_status(self._kept, self._admission, self._clock.now()),
            "queues": list(self._queues()),
            "keys": list(self._keys()),
            "connections": connection_status(self._kept),
            "bodies": self._bodies(),
            "observed": list(self._observed()),
            "paces": list(self._paces()),
            "idempotency": idempotency_status(self._kept, self._clock.now()),
            **cache_status(self._kept, self._clock.now()),
            "merging": merging_status(self._kept),
            **tenant_status(self._kept, self._clock.now()),
        }

    def gauges(self) -> Iterator[Reading]:
        """Yields the gauges that locate a bottleneck."""
        yield from limit_gauges(self._kept, self._clock.now())
        yield from self._queue_gauges()
        yield from connection_gauges(self._kept)
        yield from connection_counters(self._kept)
        yield from self._key_gauges()
        yield from self._breaker_gauges()
        yield from cache_gauges(self._kept, self._clock.now())
        yield from merging_gauges(self._kept)
        yield Reading("sponson.bodies", self._bodies()["bytes"])

    def _queue_gauges(self) -> Iterator[Reading]:
        """Who waits, by class; models that callers invent together, and queues that no policy uses while they last."""
        waiting: Counter[tuple[str, str, str]] = Counter()
        names = {room: str(identity[1]) for identity, room, used in self._kept.all(Room) if used}
        for identity, line, used in self._kept.all(Line):
            provider = names.get(line.room, str(identity[1]))
            model = self._label(provider, str(identity[2]))
            for queue in line.queues:
                if used or queue.waiters:
                    waiting[provider, model, f"P{queue.klass}"] += len(queue)
        for (provider, model, klass), number in waiting.items():
            yield Reading("sponson.queue.waiting", number, (("provider", provider), ("model", model), ("class", klass)))

    def _key_gauges(self) -> Iterator[Reading]:
        count = Counter((str(row["provider"]), str(row["state"])) for row in self._keys())
        for (provider, state), number in count.items():
            yield Reading("sponson.keys", number, (("provider", provider), ("state", state)))

    def _breaker_gauges(self) -> Iterator[Reading]:
        """One gauge a label: of the models that callers invent, the worst, and the lowest ceiling."""
        worst: dict[tuple[str, str], int] = {}
        ceilings: dict[tuple[str, str], Places] = {}
        now = self._clock.now()
        for identity, breaker in self._standing():
            breaker.tick(now)
            target = str(identity[1]), self._label(str(identity[1]), str(identity[3]))
            worst[target] = max(worst.get(target, 0), _BREAKER_LEVEL[breaker.state])
            if breaker.ramp.size is not None:
                ceilings[target] = min(ceilings.get(target, breaker.ramp.places), breaker.ramp.places, key=_size)
        for (provider, model), level in worst.items():
            yield Reading("sponson.breaker.state", level, (("provider", provider), ("model", model)))
        for (provider, model), places in ceilings.items():
            labels = (("limit", "breaker"), ("provider", provider), ("model", model))
            yield Reading("sponson.permits.used", places.used, labels)
            yield Reading("sponson.permits.share", places.size, labels)

    def _breakers(self) -> Iterator[dict[str, Any]]:
        now = self._clock.now()
        tallies = {identity[1:]: tally for identity, tally, used in self._kept.all(Tally) if used}
        for identity, breaker in self._standing():
            facts = breaker.statistics(now)
            tally = tallies.get(identity[1:])
            yield {
                "provider": identity[1],
                "address": identity[2],
                "model": identity[3],
                "state": facts.state.value,
                "calls": facts.calls,
                "failures": facts.failures,
                "slow": facts.slow,
                "consecutive": facts.consecutive,
                "probes_running": facts.probes_running,
                "ceiling": facts.ceiling,
                "retry_after": round(facts.retry_after, 3),
                "would_refuse": tally.counts[Would.BREAKER_OPEN] if tally is not None else None,
            }

    def _standing(self) -> list[tuple[Identity, Breaker]]:
        """Returns the breakers that a call may meet.

        After a reload, those of models that callers invented wait to be taken up by the next call of their model.
        """
        found = list(self._kept.all(Breaker))
        by_model = {identity[1:3] for identity, _, used in found if used and identity[3] != ANY_MODEL}
        return [
            (identity, breaker)
            for identity, breaker, used in found
            if used or (identity[3] != ANY_MODEL and identity[1:3] in by_model)
        ]

    def _observed(self) -> Iterator[dict[str, Any]]:
        """One row a provider of which something observes: what enforcing would have done, since then."""
        for identity, tally, used in self._kept.all(Tally):
            if used and len(identity) == 2:
                yield {"provider": identity[1], **{would.value: count for would, count in tally.counts.items()}}

    def _paces(self) -> Iterator[dict[str, Any]]:
        """One row a target whose answer limit follows its answers; `p95` None while too few are known."""
        now = self._clock.now()
        for identity, pace, used in self._kept.all(Pace):
            if used:
                p95 = pace.p95(now)
                yield {
                    "provider": identity[1],
                    "address": identity[2],
                    "model": identity[3],
                    "calls": pace.calls(now),
                    "p95": round(p95, 3) if p95 is not None else None,
                }

    def _queues(self) -> Iterator[dict[str, Any]]:
        lines = [(str(identity[2]), line) for identity, line, _ in self._kept.all(Line) if any(line.waiters)]
        for identity, room, used in self._kept.all(Room):
            if used:
                provider = str(identity[1])
                waiting: Counter[str] = Counter()
                for model, line in lines:
                    if line.room is room:
                        waiting[f"{provider}/{model}"] += sum(map(len, line.waiters))
                yield {
                    "provider": provider,
                    "waiting": room.waiting,
                    "max": room.max_waiters,
                    "bytes": room.bytes,
                    "by_target": waiting,
                }

    def _keys(self) -> Iterator[dict[str, Any]]:
        now = self._clock.now()
        held = Counter(permit.key for permit in self._admission.out)
        for identity, ring, used in self._kept.all(KeyRing):
            in_use = {key.id: held[key] for key in ring.keys}
            for key in ring.statistics(now) if used else ():
                yield {
                    "provider": identity[1],
                    "id": key.id,
                    "state": key.state,
                    "rests_for": round(key.rests_for, 3),
                    "in_use": in_use[key.id],
                    "limit": key.limit,
                    "weight": key.weight,
                    "left": round(key.left, 3),
                }

    def _bodies(self) -> dict[str, int]:
        """Returns bytes of request bodies: in memory, until when they may be sent again, and the most there may be."""
        found = [memory for _, memory, used in self._kept.all(BodyMemory) if used]
        held, again, most = next(((m.held, m.replay, m.most) for m in found), (0, 0, 0))
        return {"bytes": held, "again": again, "max": most}


def policy_document(state: PolicyState, now: float) -> dict[str, Any]:
    """Returns what `/policy` shows: revision, hashes loaded and seen, age of the last success, last problems."""
    return {
        "path": state.path,
        "revision": state.revision,
        "hash": state.digest,
        "hash_seen": state.seen_digest,
        "age_seconds": round(now - state.loaded_at, 3),
        "problems": list(state.problems),
        "warnings": list(state.warnings),
        "rejected": state.rejected,
        "watching": state.watching,
    }
