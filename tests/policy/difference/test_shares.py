from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.shares import FleetSettings, share_of
from proxy.policy.difference.change import Findings
from proxy.policy.difference.shares import Limit, Reload, arithmetic, compare_share, provider_share
from proxy.policy.difference.state import fates
from tests.policy.samples import GOOD, load, provider

POLICY = load(GOOD)


def found(limit: Limit, *, size: int = 1, index: int | None = None) -> Findings:
    """What is found of a limit, in a fleet that stays as it is."""
    policy = replace(POLICY, fleet=FleetSettings(size=size, index=index))
    findings = Findings()
    compare_share(findings, limit, Reload(old=policy, new=policy, fates=fates(policy, policy)), what="a")
    return findings


def limit(old: int | None, new: int | None, *, most: int | None = None, in_use: bool = True) -> Limit:
    """A limit of provider a."""
    return Limit(old=old, new=new, old_key="a", new_key="a", old_most=most, new_most=most, in_use=in_use)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 9), st.none() | st.integers(0, 9))
def test_shares_are_told_exactly_when_they_differ(old: int, new: int, size: int, index: int | None) -> None:
    findings = found(limit(old, new), size=size, index=index)
    fleet = FleetSettings(size=size, index=index)
    shares = tuple(str(share_of(total, fleet, key="a")) for total in (old, new))
    assert [(value.old, value.new) for value in findings.values] == ([shares] if shares[0] != shares[1] else [])
    assert len(findings.effects) + len(findings.warnings) == len(findings.values)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (9, 4, "nobody new goes until fewer than 4 are in use"),
        (9, 1, "nobody new goes until none is in use"),
        (9, 0, "a share of 0: no call of a may go"),
        (4, 9, "who waits for a permit of a goes at once, as far as a share of 9 allows"),
        (None, 9, "more than 9 can be in flight"),
    ],
)
def test_what_another_share_does(old: int | None, new: int, words: str) -> None:
    findings = found(limit(old, new))
    assert words in "".join([*findings.effects, *findings.warnings])


def test_a_limit_that_goes_has_no_share_and_one_of_a_new_thing_binds_nobody_yet() -> None:
    assert found(limit(9, None)).values == []
    fresh = found(limit(None, 9, in_use=False))
    assert [value.new for value in fresh.values] == ["9"]
    assert not fresh.effects
    assert found(limit(None, 0, in_use=False)).warnings


def test_connections_bound_a_share_too() -> None:
    findings = found(limit(4, 50, most=8))
    assert [(v.old, v.new, v.note) for v in findings.values] == [("4", "8", "next decision; connections.max")]
    assert provider_share(provider("limits: {concurrency: 50}\nconnections: {max: 8}"), FleetSettings(size=2)) == 8
    assert provider_share(provider("limits: {concurrency: 10}"), FleetSettings(size=4)) == 2
    assert provider_share(provider("connections: {max: 8}"), FleetSettings()) == 8
    several = load(GOOD.replace("http://127.0.0.1:1/v1", "['http://a', 'http://b']") + "    connections: {max: 8}\n")
    assert provider_share(several.providers[0], FleetSettings()) == 16


def test_arithmetic_says_what_is_rounded_and_which_instance() -> None:
    assert arithmetic(100, FleetSettings(size=4)) == "100 / 4"
    assert arithmetic(103, FleetSettings(size=4)) == "103 / 4, rounded down"
    assert arithmetic(103, FleetSettings(size=4, index=2)) == "103 / 4, instance 2"
    assert arithmetic(103, FleetSettings(size=4, index=4)) == "103 / 4, rounded down"
