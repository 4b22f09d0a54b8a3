"""What the policy can say already and this version cannot do yet: refused with its place, never ignored.

The one list of it. A line goes when the thing is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.policy.problem import Problem, problem_at
from proxy.policy.tree import Found, Items, Mapping, Node, plain, select


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What is not built: all that `pattern` selects, except the values in `fine`, which change nothing."""

    pattern: str
    fine: tuple[object, ...] = ()


def _gaps(prefix: str, *names: str) -> tuple[Gap, ...]:
    return tuple(Gap(pattern=f"{prefix}{name}") for name in names)


_RATES = ("rpm", "tpm")

NOT_YET: tuple[Gap, ...] = (
    *_gaps("fleet.", "size.dns", "size.endpoints", "size.leases", "raise_delay"),
    Gap(pattern="fleet.on_loss", fine=("safe_share",)),
    Gap(pattern="fleet.guarantee", fine=("bounded",)),
    Gap(pattern="fleet.stale_after", fine=("15s",)),
    Gap(pattern="classes.P0.reserved", fine=(0,)),
    Gap(pattern="classes.P2.idle_below", fine=(0.7,)),
    Gap(pattern="classes.P2.promote_after", fine=("5m",)),
    Gap(pattern="classes.P2.queue", fine=("10m",)),
    *_gaps("", "tenants", "intercept", "batches"),
    *_gaps("providers.*.", "hosts", "idempotency_header", "queue_metric"),
    *_gaps("providers.*.keys.[].", *_RATES),
    *_gaps("providers.*.limits.", *_RATES, "adaptive"),
    Gap(pattern="providers.*.limits.headroom", fine=(0.8,)),
    Gap(pattern="providers.*.limits.burst", fine=("5s",)),
    Gap(pattern="providers.*.limits.count.cached_input", fine=(1,)),
    Gap(pattern="providers.*.limits.count.reserve_output", fine=(True,)),
    *_gaps("providers.*.models.*.limits.", *_RATES),
    *_gaps("providers.*.models.*.", "context_tokens", "price"),
    Gap(pattern="providers.*.connections.warm", fine=(0,)),
    Gap(pattern="routes.[].class", fine=("P1",)),
    Gap(pattern="routes.[].class_from_header", fine=(False,)),
    *_gaps("routes.[].tiers.[].", "spread", "stale_cache", "later"),
    *_gaps("routes.[].", "idempotency", "lanes", "cache", "merge"),
    Gap(pattern="routes.[].single_flight", fine=(False,)),
    Gap(pattern="routes.[].dead_letter", fine=(False,)),
    Gap(pattern="telemetry.task_header"),
    Gap(pattern="telemetry.content", fine=(False,)),
)


def unsupported(root: Node) -> Iterator[Problem]:
    """A problem for everything in the tree that is not built yet."""
    for gap in NOT_YET:
        for found in select(root, gap.pattern):
            if not _fine(found, gap):
                yield problem_at(found.key_place, found.path, "is not supported yet")
    for found in select(root, "providers.*.base_url"):
        if isinstance(found.node, Items) and len(found.node.nodes) > 1:
            message = "several addresses are not supported yet: expected one"
            yield problem_at(found.node.place, found.path, message)


def _fine(found: Found, gap: Gap) -> bool:
    if isinstance(found.node, Mapping | Items):
        return False
    value = plain(found.node)
    return any(isinstance(value, bool) is isinstance(fine, bool) and value == fine for fine in gap.fine)
