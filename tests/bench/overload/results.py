"""What the overload experiment counts, and its verdicts. Nothing here measures or prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.bench.overload.application import Call, Ending
from tests.bench.report import percentile

P99_SECONDS = 2.0
TIMED_OUT_PART = 0.001
KEPT_UP_SECONDS = 0.05


class Way(StrEnum):
    """How an application reaches its model."""

    UNPROTECTED = "straight to the model"
    PROTECTED = "through sponson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One application under one level of load; counts are calls that were due within the counted window.

    `p50_seconds` and `p99_seconds` run from when a call was due until it ended, retries included, over the calls
    that the model was given: its answers and what timed out. `censored` says that the P99 call had no end yet.
    """

    way: Way
    load: float
    seconds: float
    endings: Mapping[Ending, int]
    p50_seconds: float
    p99_seconds: float
    censored: bool
    longest_queue: int
    left: int
    late_seconds: float
    model_late_seconds: float
    proxy_cpu: float = 0.0

    @property
    def calls(self) -> int:
        """All calls that were counted."""
        return sum(self.endings.values())

    @property
    def admitted(self) -> int:
        """Calls that the model was given."""
        return self.endings.get(Ending.MODEL, 0) + self.endings.get(Ending.TIMED_OUT, 0)

    @property
    def timed_out_part(self) -> float:
        """Timeouts as a part of what was admitted, 0 to 1."""
        return self.endings.get(Ending.TIMED_OUT, 0) / self.admitted if self.admitted else 0.0

    def per_second(self, ending: Ending) -> float:
        """Calls a second that ended so."""
        return self.endings.get(ending, 0) / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One promise, the figure beside its reference, and whether it is kept."""

    name: str
    figure: str
    reference: str
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a run says of itself beside its calls: the model's figures, the machine's lateness, the proxy's CPU time."""

    longest_queue: int
    left: int
    late_seconds: float
    model_late_seconds: float
    proxy_cpu: float = 0.0


def result(way: Way, calls: Sequence[Call], told: Told, *, load: float, seconds: float, cut_at: float) -> Result:
    """Count calls that have all ended; those that ended at `cut_at` were cut off."""
    admitted = [call for call in calls if call.ending in (Ending.MODEL, Ending.TIMED_OUT)]
    taken = [call.ended_at - call.due for call in admitted]
    p99 = percentile(taken, 0.99)
    cut = [call.ended_at - call.due for call in admitted if call.ended_at >= cut_at]
    return Result(
        way=way,
        load=load,
        seconds=seconds,
        endings=dict(Counter(call.ending for call in calls if call.ending is not None)),
        p50_seconds=percentile(taken, 0.5),
        p99_seconds=p99,
        censored=any(one <= p99 for one in cut),
        longest_queue=told.longest_queue,
        left=told.left,
        late_seconds=told.late_seconds,
        model_late_seconds=told.model_late_seconds,
        proxy_cpu=told.proxy_cpu,
    )


def verdicts(results: Sequence[Result]) -> list[Verdict]:
    """The promises, level by level, and that the load was a real one."""
    told = [promise for one in results if one.way is Way.PROTECTED for promise in _promises(one)]
    told += [_collapse(one) for one in results if one.way is Way.UNPROTECTED and one.load > 1]
    return [*told, _kept_up(results)] if results else []


def _promises(one: Result) -> list[Verdict]:
    lost = one.endings.get(Ending.BROKEN, 0)
    return [
        Verdict(
            name=f"sponson at {one.load:g} ×: P99 of what is admitted",
            figure=f"{one.p99_seconds:.2f} s",
            reference=f"< {P99_SECONDS:g} s",
            holds=one.p99_seconds < P99_SECONDS,
        ),
        Verdict(
            name=f"sponson at {one.load:g} ×: timeouts of what is admitted",
            figure=f"{one.timed_out_part:.2%}",
            reference=f"< {TIMED_OUT_PART:.1%}",
            holds=one.admitted > 0 and one.timed_out_part < TIMED_OUT_PART,
        ),
        Verdict(
            name=f"sponson at {one.load:g} ×: longest queue in the model, broken calls",
            figure=f"{one.longest_queue}, {lost}",
            reference="0, 0",
            holds=one.longest_queue == lost == 0,
        ),
    ]


def _collapse(one: Result) -> Verdict:
    return Verdict(
        name=f"unprotected at {one.load:g} ×: collapses (P99, timeouts)",
        figure=f"{seconds_text(one)} s, {one.timed_out_part:.0%}",
        reference="breaks both promises",
        holds=one.p99_seconds >= P99_SECONDS and one.timed_out_part >= TIMED_OUT_PART,
    )


def _kept_up(results: Sequence[Result]) -> Verdict:
    late = max(one.late_seconds for one in results)
    model_late = max(one.model_late_seconds for one in results)
    return Verdict(
        name="the machine kept up: P99 lateness of calls, of the model's answers",
        figure=f"{late * 1e3:.0f} ms, {model_late * 1e3:.0f} ms",
        reference=f"< {KEPT_UP_SECONDS * 1e3:.0f} ms",
        holds=max(late, model_late) < KEPT_UP_SECONDS,
    )


def seconds_text(one: Result) -> str:
    """The P99, marked where it is only known to be that long at least."""
    return f"{'≥ ' if one.censored else ''}{one.p99_seconds:.2f}"
