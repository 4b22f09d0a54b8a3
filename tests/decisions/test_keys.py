"""Keys: weighted choice, rest after a 429, parking after a 401 (`semantics.md` §4)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.keys import LONGEST_REST_SECONDS, Key, KeyRing, Lack, Pinned
from proxy.decisions.places import Places
from proxy.exchange import Credential
from proxy.outcome import Outcome, OutcomeKind

K = OutcomeKind
NOW = 1000.0
LIMITED = Outcome(K.RATE_LIMITED, status=429)
REJECTED = Outcome(K.CREDENTIAL_REJECTED, status=401, key_fault=True)


def a_credential(key_id: str, secret: str = "s3cret") -> Credential:
    return Credential(key_id=key_id, header=(b"authorization", f"Bearer {secret}-{key_id}".encode()))


def a_key(key_id: str, *, weight: float = 1.0, size: int | None = None) -> Key:
    key = Key(key_id)
    key.weight = weight
    key.places = Places(key_id, size) if size is not None else None
    key.renew(a_credential(key_id), f"hash of {key_id}")
    return key


def a_ring(*keys: Key, rest_seconds: float = 60.0) -> KeyRing:
    ring = KeyRing()
    ring.reconfigure(keys, rest_seconds=rest_seconds)
    return ring


def judge(ring: KeyRing, key: Key, outcome: Outcome, now: float = NOW) -> None:
    """An attempt with the key's present secret ends."""
    ring.judge(key, outcome, now, used=key.credential)


def chosen(ring: KeyRing, *, times: int, now: float = NOW, tried: set[str] | None = None) -> list[str]:
    return [choice.id if isinstance(choice := ring.choose(now, tried), Key) else choice.value for _ in range(times)]


@given(weights=st.lists(st.integers(1, 7), min_size=1, max_size=6), rounds=st.integers(1, 4))
def test_each_key_is_used_by_its_weight_exactly(weights: list[int], rounds: int) -> None:
    ring = a_ring(*(a_key(str(index), weight=weight) for index, weight in enumerate(weights)))
    counts = Counter(chosen(ring, times=sum(weights) * rounds))
    assert counts == {str(index): weight * rounds for index, weight in enumerate(weights)}


def test_the_choice_is_smooth() -> None:
    ring = a_ring(a_key("a", weight=3), a_key("b"), a_key("c"))
    assert "aaa" not in "".join(chosen(ring, times=20))


def test_twenty_keys_take_turns() -> None:
    ring = a_ring(*(a_key(str(number)) for number in range(20)))
    assert set(Counter(chosen(ring, times=200)).values()) == {10}


@given(tried=st.sets(st.sampled_from("abc")))
def test_a_key_that_this_request_has_not_tried_goes_first(tried: set[str]) -> None:
    ring = a_ring(*map(a_key, "abc"))
    assert set(chosen(ring, times=6, tried=tried)) == (set("abc") - tried or set("abc"))


def test_a_tried_key_is_better_than_none() -> None:
    ring = a_ring(a_key("a"), b := a_key("b"))
    judge(ring, b, LIMITED)
    assert chosen(ring, times=2, tried={"a"}) == ["a", "a"]


def test_a_key_without_a_free_place_is_passed_over() -> None:
    ring = a_ring(a := a_key("a", size=1), a_key("b"))
    assert a.places is not None
    a.places.used = 1
    assert chosen(ring, times=3) == ["b", "b", "b"]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_full_key_beside_a_resting_one_is_a_lack_of_permits(order: str) -> None:
    """The place comes back before the rest is over, or after: in both cases the wait is for what can be had first."""
    keys = {"a": a_key("a", size=0), "b": a_key("b")}
    ring = a_ring(*(keys[name] for name in order))
    judge(ring, keys["b"], LIMITED)
    assert ring.choose(NOW, None) is Lack.PERMIT


@pytest.mark.parametrize(
    ("told", "seconds"), [(None, 60.0), (2.5, 2.5), (120.0, 120.0), (1e6, LONGEST_REST_SECONDS), (0.0, 0.0)]
)
def test_a_429_rests_the_key_as_long_as_told_or_as_configured(told: float | None, seconds: float) -> None:
    ring = a_ring(key := a_key("a"))
    judge(ring, key, Outcome(K.RATE_LIMITED, status=429, retry_after=told))
    if seconds:
        assert ring.choose(NOW + seconds - 0.001, None) is Lack.KEY
    assert ring.choose(NOW + seconds, None) is key


def test_a_later_rest_never_shortens_an_earlier_one() -> None:
    ring = a_ring(key := a_key("a"))
    judge(ring, key, Outcome(K.RATE_LIMITED, retry_after=100.0))
    judge(ring, key, Outcome(K.RATE_LIMITED, retry_after=1.0), NOW + 5.0)
    assert ring.usable_at(NOW + 5.0) == NOW + 100.0
    judge(ring, key, Outcome(K.RATE_LIMITED, retry_after=200.0), NOW + 5.0)
    assert ring.usable_at(NOW + 5.0) == NOW + 205.0


def test_while_a_key_rests_the_others_work() -> None:
    ring = a_ring(a := a_key("a"), a_key("b"))
    judge(ring, a, LIMITED)
    assert set(chosen(ring, times=4)) == {"b"}
    assert Counter(chosen(ring, times=20, now=NOW + 60.0)) == {"a": 10, "b": 10}


def test_the_soonest_return_is_known_when_all_rest() -> None:
    ring = a_ring(a := a_key("a"), b := a_key("b"))
    judge(ring, a, Outcome(K.RATE_LIMITED, retry_after=30.0))
    judge(ring, b, Outcome(K.RATE_LIMITED, retry_after=10.0))
    assert ring.choose(NOW, None) is Lack.KEY
    assert ring.usable_at(NOW) == NOW + 10.0
    assert ring.usable_at(NOW + 15.0) == NOW + 15.0


def test_a_rejected_key_is_parked_until_its_secret_changes() -> None:
    ring = a_ring(key := a_key("a"))
    judge(ring, key, REJECTED)
    assert ring.choose(NOW + 1e9, None) is Lack.NO_KEY
    assert ring.usable_at(NOW) is None
    key.renew(a_credential("a"), "hash of a")
    assert ring.choose(NOW, None) is Lack.NO_KEY
    key.renew(a_credential("a", "other"), "another hash")
    assert ring.choose(NOW, None) is key


def test_a_new_secret_ends_the_old_ones_rest_and_the_same_secret_does_not() -> None:
    ring = a_ring(key := a_key("a"))
    judge(ring, key, LIMITED)
    key.renew(a_credential("a"), "hash of a")
    assert ring.choose(NOW, None) is Lack.KEY
    key.renew(a_credential("a", "other"), "another hash")
    assert ring.choose(NOW, None) is key


@pytest.mark.parametrize("outcome", [LIMITED, REJECTED], ids=repr)
def test_what_an_old_secret_is_told_is_not_held_against_the_new_one(outcome: Outcome) -> None:
    ring = a_ring(key := a_key("a"))
    used = key.credential
    key.renew(a_credential("a", "other"), "another hash")
    ring.judge(key, outcome, NOW, used=used)
    assert ring.choose(NOW, None) is key


def test_a_403_that_does_not_blame_the_key_parks_nothing() -> None:
    ring = a_ring(key := a_key("a"))
    judge(ring, key, Outcome(K.CREDENTIAL_REJECTED, status=403))
    assert ring.choose(NOW, None) is key


@pytest.mark.parametrize("kind", [k for k in OutcomeKind if k not in (K.RATE_LIMITED, K.CREDENTIAL_REJECTED)])
def test_no_other_end_concerns_the_key(kind: OutcomeKind) -> None:
    ring = a_ring(key := a_key("a"))
    judge(ring, key, Outcome(kind, retry_after=30.0, key_fault=True))
    assert ring.choose(NOW, None) is key


def test_a_key_without_a_secret_cannot_be_used() -> None:
    ring = a_ring(Key("a"))
    assert ring.choose(NOW, None) is Lack.NO_KEY
    assert ring.usable_at(NOW) is None
    assert not ring.has_other(NOW, ())


def test_another_key_is_one_that_is_untried_and_usable_now() -> None:
    ring = a_ring(a_key("a"), b := a_key("b"), c := a_key("c"))
    assert ring.has_other(NOW, {"a"})
    judge(ring, b, LIMITED)
    assert ring.has_other(NOW, {"a"})
    judge(ring, c, REJECTED)
    assert not ring.has_other(NOW, {"a"})
    assert ring.has_other(NOW + 60.0, {"a"})
    assert not ring.has_other(NOW + 60.0, {"a", "b", "c"})


def test_who_watches_is_told_of_rests_and_parking_once() -> None:
    told: list[tuple[str, str, float]] = []
    ring = a_ring(key := a_key("a"))
    ring.rewire(lambda key_id, state, seconds: told.append((key_id, state, seconds)))
    judge(ring, key, LIMITED)
    judge(ring, key, Outcome(K.RATE_LIMITED, retry_after=1.0))
    judge(ring, key, REJECTED)
    judge(ring, key, REJECTED)
    assert told == [("a", "resting", 60.0), ("a", "parked", 0.0)]


def test_the_statistics_name_every_state() -> None:
    keys = [a_key("fresh", size=3), a_key("tired"), a_key("dead", weight=2), Key("bare")]
    ring = a_ring(*keys)
    judge(ring, keys[1], LIMITED)
    judge(ring, keys[2], REJECTED)
    facts = ring.statistics(NOW + 20.0)
    assert [(f.id, f.state, f.rests_for, f.limit, f.weight) for f in facts] == [
        ("fresh", "usable", 0.0, 3, 1.0),
        ("tired", "resting", 40.0, None, 1.0),
        ("dead", "parked", 0.0, None, 2.0),
        ("bare", "no_secret", 0.0, None, 1.0),
    ]


def test_no_secret_is_in_a_representation() -> None:
    key = a_key("a")
    judge(a_ring(key), key, REJECTED)
    assert repr(key) == "<Key a parked>"
    assert "s3cret" not in repr(key.credential)


def test_a_pinned_request_never_gets_another_key() -> None:
    ring = a_ring(a_key("a", size=1), a_key("b"))
    pinned = Pinned({"b"}, only="a")
    assert chosen(ring, times=3, tried=pinned) == ["a"] * 3
    places = ring.keys[0].places
    assert places is not None
    places.used = 1
    assert chosen(ring, times=1, tried=pinned) == [Lack.PERMIT]
    assert chosen(ring, times=1, tried={"a"}) == ["b"]


def test_a_pinned_request_gets_nothing_where_its_key_has_gone() -> None:
    assert chosen(a_ring(a_key("b")), times=1, tried=Pinned((), only="a")) == [Lack.NO_KEY]
