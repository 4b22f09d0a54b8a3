"""Lanes: who goes at once, who waits and how long, and what one call may carry."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proxy.decisions.merging import Batch, Lane, MergeBounds, Parcel

BOUNDS = MergeBounds(window=1.0, inputs=4, tokens=100, size=1000)


def busy() -> tuple[Lane[Parcel], Batch[Parcel]]:
    """A lane in which a call is under way, and waits for nothing."""
    lane: Lane[Parcel] = Lane()
    (first,) = lane.join(Parcel(inputs=1), BOUNDS, 0.0)
    lane.began(first)
    return lane, first


def test_a_quiet_lane_lets_the_first_one_go_at_once() -> None:
    lane: Lane[Parcel] = Lane()
    parcel = Parcel(inputs=1)
    (batch,) = lane.join(parcel, BOUNDS, 0.0)
    assert batch.parcels == [parcel]
    assert lane.due is None


def test_who_comes_while_a_call_is_under_way_waits_for_a_window() -> None:
    lane, _ = busy()
    late, later = Parcel(inputs=1), Parcel(inputs=1)
    assert lane.join(late, BOUNDS, 5.0) == []
    assert lane.join(later, BOUNDS, 5.5) == []
    assert lane.due == 6.0
    assert lane.overdue(5.9) is None
    batch = lane.overdue(6.0)
    assert batch is not None
    assert batch.parcels == [late, later]
    assert lane.due is None


def test_a_lane_is_quiet_only_a_window_after_the_last_one_came() -> None:
    lane, first = busy()
    lane.ended(first)
    assert not lane.is_quiet(1.0, 1.0)
    assert lane.is_quiet(1.1, 1.0)
    assert lane.join(Parcel(inputs=1), BOUNDS, 1.0) == []
    assert lane.due == 2.0


def test_a_full_batch_goes_at_once() -> None:
    lane, _ = busy()
    assert lane.join(Parcel(inputs=3), BOUNDS, 0.1) == []
    (batch,) = lane.join(Parcel(inputs=1), BOUNDS, 0.2)
    assert [parcel.inputs for parcel in batch.parcels] == [3, 1]
    assert not lane.waiting


def test_what_does_not_fit_starts_the_next_batch_and_its_own_window() -> None:
    lane, _ = busy()
    lane.join(Parcel(inputs=3), BOUNDS, 0.1)
    (batch,) = lane.join(Parcel(inputs=2), BOUNDS, 0.6)
    assert [parcel.inputs for parcel in batch.parcels] == [3]
    assert [parcel.inputs for parcel in lane.waiting] == [2]
    lane.began(batch)
    assert lane.due == 1.6


def test_tokens_and_bytes_bind_as_inputs_do() -> None:
    for one in (Parcel(inputs=1, tokens=60), Parcel(inputs=1, size=600)):
        lane, _ = busy()
        lane.join(one, BOUNDS, 0.1)
        (batch,) = lane.join(Parcel(inputs=1, tokens=60, size=600), BOUNDS, 0.2)
        assert batch.parcels == [one]


def test_behind_a_call_that_waits_itself_they_go_on_gathering() -> None:
    lane, _ = busy()
    lane.join(Parcel(inputs=1), BOUNDS, 0.1)
    ahead = lane.overdue(1.1)
    assert ahead is not None
    lane.join(Parcel(inputs=1), BOUNDS, 2.0)
    assert lane.due is None
    assert lane.overdue(50.0) is None
    lane.began(ahead)
    lane.began(ahead)
    assert lane.due == 3.0
    assert lane.overdue(50.0) is not None


def test_a_call_that_ends_before_it_began_holds_nobody_up() -> None:
    lane, _ = busy()
    lane.join(Parcel(inputs=1), BOUNDS, 0.1)
    ahead = lane.overdue(1.1)
    assert ahead is not None
    lane.join(Parcel(inputs=1), BOUNDS, 1.2)
    lane.ended(ahead)
    lane.ended(ahead)
    assert lane.due == 2.2


def test_behind_it_a_full_batch_goes_all_the_same() -> None:
    lane: Lane[Parcel] = Lane()
    lane.join(Parcel(inputs=1), BOUNDS, 0.0)
    assert lane.join(Parcel(inputs=3), BOUNDS, 0.1) == []
    (batch,) = lane.join(Parcel(inputs=1), BOUNDS, 0.2)
    assert len(batch.parcels) == 2


def test_who_leaves_is_taken_out() -> None:
    lane, _ = busy()
    gone, stays = Parcel(inputs=3, tokens=90, size=900), Parcel(inputs=1)
    lane.join(gone, BOUNDS, 0.1)
    lane.leave(gone)
    assert lane.due is None
    assert lane.join(stays, BOUNDS, 0.5) == []
    assert lane.join(Parcel(inputs=2, tokens=90, size=900), BOUNDS, 0.6) == []
    assert lane.due == 1.5


def test_smaller_bounds_hold_for_whoever_comes() -> None:
    lane, _ = busy()
    lane.join(Parcel(inputs=3), BOUNDS, 0.1)
    (first, second) = lane.join(Parcel(inputs=2), replace(BOUNDS, inputs=2), 0.2)
    assert [len(first.parcels), len(second.parcels)] == [1, 1]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=30))
def test_order_is_kept_and_nothing_is_lost(sizes: list[int]) -> None:
    lane, _ = busy()
    parcels = [Parcel(inputs=size) for size in sizes]
    went: list[Parcel] = []
    for parcel in parcels:
        for batch in lane.join(parcel, BOUNDS, 0.5):
            assert sum(one.inputs for one in batch.parcels) <= BOUNDS.inputs
            went += batch.parcels
    assert [*went, *lane.waiting] == parcels


class Walk(RuleBasedStateMachine):
    """Whatever happens, in any order: everybody goes once or leaves, and nobody waits too long."""

    def __init__(self) -> None:
        super().__init__()
        self.lane: Lane[Parcel] = Lane()
        self.now = 0.0
        self.came: dict[Parcel, float] = {}
        self.gone: list[Parcel] = []
        self.under_way: list[Batch[Parcel]] = []
        self.held_until = 0.0
        """When the last call began, or ended, that others had to wait behind."""

    def went(self, batch: Batch[Parcel]) -> None:
        held = any(not one.begun for one in self.under_way)
        self.under_way.append(batch)
        assert batch.parcels
        assert sum(parcel.inputs for parcel in batch.parcels) <= BOUNDS.inputs
        assert sum(parcel.tokens for parcel in batch.parcels) <= BOUNDS.tokens or len(batch.parcels) == 1
        for parcel in batch.parcels:
            came = self.came.pop(parcel)
            assert held or self.now <= max(came + BOUNDS.window, self.held_until)

    def look(self) -> None:
        batch = self.lane.overdue(self.now)
        if batch is not None:
            self.went(batch)

    @rule(inputs=st.integers(1, 4), tokens=st.integers(0, 150))
    def comes(self, inputs: int, tokens: int) -> None:
        parcel = Parcel(inputs=inputs, tokens=tokens)
        self.came[parcel] = self.now
        for batch in self.lane.join(parcel, BOUNDS, self.now):
            self.went(batch)

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 3.0]))
    def time_passes(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.lane.due) is not None and due <= end:
            self.now = max(self.now, due)
            self.look()
        self.now = end

    @precondition(lambda self: self.lane.waiting)
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        parcel = data.draw(st.sampled_from(self.lane.waiting))
        self.lane.leave(parcel)
        del self.came[parcel]
        self.look()

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), ends=st.booleans())
    def begins_or_ends(self, data: st.DataObject, ends: bool) -> None:
        batch = data.draw(st.sampled_from(self.under_way))
        self.held_until = self.now
        if ends:
            self.under_way.remove(batch)
            self.lane.ended(batch)
        else:
            self.lane.began(batch)
        self.look()

    @invariant()
    def the_waiting_are_those_who_came(self) -> None:
        assert self.lane.waiting == list(self.came)
        assert self.lane.busy == bool(self.came or self.under_way)
        held = any(not batch.begun for batch in self.under_way)
        if self.came and not held:
            assert self.lane.due is not None
            assert self.lane.due > self.now


TestWalk = Walk.TestCase


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    tokens=st.lists(st.integers(0, 60), min_size=8, max_size=8),
)
def test_who_fits_into_a_call_that_has_waited_stands_in_front_and_nobody_is_passed(
    sizes: list[int], tokens: list[int]
) -> None:
    lane, _ = busy()
    bounds = replace(BOUNDS, inputs=10, tokens=1000)
    parcels = [Parcel(inputs=size, tokens=each, size=10) for size, each in zip(sizes, tokens, strict=False)]
    batch = Batch([Parcel(inputs=2, tokens=30)])
    for parcel in parcels:
        assert lane.join(parcel, replace(bounds, inputs=100), 0.1) == []
    tight = replace(bounds, tokens=100)
    more = lane.fitting(batch, tight)
    assert more == parcels[: len(more)]
    assert lane.waiting == parcels, "looking takes nobody"
    taken = [*batch.parcels, *more]
    assert sum(each.inputs for each in taken) <= 10
    assert sum(each.tokens for each in taken) <= 100
    if len(more) < len(parcels):
        taken.append(parcels[len(more)])
        assert sum(each.inputs for each in taken) > 10 or sum(each.tokens for each in taken) > 100
    lane.take_along(batch, more)
    assert lane.waiting == parcels[len(more) :]
    assert batch.parcels[1:] == more
