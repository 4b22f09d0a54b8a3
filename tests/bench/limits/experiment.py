"""All experiments about limits, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.limits import duplicates, flood, keys, precision, priorities
from tests.bench.limits.finding import Finding
from tests.bench.rows import Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long each experiment takes."""

    keys: keys.Lengths = keys.Lengths()
    duplicates: duplicates.Lengths = duplicates.Lengths()
    flood: flood.Lengths = flood.Lengths()
    priorities: priorities.Lengths = priorities.Lengths()
    precision: precision.Lengths = precision.Lengths()


LONG = Plan()
"""Some four minutes."""
QUICK = Plan(
    keys=keys.Lengths(warm_up=3.0, counted=10.0),
    duplicates=duplicates.Lengths(writes=200),
    flood=flood.Lengths(warm_up=2.0, counted=12.0, flooded=4.0, job_at_once=80),
    priorities=priorities.Lengths(warm_up=4.0, counted=10.0),
    precision=precision.Lengths(crowds=1, seeds=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What all experiments found; `figures` are plain values."""

    findings: tuple[Finding, ...]
    figures: dict[str, Any]


async def run_limits(around: Surroundings, plan: Plan, *, say: Callable[[str], None]) -> Limits:
    """Runs them all; raises NotReady."""
    say("limits: one key and twenty")
    of_keys = await keys.run(around, plan.keys)
    say("limits: writes whose answers are lost")
    of_writes = await duplicates.run(around, plan.duplicates)
    say("limits: agents beside a flood; where nothing holds it, it takes a while to drain")
    of_flood = await flood.run(around, plan.flood)
    say("limits: P0 beside P1 and P2")
    of_classes = await priorities.run(around, plan.priorities)
    say("limits: crowds that meet a small rest of a quota")
    of_quotas = await precision.run(around, plan.precision)
    return Limits(
        findings=(
            *keys.findings(of_keys),
            *duplicates.findings(of_writes),
            *flood.findings(of_flood),
            *priorities.findings(of_classes),
            *precision.findings(of_quotas),
        ),
        figures={
            "keys": [asdict(one) for one in of_keys],
            "duplicates": [asdict(one) for one in of_writes],
            "flood": [asdict(one) for one in of_flood],
            "priorities": [asdict(one) for one in of_classes],
            "precision": asdict(of_quotas),
        },
    )
