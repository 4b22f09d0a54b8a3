"""Rolling results and rolling counts, against the plain way to count them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.window import Entry, RateWindow, ResultWindow

GAPS = st.integers(0, 12).map(lambda quarters: quarters / 4)


@dataclass(slots=True)
class Plain:
    """A result, as the model keeps it."""

    at: float
    failed: bool
    slow: bool


def standing(results: list[Plain], now: float, *, calls: int, seconds: float) -> list[Plain]:
    """The last `calls` results that are none older than `seconds`."""
    return [result for result in results if result.at >= now - seconds][-calls:]


@given(
    calls=st.integers(1, 6),
    seconds=st.integers(1, 8),
    steps=st.lists(st.tuples(GAPS, st.sampled_from(["ok", "failed", "slow", "turn", "look"]), st.integers(0, 30))),
)
def test_the_sums_are_exact_whatever_the_order(calls: int, seconds: int, steps: list[tuple[float, str, int]]) -> None:
    window = ResultWindow(calls=calls, seconds=seconds)
    entries: list[tuple[Entry, Plain]] = []
    now = 100.0
    for gap, what, number in steps:
        now += gap
        results = standing([plain for _, plain in entries], now, calls=calls, seconds=seconds)
        if what == "turn" and entries:
            entry, plain = entries[number % len(entries)]
            assert window.fail(entry, now) is any(plain is result for result in results)
            plain.failed = True
        elif what in ("ok", "failed", "slow"):
            failed, slow = what == "failed", what == "slow"
            entries.append((window.add(now, failed=failed, slow=slow), Plain(now, failed, slow)))
        window.expire(now)
        results = standing([plain for _, plain in entries], now, calls=calls, seconds=seconds)
        assert len(window) == len(results)
        assert window.failures == sum(result.failed for result in results)
        assert window.slow == sum(result.slow for result in results)


def test_a_result_as_old_as_the_window_still_counts() -> None:
    window = ResultWindow(calls=10, seconds=60.0)
    window.add(100.0, failed=True)
    window.expire(160.0)
    assert window.failures == 1
    window.expire(160.1)
    assert window.failures == 0


def test_a_forgotten_result_cannot_come_back_as_a_failure() -> None:
    window = ResultWindow(calls=10, seconds=60.0)
    entry = window.add(100.0, failed=False, slow=True)
    window.clear()
    window.add(100.0, failed=False)
    assert not window.fail(entry, 100.0)
    assert repr(window) == "<ResultWindow 1 calls, 0 failed, 0 slow>"


@given(events=st.lists(GAPS, max_size=60))
def test_events_of_the_last_seconds_are_counted_and_older_ones_forgotten(events: list[float]) -> None:
    window = RateWindow(seconds=10.0)
    now, times = 5000.0, []
    for gap in events:
        now += gap
        window.add(now)
        times.append(now)
        assert sum(now - at <= 9.0 for at in times) <= window.total(now) <= sum(now - at <= 10.0 for at in times)


def test_a_long_silence_empties_the_count() -> None:
    window = RateWindow(seconds=10.0)
    for _ in range(5):
        window.add(1000.0)
    assert window.total(1000.0) == 5
    assert window.total(1_000_000.0) == 0
