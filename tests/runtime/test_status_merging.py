"""/status and gauges of merging."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from proxy.decisions.merging import MergeBounds, Parcel
from proxy.runtime.kept_state import KeptState
from proxy.runtime.status_merging import merging_gauges, merging_status
from proxy.stages.merging import MergeLanes

if TYPE_CHECKING:
    from proxy.stages.merged_call import Caller

BOUNDS = MergeBounds(window=1.0, inputs=8)


def test_where_nothing_merges_there_is_nothing() -> None:
    assert merging_status(KeptState()) == {"lanes": 0, "waiting": 0, "calls": 0, "merged": 0, "split": 0}
    assert list(merging_gauges(KeptState())) == []


def test_who_waits_is_counted_over_all_lanes() -> None:
    kept = KeptState()
    lanes = kept.get(("merge lanes",), MergeLanes)
    for name in (b"one", b"two"):
        for _ in range(3):
            lanes.of(name, 0.0).core.join(cast("Caller", Parcel(inputs=1)), BOUNDS, 0.0)
    lanes.calls, lanes.merged, lanes.split = 4, 11, 1
    # The first of each found its lane quiet.
    assert merging_status(kept) == {"lanes": 2, "waiting": 4, "calls": 4, "merged": 11, "split": 1}
    (reading,) = merging_gauges(kept)
    assert (reading.name, reading.value, reading.labels) == ("sponson.merge.waiting", 4, ())
