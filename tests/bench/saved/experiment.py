"""All experiments about work saved, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.limits.finding import Finding
from tests.bench.rows import Surroundings
from tests.bench.saved import alike, merging, reuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long each experiment takes."""

    merging: merging.Lengths = merging.Lengths()
    reuse: reuse.Lengths = reuse.Lengths()
    alike: alike.Lengths = alike.Lengths()


LONG = Plan()
"""Some two minutes and a half."""
QUICK = Plan(
    merging=merging.Lengths(warm_up=0.5, random=4.0, closed=2.0, quiet=20),
    reuse=reuse.Lengths(warm_up=3.0, counted=8.0, pauses=2),
    alike=alike.Lengths(burst=300, streams=60, mixed=5.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What all experiments found; `figures` are plain values."""

    findings: tuple[Finding, ...]
    figures: dict[str, Any]


async def run_saved(around: Surroundings, plan: Plan, *, say: Callable[[str], None]) -> Saved:
    """Runs them all; raises NotReady."""
    say("saved: a model whose batches are cheap")
    of_merging = await merging.run(around, plan.merging)
    say("saved: bursts to several providers, and pauses")
    of_reuse = await reuse.run(around, plan.reuse)
    say("saved: equal requests")
    of_alike = await alike.run(around, plan.alike)
    return Saved(
        findings=(*merging.findings(of_merging), *reuse.findings(of_reuse), *alike.findings(of_alike)),
        figures={
            "merging": asdict(of_merging),
            "reuse": [asdict(one) for one in of_reuse],
            "alike": asdict(of_alike),
        },
    )
