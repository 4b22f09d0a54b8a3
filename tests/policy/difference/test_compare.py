from __future__ import annotations

from typing import Any

from hypothesis import given, settings

from proxy.policy.difference.compare import differences
from tests.policy.difference.policies import difference, policies, says, section, told, written
from tests.policy.samples import GOOD, ROUTE, load

KEYED = GOOD + "    keys: [{id: k, env: K}]\n    models: {m: {}, n: {}}\n"


def test_a_policy_does_not_differ_from_itself_and_all_is_counted() -> None:
    found = difference(KEYED + ROUTE, KEYED + ROUTE)
    assert found.sections == ()
    assert found.unchanged == (("provider", 1), ("key", 1), ("model", 2), ("route", 1))


@settings(deadline=None, max_examples=60)
@given(policies())
def test_no_policy_differs_from_itself(policy: dict[str, Any]) -> None:
    assert differences(load(written(policy)), load(written(policy))).sections == ()


@settings(deadline=None, max_examples=100)
@given(policies(), policies())
def test_any_two_policies_are_told_apart_and_each_thing_once(one: dict[str, Any], other: dict[str, Any]) -> None:
    old, new = load(written(one)), load(written(other))
    found = differences(old, new)
    subjects = [section.subject for section in found.sections]
    assert len(subjects) == len(set(subjects))
    assert all(section.values or section.effects or section.warnings for section in found.sections)


def test_what_changed_or_is_new_is_not_counted_as_unchanged() -> None:
    new = KEYED.replace("env: K", "env: L") + "  b: {base_url: http://b, keys: [{id: k, env: K}], models: {x: {}}}\n"
    assert difference(KEYED, new).unchanged == (("provider", 1), ("model", 2))


def test_what_belongs_to_the_whole_policy() -> None:
    new = (
        GOOD + "limits: {concurrency: 8}\nfleet: {size: {static: 4}}\ntelemetry: {log_successes: 0.5}\nmode: observe\n"
    )
    one = section(difference(GOOD, new), "the whole policy")
    assert says(one) == {
        "mode": ("enforce", "observe"),
        "fleet.size.static": ("1", "4"),
        "limits.concurrency": ("none", "8"),
        "telemetry.log_successes": ("1", "0.5"),
        "share of an instance": ("none", "2"),
    }
    assert "shares of both sizes are in force side by side" in told(one)
    assert "nothing bounds all providers together any more" in told(section(difference(new, GOOD), "the whole policy"))


def test_classes() -> None:
    new = GOOD + "classes: {P0: {reserved: 0.2}, P2: {idle_below: 0.5, promote_after: 1m, queue: 2m}}\n"
    one = section(difference(GOOD, new), "the whole policy")
    assert says(one) == {
        "classes.P0.reserved": ("0", "0.2"),
        "classes.P2.idle_below": ("0.7", "0.5"),
        "classes.P2.promote_after": ("5m", "1m"),
        "classes.P2.queue": ("10m", "2m"),
    }
    assert "permits in use and what buckets hold stay" in told(one)
    assert "P2 calls that wait keep their places, and go by the new values" in told(one)
    assert one.warnings == ()
    all_of_it = section(difference(GOOD, GOOD + "classes: {P0: {reserved: 1}}\n"), "the whole policy")
    assert "no call of P1 or P2 may go" in told(all_of_it)
