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


NOT_YET: tuple[Gap, ...] = (
    *_gaps("fleet.", "size.dns", "size.endpoints", "size.leases", "raise_delay"),
    Gap(pattern="fleet.on_loss", fine=("safe_share",)),
    Gap(pattern="fleet.guarantee", fine=("bounded",)),
    Gap(pattern="fleet.stale_after", fine=("15s",)),
    *_gaps("", "intercept", "batches"),
    *_gaps("providers.*.", "queue_metric"),
    *_gaps("providers.*.models.*.", "price"),
    *_gaps("routes.[].tiers.[].", "later"),
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


def _fine(found: Found, gap: Gap) -> bool:
    if isinstance(found.node, Mapping | Items):
        return False
    value = plain(found.node)
    return any(isinstance(value, bool) is isinstance(fine, bool) and value == fine for fine in gap.fine)
