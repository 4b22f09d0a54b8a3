"""The ceiling under which a target comes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.ramp import RAMP_SECONDS, Ramp

NOW = 1000.0


def a_ramp(first: int, share: int) -> Ramp:
    ramp = Ramp()
    ramp.reconfigure(first=first, share=share)
    return ramp


def sizes(ramp: Ramp, *times: float) -> list[int | None]:
    """The ceiling at these seconds after `NOW`."""
    seen = []
    for seconds in times:
        ramp.advance(NOW + seconds)
        seen.append(ramp.size)
    return seen


def test_it_grows_from_the_probe_count_to_the_share_and_is_gone() -> None:
    ramp = a_ramp(3, 103)
    ramp.hold()
    assert sizes(ramp, 0.0, 500.0) == [3, 3]
    ramp.rise(NOW)
    assert sizes(ramp, 0.0, 0.05, 0.5, 5.0, 9.99, 10.0, 20.0) == [3, 3, 8, 53, 102, None, None]
    assert ramp.since is None


def test_the_limit_has_the_size_of_the_ceiling_and_keeps_who_is_under_it() -> None:
    ramp = a_ramp(2, 10)
    ramp.hold()
    ramp.advance(NOW)
    ramp.places.used += 2
    ramp.rise(NOW)
    ramp.advance(NOW + 5.0)
    assert (ramp.places.size, ramp.places.used) == (6, 2)
    assert repr(ramp) == "<Ramp 2/6, share 10>"


def test_it_says_when_it_moved() -> None:
    ramp = a_ramp(2, 12)
    assert not ramp.advance(NOW)
    ramp.rise(NOW)
    assert [ramp.advance(NOW + seconds) for seconds in (0.0, 0.9, 1.0, 1.0, 10.0, 11.0)] == [
        *(True, False, True, False),
        *(True, False),
    ]


def test_opening_ends_it() -> None:
    ramp = a_ramp(2, 12)
    ramp.rise(NOW)
    ramp.advance(NOW + 5.0)
    ramp.end()
    assert ramp.advance(NOW + 5.0)
    assert sizes(ramp, 5.0, 6.0) == [None, None]
    assert repr(ramp) == "<Ramp off, share 12>"


def test_a_share_that_the_probes_fill_already_has_no_ceiling() -> None:
    for share in (0, 2, 3):
        ramp = a_ramp(3, share)
        ramp.hold()
        assert not ramp.advance(NOW)
        ramp.rise(NOW)
        assert sizes(ramp, 0.0, 5.0) == [None, None]


def test_a_share_that_changes_on_the_way_is_reached_at_the_same_time() -> None:
    ramp = a_ramp(2, 102)
    ramp.rise(NOW)
    assert sizes(ramp, 5.0) == [52]
    ramp.reconfigure(first=2, share=12)
    assert sizes(ramp, 5.0, 7.0) == [7, 9]
    ramp.reconfigure(first=2, share=2)
    assert sizes(ramp, 8.0) == [None]
    ramp.reconfigure(first=2, share=202)
    assert sizes(ramp, 8.0, 10.0) == [162, None]


@given(
    first=st.integers(1, 20),
    share=st.integers(0, 500),
    steps=st.lists(st.floats(0, 3), max_size=20),
)
def test_it_never_falls_by_time_and_stays_between_probes_and_share(first: int, share: int, steps: list[float]) -> None:
    ramp = a_ramp(first, share)
    ramp.rise(NOW)
    now, before = NOW, first
    for step in steps:
        now += step
        ramp.advance(now)
        if ramp.size is None:
            assert share <= first or now >= NOW + RAMP_SECONDS
            break
        assert now < NOW + RAMP_SECONDS
        assert before <= ramp.size < share
        before = ramp.size
