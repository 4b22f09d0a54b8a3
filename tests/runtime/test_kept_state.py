"""Kept state: cores by identity over reloads, ten minutes of grace, renames, and assemblies that fail."""

from __future__ import annotations

import pytest

from proxy.decisions.admission import Admission
from proxy.decisions.deadline import WaitLimits
from proxy.decisions.places import Places
from proxy.decisions.queues import Ask, Line, Waiter
from proxy.decisions.quota import Bucket
from proxy.decisions.room import QueueSettings, Room
from proxy.decisions.tenants import Tenants
from proxy.runtime.kept_state import GRACE_SECONDS, KeptState

ONE, OTHER = ("breaker", "alpha", "m1"), ("breaker", "alpha", "m2")


class Core:
    """Something with state."""


def in_use(kept: KeptState) -> dict[tuple[object, ...], bool]:
    return {identity: used for identity, _, used in kept.all(Core)}


def assembled(kept: KeptState, *identities: tuple[str, ...], now: float = 0.0) -> list[Core]:
    """Takes a policy that needs these cores live."""
    kept.begin()
    cores = [kept.get(identity, Core) for identity in identities]
    kept.commit(now)
    return cores


def test_an_equal_identity_is_the_same_core_and_another_is_another() -> None:
    kept = KeptState()
    first, second = assembled(kept, ONE, OTHER)
    assert assembled(kept, ONE, OTHER) == [first, second]
    assert first is not second


def test_a_core_is_made_only_when_there_is_none() -> None:
    kept = KeptState()
    assembled(kept, ONE)
    kept.begin()
    kept.get(ONE, lambda: pytest.fail("made again"))


def test_what_no_policy_uses_is_kept_for_ten_minutes_and_comes_back_with_its_state() -> None:
    kept = KeptState()
    (core,) = assembled(kept, ONE, now=0.0)
    assembled(kept, OTHER, now=100.0)
    assert in_use(kept) == {ONE: False, OTHER: True}
    assert kept.expire(100.0 + GRACE_SECONDS - 1.0) == []
    assert assembled(kept, ONE, now=650.0) == [core]
    assert in_use(kept) == {ONE: True, OTHER: False}
    assert kept.expire(100.0 + GRACE_SECONDS + 1.0) == []


def test_after_ten_minutes_it_is_handed_out_and_forgotten() -> None:
    kept = KeptState()
    (core,) = assembled(kept, ONE)
    assembled(kept, OTHER, now=100.0)
    assembled(kept, OTHER, now=500.0)
    assert kept.expire(100.0 + GRACE_SECONDS) == [core]
    assert kept.expire(10_000.0) == []
    assert assembled(kept, ONE)[0] is not core


def test_a_limit_whose_places_are_still_taken_is_not_forgotten() -> None:
    kept = KeptState()
    kept.begin()
    places = kept.get(("provider", "alpha"), lambda: Places("alpha", 3))
    kept.commit(0.0)
    places.used = 1
    assembled(kept, now=0.0)
    assert kept.expire(5000.0) == []
    places.used = 0
    assert kept.expire(5000.0 + GRACE_SECONDS - 1.0) == []
    assert kept.expire(5000.0 + GRACE_SECONDS) == [places]


def test_a_queue_in_which_somebody_waits_is_not_forgotten() -> None:
    kept, admission = KeptState(), Admission()
    kept.begin()
    room = kept.get(("room", "alpha"), lambda: Room("alpha"))
    line = kept.get(("line", "alpha", "m"), lambda: Line("alpha/m", room))
    kept.commit(0.0)
    room.reconfigure(QueueSettings(), share=0)
    line.reconfigure((Places("alpha", 0),), None)
    waiter = admission.enter(line, Ask(limits=WaitLimits(queue=9000.0, quota_wait=9000.0)), 0.0)
    assert isinstance(waiter, Waiter)
    assembled(kept, now=0.0)
    assert kept.expire(5000.0) == []
    admission.leave(waiter, 5000.0)
    assert kept.expire(5000.0 + GRACE_SECONDS) == [room, line]


def test_a_quota_in_debt_is_not_forgotten_until_that_is_paid() -> None:
    kept = KeptState()
    kept.begin()
    bucket = kept.get(("tpm", "alpha"), lambda: Bucket("tpm of alpha", 0.0))
    idle = kept.get(("tpm", "beta"), lambda: Bucket("tpm of beta", 0.0))
    kept.commit(0.0)
    bucket.reconfigure(60.0, 0.0, burst=5.0, most=60_000.0)
    bucket.take(2005.0, 0.0)
    idle.reconfigure(0.0, 0.0, burst=5.0, most=60_000.0)
    idle.take(2005.0, 0.0)
    assembled(kept, now=0.0)
    assert kept.expire(1000.0) == [idle], "without a rate it would be owed for ever"
    assert kept.expire(1999.0) == []
    assert kept.expire(1999.0 + GRACE_SECONDS) == [bucket]


def test_tenants_with_something_out_are_not_forgotten() -> None:
    kept = KeptState()
    kept.begin()
    tenants = kept.get(("tenants",), lambda: Tenants(bytes(16)))
    kept.commit(0.0)
    grant = tenants.of("someone", 0.0).caps.take(0.0, 0.0)
    assembled(kept, now=0.0)
    assert kept.expire(5000.0) == []
    grant.give_back(0.0, 5000.0)
    assert kept.expire(5000.0 + GRACE_SECONDS) == [tenants]


def test_a_room_in_which_calls_still_run_is_not_forgotten() -> None:
    kept = KeptState()
    kept.begin()
    room = kept.get(("room", "alpha"), lambda: Room("alpha"))
    kept.commit(0.0)
    room.starts(1)
    assembled(kept, now=0.0)
    assert kept.expire(5000.0) == []
    room.ends(1, 5000.0)
    assert kept.expire(5000.0 + GRACE_SECONDS) == [room]


def test_a_renamed_core_is_the_old_one_under_its_new_name_only() -> None:
    kept = KeptState()
    (core,) = assembled(kept, ONE)
    kept.begin()
    assert kept.get(OTHER, Core, was=[ONE]) is core
    kept.commit(1.0)
    assert in_use(kept) == {OTHER: True}
    kept.begin()
    assert kept.get(OTHER, Core, was=[ONE]) is core, "the old name may stand in the policy for ever"
    kept.commit(2.0)
    assert assembled(kept, ONE)[0] is not core


def test_a_new_name_that_has_state_of_its_own_keeps_it() -> None:
    kept = KeptState()
    old, new = assembled(kept, ONE, OTHER)
    kept.begin()
    assert kept.get(OTHER, Core, was=[ONE]) is new
    kept.commit(1.0)
    assert in_use(kept) == {ONE: False, OTHER: True}
    assert old is not new


def test_a_core_that_the_policy_still_uses_is_not_renamed_away() -> None:
    kept = KeptState()
    (core,) = assembled(kept, ONE)
    kept.begin()
    assert kept.get(ONE, Core) is core
    assert kept.get(OTHER, Core, was=[ONE]) is not core


def test_a_renaming_to_what_never_was_makes_a_new_core() -> None:
    kept = KeptState()
    kept.begin()
    assert isinstance(kept.get(ONE, Core, was=[OTHER]), Core)
    kept.commit(0.0)
    assert in_use(kept) == {ONE: True}


def test_the_first_of_several_old_names_that_has_a_core_counts() -> None:
    kept, new = KeptState(), ("breaker", "alpha", "m3")
    one, other = assembled(kept, ONE, OTHER)
    kept.begin()
    assert kept.get(new, Core, was=[("breaker", "never", "m1"), OTHER, ONE]) is other
    kept.commit(1.0)
    assert in_use(kept) == {ONE: False, new: True}
    assert assembled(kept, ONE) == [one]


def test_an_assembly_that_fails_takes_nothing_away() -> None:
    kept = KeptState()
    one, _ = assembled(kept, ONE, OTHER, now=0.0)
    kept.begin()
    kept.get(("breaker", "beta", "m1"), Core, was=[ONE])
    kept.get(("breaker", "new", "m1"), Core)
    assert in_use(kept)[ONE]
    assert not in_use(kept)[("breaker", "new", "m1")]
    (again, _) = assembled(kept, ONE, OTHER, now=10.0)
    assert again is one
    assert {identity for identity, used in in_use(kept).items() if used} == {ONE, OTHER}


def test_a_renaming_that_failed_can_be_made_later() -> None:
    kept = KeptState()
    (core,) = assembled(kept, ONE)
    for _ in range(2):
        kept.begin()
        kept.get(OTHER, Core, was=[ONE])
    kept.commit(1.0)
    assert in_use(kept) == {OTHER: True}
    assert assembled(kept, OTHER) == [core]


def test_what_a_request_asks_for_while_a_policy_is_live_is_in_use_at_once() -> None:
    kept = KeptState()
    assembled(kept, ONE, now=0.0)
    late = kept.get(OTHER, Core)
    assert in_use(kept) == {ONE: True, OTHER: True}
    assembled(kept, ONE, now=10.0)
    assert in_use(kept) == {ONE: True, OTHER: False}
    assert kept.get(OTHER, Core) is late
    assert kept.expire(10.0 + GRACE_SECONDS) == []


def test_only_the_asked_for_type_is_listed() -> None:
    kept = KeptState()
    kept.begin()
    kept.get(("provider", "alpha"), lambda: Places("alpha", 3))
    kept.get(ONE, Core)
    kept.commit(0.0)
    assert [identity for identity, _, _ in kept.all(Places)] == [("provider", "alpha")]
    assert len(kept) == 2


def test_what_a_request_asks_for_under_a_new_name_is_renamed_at_once_and_for_good() -> None:
    kept = KeptState()
    (core,) = assembled(kept, ONE, now=0.0)
    assembled(kept, now=1.0)
    assert kept.get(OTHER, Core, was=[ONE]) is core
    assert in_use(kept) == {OTHER: True}
    assembled(kept, now=2.0)
    assert in_use(kept) == {OTHER: False}
