"""Sections of keys; that they are true of a reload is `test_truth.py`'s."""

from __future__ import annotations

from proxy.policy.difference.change import Section, Sign
from proxy.policy.difference.keys import keys
from tests.policy.difference.policies import difference, reload_of, says, section, told
from tests.policy.samples import GOOD

ONE = "{id: k, env: K, concurrency: 6}"


def policy(*written: str) -> str:
    """A policy whose provider has these keys."""
    return f"{GOOD}    keys: [{', '.join(written)}]\n"


def found(new: str, subject: str, *, old: str = ONE) -> Section:
    """The section of a key, where provider a had another one."""
    return section(difference(policy(old), policy(new)), subject)


def test_equal_ones_have_none() -> None:
    step = reload_of(policy(ONE), policy(ONE))
    assert list(keys(step.old.providers[0], step.new.providers[0], step)) == [None]


def test_settings_that_change() -> None:
    one = found("{id: k, file: /k, weight: 2, concurrency: 3}", "key a/k")
    assert says(one) == {
        "source": ("env K", "file /k"),
        "weight": ("1", "2"),
        "concurrency": ("6", "3"),
        "share of an instance": ("6", "3"),
    }
    assert "permits of this key that are in use stay counted" in told(one)


def test_a_limit_that_goes() -> None:
    assert told(found("{id: k, env: K}", "key a/k")) == "the key has no limit of its own any more"


def test_a_new_one_with_the_source_of_one_that_goes_looks_renamed() -> None:
    one = found("{id: l, env: K, concurrency: 4}", "key a/l")
    assert one.sign is Sign.ADDED
    assert says(one) == {
        "source": ("none", "env K"),
        "concurrency": ("none", "4"),
        "share of an instance": ("none", "4"),
    }
    assert "`was: k` would keep its rest and parking" in told(one)
    assert found("{id: l, env: K}", "key a/k").sign is Sign.REMOVED


def test_a_renamed_one_is_one_key() -> None:
    one = found("{id: l, was: k, env: K}", "key a/l", old="{id: k, env: K}")
    assert (one.sign, says(one)) == (Sign.CHANGED, {"id": ("k", "l")})


def test_was_without_effect() -> None:
    assert "no such key in the old policy" in told(found(f"{ONE}, {{id: l, was: m, env: L}}", "key a/l"))
    both = f"{ONE}, {{id: l, env: L}}"
    assert "`was: k` of l has no effect" in told(found("{id: l, was: k, env: L}", "key a/k", old=both))
