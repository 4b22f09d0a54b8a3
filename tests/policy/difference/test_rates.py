from __future__ import annotations

import pytest

from proxy.decisions.quota import QuotaSettings
from proxy.policy.difference.change import Findings
from proxy.policy.difference.rates import NOTHING, Grant, compare_rates
from tests.policy.difference.policies import difference, says, section, told

POLICY = """\
version: 1
fleet: {size: {static: 10}}
providers:
  a:
    base_url: http://x/v1
    keys: [{id: k, env: K, rpm: 300}]
    limits: {rpm: 600, tpm: 100000}
    models: {m: {limits: {tpm: 5000}}}
"""


def changed(old: str, new: str) -> str:
    """The policy with this difference."""
    assert old in POLICY
    return POLICY.replace(old, new)


def test_an_instances_part_of_a_rate_and_how_it_came_about() -> None:
    found = section(difference(POLICY, changed("rpm: 600", "rpm: 300")), "provider a")
    assert says(found) == {"limits.rpm": ("600", "300"), "rpm of an instance": ("48", "24")}
    (note,) = [value.note for value in found.values if value.name == "rpm of an instance"]
    assert note == "next decision; 300 × 0.8 / 10"
    assert "the bucket for requests of a keeps its level, up to its new size: nothing is refilled" in told(found)


def test_headroom_and_fleet_act_on_keys_and_models_too() -> None:
    for new in (changed("tpm: 100000", "tpm: 100000, headroom: 0.4"), changed("static: 10", "static: 20")):
        found = difference(POLICY, new)
        assert says(section(found, "provider a"))["tpm of an instance"] == ("8000", "4000")
        assert says(section(found, "key a/k"))["rpm of an instance"] == ("24", "12")
        assert says(section(found, "model a/m"))["tpm of an instance"] == ("400", "200")


def test_a_rate_that_is_new_begins_with_one_request() -> None:
    found = section(difference(changed("limits: {rpm: 600, tpm: 100000}", "limits: {}"), POLICY), "provider a")
    assert says(found)["tpm of an instance"] == ("none", "8000")
    assert "the bucket for tokens of a is new: it begins with one request's worth, not full" in told(found)


def test_a_rate_that_goes_lets_everybody_go() -> None:
    found = section(difference(POLICY, changed(", rpm: 300", "")), "key a/k")
    assert "nothing bounds the requests of this key in a minute any more: who waits for them goes at once" in told(
        found
    )


def test_a_rate_of_zero_lets_nobody_go() -> None:
    found = section(difference(POLICY, changed("tpm: 5000", "tpm: 0")), "model a/m")
    assert found.warnings == ("tpm of 0: no call of this model may go",)


def test_another_size_of_the_bucket_keeps_what_it_holds() -> None:
    found = section(difference(POLICY, changed("tpm: 100000", "tpm: 100000, burst: 10s")), "provider a")
    assert says(found) == {"limits.burst": ("5s", "10s")}
    assert "buckets have another size: what they hold stays, up to the new one" in told(found)


@pytest.mark.parametrize("old", [NOTHING, Grant(rpm=60.0)])
def test_what_no_call_of_may_run_has_nothing_to_keep(old: Grant) -> None:
    findings = Findings()
    compare_rates(findings, old, Grant(rpm=30.0, quota=QuotaSettings(headroom=1.0)), what="x", began=False)
    assert [value.new for value in findings.values] == ["30"]
    assert not any("keeps its level" in effect for effect in findings.effects)


def test_equal_rates_are_no_difference() -> None:
    findings = Findings()
    compare_rates(findings, Grant(rpm=60.0, tpm=0.0), Grant(rpm=60.0, tpm=0.0), what="x")
    assert findings.changes("x") is None


def test_keys_and_models_that_come_with_a_rate() -> None:
    found = difference(changed(" keys: [{id: k, env: K, rpm: 300}]", " keys: [{id: j, env: J}]"), POLICY)
    assert says(section(found, "key a/k"))["rpm of an instance"] == ("none", "24")
    found = difference(changed("    models: {m: {limits: {tpm: 5000}}}\n", ""), POLICY)
    assert says(section(found, "model a/m"))["tpm of an instance"] == ("none", "400")


def test_large_rates_are_written_out() -> None:
    found = section(difference(POLICY, changed("tpm: 100000", "tpm: 40000001")), "provider a")
    assert says(found) == {"limits.tpm": ("100000", "40000001"), "tpm of an instance": ("8000", "3200000.08")}
