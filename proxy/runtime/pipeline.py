"""THE ORDER: which stage surrounds which, and why. `tests/runtime/test_pipeline.py` holds it.

A stage that a route does not configure is absent, not disabled.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.stage import CallNext, Stage, compose
from proxy.stages.addresses import AddressGate
from proxy.stages.admission import AdmissionStage
from proxy.stages.attempt import AttemptStage
from proxy.stages.breaker import BreakerStage
from proxy.stages.context import ContextStage
from proxy.stages.deadline import DeadlineStage
from proxy.stages.idempotency import IdempotencyStage
from proxy.stages.observation import ObservationStage
from proxy.stages.response_cache import ResponseCacheStage
from proxy.stages.retry import RetryStage
from proxy.stages.single_flight import SingleFlightStage
from proxy.stages.tenants import TenantStage


def front(observation: ObservationStage, classification: CallNext) -> CallNext:
    """One per process: what every request passes, whatever its route."""
    return compose(
        [
            # 1. Outermost: refusals and cache hits are seen too.
            observation,
            # 2. Everything below needs route, class, tenant and model: it is the terminal, which enters the route.
        ],
        classification,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The stages of a route that save work; None for each that it does not have."""

    response_cache: ResponseCacheStage | None = None
    single_flight: SingleFlightStage | None = None
    merging: Stage | None = None


def route(
    deadline: DeadlineStage,
    tiers: CallNext,
    *,
    tenants: TenantStage | None = None,
    idempotency: IdempotencyStage | None = None,
    saving: Saving | None = None,
) -> CallNext:
    """One per route; `tenants` None where the policy caps none, `saving` where no work is saved."""
    saving = saving if saving is not None else Saving()
    order: list[Stage | None] = [
        # 3. A number; every wait below looks at it.
        deadline,
        # 4. A runaway caller stops before anything is looked up or queued.
        tenants,
        # 5. A known key is answered without any work.
        idempotency,
        # 6. Above quota: a hit costs nothing.
        saving.response_cache,
        # 7. Below the cache, so that it sees misses only; above quota: those who join are one call.
        saving.single_flight,
        # 8. Many calls become one, which then falls back and retries as one.
        saving.merging,
        # 9. fallback, the terminal: above retry and breaker, because every tier has its own.
    ]
    return _composed(order, tiers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStages:
    """The stages of one provider + model, for one tier; `breaker` None where the policy says `breaker: off`.

    Of several addresses, `breaker` speaks for all, and `attempt` is None: each has its own (`address`).
    """

    retry: RetryStage
    breaker: BreakerStage | AddressGate | None
    admission: AdmissionStage
    attempt: AttemptStage | None


def target(stages: TargetStages, transport: CallNext, *, context: ContextStage | None = None) -> CallNext:
    """One per tier and model; `context` None where nobody says how long a prompt the model takes."""
    order: list[Stage | None] = [
        # 10. Above all attempts: a prompt that is too long now will be too long again.
        context,
        # 11. Above the breaker: every attempt asks it again. Back-off holds nothing.
        stages.retry,
        # 12. Above admission: an open breaker answers before any wait; when it opens, waiters are released at once.
        stages.breaker,
        # 13. The only waiting room. A waiter holds nothing; on its turn it gets permit and key together.
        stages.admission,
        # 14. Limits that run from the wire on: waiting never eats the model's time.
        stages.attempt,
    ]
    return _composed(order, transport)


def tunnel(
    breaker: BreakerStage | None, admission: AdmissionStage, attempt: AttemptStage, passage: CallNext
) -> CallNext:
    """One for each destination of tunnels, in the order of other targets; its caller makes the next attempt."""
    return _composed([breaker, admission, attempt], passage)


def address(breaker: BreakerStage | None, attempt: AttemptStage, transport: CallNext) -> CallNext:
    """One for each of several addresses, below admission: the address is chosen when it is the call's turn."""
    return _composed([breaker, attempt], transport)


def _composed(order: list[Stage | None], terminal: CallNext) -> CallNext:
    return compose([stage for stage in order if stage is not None], terminal)
