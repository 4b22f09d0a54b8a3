"""What `/status` and the gauges show of merging: who waits, and what has travelled together. Never a request."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.observer import Reading
from proxy.runtime.kept_state import KeptState
from proxy.stages.merging import MergeLanes


def merging_status(kept: KeptState) -> dict[str, int]:
    """Returns the lanes that are known, who waits, and how many were `merged` into `calls`; `split`: such calls."""
    lanes = next((lanes for _, lanes, _ in kept.all(MergeLanes)), MergeLanes())
    return {
        "lanes": len(lanes.lanes),
        "waiting": _waiting(lanes),
        "calls": lanes.calls,
        "merged": lanes.merged,
        "split": lanes.split,
    }


def merging_gauges(kept: KeptState) -> Iterator[Reading]:
    """Yields who waits to be merged."""
    for _, lanes, _ in kept.all(MergeLanes):
        yield Reading("sponson.merge.waiting", _waiting(lanes))


def _waiting(lanes: MergeLanes) -> int:
    return sum(len(lane.core.waiting) for lane in lanes.lanes.values())
