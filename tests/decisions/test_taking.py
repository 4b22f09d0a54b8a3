"""What a call may go with, or what it lacks: all that binds it, the narrowest first, and nothing is taken."""

from __future__ import annotations

from proxy.decisions.keys import Key, Lack, Pinned, usable
from proxy.decisions.places import URGENT, Places
from proxy.decisions.queues import Line
from proxy.decisions.quota import Bucket
from proxy.decisions.taking import above, emptiest, find, least_busy
from proxy.outcome import Outcome, OutcomeKind
from tests.decisions.waiting_room import NOW, a_bucket, a_key, a_line, a_ring, a_room

LIMITED = Outcome(OutcomeKind.RATE_LIMITED, retry_after=5.0)
REJECTED = Outcome(OutcomeKind.CREDENTIAL_REJECTED, key_fault=True)


def full(label: str) -> Places:
    places = Places(label, 1)
    places.used = 1
    return places


def metered(key: Key, *, requests: float | None = None, tokens: float | None = None) -> Key:
    """A key with buckets of so much a minute."""
    key.reconfigure(
        weight=1.0,
        places=key.places,
        requests=() if requests is None else (a_bucket(requests),),
        tokens=() if tokens is None else (a_bucket(tokens, most=tokens),),
    )
    return key


def observing(line: Line) -> Line:
    line._observes = True
    return line


def lacks(line: Line, *, klass: int = 1, tokens: float = 0.0, now: float = NOW) -> tuple[Lack, object]:
    missing = find(line, klass, tokens, None, now)
    assert isinstance(missing, tuple)
    return missing


def test_a_line_that_nothing_binds_needs_no_key() -> None:
    assert find(a_line(a_room()), 1, 1000.0, None, NOW) is None


def test_of_full_limits_the_narrowest_is_told() -> None:
    process, provider, model = full("process"), Places("provider", 1), full("model")
    assert lacks(a_line(a_room(), process, provider, model)) == (Lack.PERMIT, model)
    assert lacks(a_line(a_room(), process, provider)) == (Lack.PERMIT, process)


def test_a_place_that_is_kept_for_another_group_is_none() -> None:
    places = Places("provider", 1)
    places.reserve([(URGENT, 1.0)])
    line = a_line(a_room(), places)
    assert lacks(line) == (Lack.PERMIT, places)
    assert find(line, 0, 0.0, None, NOW) is None


def test_only_p2_needs_an_idle_provider() -> None:
    room = a_room(share=0)
    line = a_line(room, full("provider"))
    room.starts(1)
    assert lacks(line, klass=2) == (Lack.IDLE, room)
    assert lacks(line, klass=1)[0] is Lack.PERMIT


def test_of_empty_buckets_the_one_that_takes_the_longest_is_told() -> None:
    requests, wide, narrow = a_bucket(60.0), a_bucket(6000.0), a_bucket(600.0)
    line = a_line(a_room(), requests=(requests,), tokens=(wide, narrow))
    assert lacks(line, tokens=5.0) == (Lack.QUOTA, requests)
    assert lacks(line, tokens=20.0) == (Lack.QUOTA, narrow)
    assert lacks(line, tokens=20.0, now=NOW + 1.0) == (Lack.QUOTA, narrow)
    assert find(line, 1, 20.0, None, NOW + 2.0) is None
    assert emptiest(line, 20.0, NOW + 2.0, urgent=False) is None


def test_what_is_kept_of_a_bucket_is_for_p0() -> None:
    bucket = a_bucket(600.0, reserved=0.5)
    line = a_line(a_room(), tokens=(bucket,))
    bucket.give(25.0, NOW)
    assert lacks(line, tokens=1.0) == (Lack.QUOTA, bucket)
    assert find(line, 0, 25.0, None, NOW) is None


def test_more_than_the_whole_fleet_may_use_lacks_quota_however_full_the_bucket_is() -> None:
    """A new bucket lets its first request go whatever its size, but not that one."""
    fresh = Bucket("tpm", NOW)
    fresh.reconfigure(600.0, NOW, burst=5.0, most=600.0)
    line = a_line(a_room(), tokens=(fresh,))
    assert lacks(line, tokens=601.0, now=NOW + 100.0) == (Lack.QUOTA, fresh)
    assert find(line, 1, 600.0, None, NOW) is None


def test_a_single_request_a_minute_is_one_though_headroom_makes_it_less() -> None:
    rare = Bucket("rpm", NOW)
    rare.reconfigure(0.8, NOW, burst=5.0, most=0.8)
    assert find(a_line(a_room(), requests=(rare,)), 1, 0.0, None, NOW) is None


def test_the_key_is_looked_for_last_and_what_the_keys_lack_is_told_with_their_ring() -> None:
    key = a_key("a", size=1)
    ring = a_ring(key)
    line = a_line(a_room(), Places("provider", 1), ring=ring)
    assert find(line, 1, 0.0, None, NOW) is key
    assert key.places is not None
    key.places.used = 1
    assert lacks(line) == (Lack.PERMIT, ring)
    key.places.used = 0
    metered(key, requests=60.0)
    assert lacks(line) == (Lack.QUOTA, ring)
    ring.judge(key, LIMITED, NOW, used=key.credential)
    assert lacks(line) == (Lack.KEY, ring)
    ring.judge(key, REJECTED, NOW, used=key.credential)
    assert lacks(line) == (Lack.NO_KEY, ring)


def test_a_key_without_quota_for_this_call_leaves_it_to_one_that_has() -> None:
    small, large = metered(a_key("small"), tokens=600.0), metered(a_key("large"), tokens=60_000.0)
    line = a_line(a_room(), ring=a_ring(small, large))
    now = NOW + 5.0
    assert [find(line, 1, 601.0, None, now) for _ in range(3)] == [large] * 3
    assert find(line, 1, 50.0, {"large"}, now) is small
    assert find(line, 1, 601.0, {"large"}, now) is large, "a tried key is better than none"


def test_nothing_is_taken() -> None:
    places, bucket, key = Places("provider", 1), a_bucket(600.0), metered(a_key("a", size=1), tokens=600.0)
    line = a_line(a_room(), places, ring=a_ring(key), tokens=(bucket,))
    now = NOW + 5.0
    for _ in range(3):
        assert find(line, 1, 50.0, None, now) is key
    assert key.places is not None
    assert (places.used, key.places.used, bucket.level(now), key.tokens[0].level(now)) == (0, 0, 50.0, 50.0)


# Observing


def test_who_observes_lacks_neither_places_nor_quota_nor_idle_capacity() -> None:
    room = a_room(share=0)
    room.starts(1)
    line = observing(a_line(room, full("provider"), requests=(a_bucket(0.0),), tokens=(a_bucket(60.0),)))
    assert find(line, 2, 1e9, None, NOW) is None


def test_who_observes_takes_the_least_busy_key_when_all_are_full_or_empty_and_waits_for_resting_ones() -> None:
    busy, resting, empty = a_key("busy", size=1), a_key("resting"), metered(a_key("empty", size=1), tokens=60.0)
    assert busy.places is not None
    busy.places.used = 2
    ring = a_ring(busy, resting, empty)
    line = observing(a_line(a_room(), ring=ring))
    ring.judge(resting, LIMITED, NOW, used=resting.credential)
    assert find(line, 1, 50.0, None, NOW) is empty
    assert find(line, 1, 50.0, {"empty"}, NOW) is busy
    assert least_busy(ring, None, NOW) is empty
    for key in (busy, empty):
        ring.judge(key, LIMITED, NOW, used=key.credential)
    assert lacks(line) == (Lack.KEY, ring)


def test_a_limit_is_above_by_what_is_taken_beyond_it() -> None:
    places = Places("provider", 3)
    assert (above(None), above(places)) == (0, -3)
    places.used = 5
    assert above(places) == 2


def test_usable_are_keys_that_neither_rest_nor_are_parked() -> None:
    fine, resting, parked, secretless = (a_key(name) for name in ("fine", "resting", "parked", "secretless"))
    ring = a_ring(fine, resting, parked, secretless)
    ring.judge(resting, LIMITED, NOW, used=resting.credential)
    ring.judge(parked, REJECTED, NOW, used=parked.credential)
    secretless.renew(None, "")
    assert list(usable(ring, NOW)) == [fine]
    assert list(usable(ring, NOW + 5.0)) == [fine, resting]


def test_nobody_waits_for_one_certain_key_where_there_are_others() -> None:
    ring, pinned = a_ring(a_key("a", size=1), a_key("b")), Pinned({"b"}, only="a")
    line = a_line(a_room(), ring=ring)
    assert find(line, 1, 0.0, pinned, NOW) is ring.keys[0]
    ring.judge(ring.keys[0], LIMITED, NOW, used=ring.keys[0].credential)
    assert find(line, 1, 0.0, pinned, NOW) == (Lack.NO_KEY, ring)


def test_the_only_key_is_waited_for() -> None:
    ring = a_ring(a_key("a"))
    ring.judge(ring.keys[0], LIMITED, NOW, used=ring.keys[0].credential)
    assert find(a_line(a_room(), ring=ring), 1, 0.0, Pinned((), only="a"), NOW) == (Lack.KEY, ring)


def test_where_it_is_only_observed_a_pinned_request_goes_with_its_key_however_full() -> None:
    ring = a_ring(a_key("a", size=1), a_key("b", size=1))
    for key, used in zip(ring.keys, (3, 1), strict=True):
        assert key.places is not None
        key.places.used = used
    line = observing(a_line(a_room(), ring=ring))
    assert find(line, 1, 0.0, Pinned({"b"}, only="a"), NOW) is ring.keys[0]
