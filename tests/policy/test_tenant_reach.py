from __future__ import annotations

import pytest

from tests.policy.samples import GOOD, ROUTE, load

TWO = ROUTE.replace("[{provider: a}]", "[{provider: a}, {provider: a, model: m}]")


def of_tenants(below: str, more: str = "") -> list[str]:
    """The warnings of a policy with these tenants, without their places."""
    return [line.partition(" ")[2] for line in load(GOOD + f"tenants: {{{below}}}\n" + more).warnings]


def test_without_a_source_everybody_is_one_tenant() -> None:
    assert of_tenants("default: {rps: 3}") == [
        'tenants: everybody is "default": without `from`, all callers together are one tenant'
    ]
    assert of_tenants("default: {rps: 3}, overrides: {'batch-*': {rps: 1}, 'def*': {rps: 2}}")[1:] == [
        'tenants.overrides.batch-*: matches nobody: without `from` everybody is "default"'
    ]
    assert of_tenants("from: [{credential: true}], default: {rps: 3}") == []


def test_a_source_is_looked_at_once() -> None:
    assert of_tenants("from: [{header: x-a}, {credential: true}, {header: X-A}]") == [
        "tenants.from.2: is never looked at: the same stands before it"
    ]


@pytest.mark.parametrize(
    ("patterns", "dead"),
    [
        (["a-*", "a-1"], {"a-1": "a-*"}),
        (["*", "b", "c-*"], {"b": "*", "c-*": "*"}),
        (["a-1", "a-*"], {}),
        (["a-*", "a-?"], {}),
    ],
)
def test_a_pattern_behind_one_that_takes_all_of_its_tenants(patterns: list[str], dead: dict[str, str]) -> None:
    overrides = ", ".join(f"'{pattern}': {{rps: 1}}" for pattern in patterns)
    assert of_tenants(f"from: [{{header: x}}], overrides: {{{overrides}}}") == [
        f'tenants.overrides.{name}: matches nobody: "{wide}" takes all of its tenants before'
        for name, wide in dead.items()
    ]


def test_routes_that_lack_the_tier_for_what_is_too_long() -> None:
    more = TWO + "  - {name: short, match: {path: /v1/embeddings}, tiers: [{provider: a}]}\n"
    tenants = "from: [{header: x}], default: {too_long: {tier: 2}}, overrides: {b: {rps: 1}, c: {too_long: refuse}}"
    assert of_tenants(tenants, more) == [
        'tenants.default.too_long.tier: route "short" at p.yaml:10:57 has fewer tiers (1): it refuses what is too long'
    ]


def test_a_stricter_mode_below_a_lenient_one() -> None:
    lines = of_tenants("mode: enforce, from: [{header: x}]", "mode: observe\n")
    assert "tenants.mode: has no effect: the policy observes, and the most lenient mode holds" in lines
