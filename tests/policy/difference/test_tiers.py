from __future__ import annotations

import pytest

from proxy.policy.difference.change import Section
from proxy.policy.difference.tiers import chain
from tests.policy.difference.policies import difference, says, section, told
from tests.policy.samples import load

HEAD = (
    "version: 1\nproviders: {a: {base_url: http://a}, b: {base_url: http://b}, "
    "k: {base_url: http://k, keys: [{id: k, env: K}]}}\n"
)


def policy(tiers: str) -> str:
    """A policy with one route that has these tiers."""
    return f"{HEAD}routes: [{{name: r, tiers: [{tiers}]}}]\n"


def found(old: str, new: str) -> Section:
    """The section of the route when its tiers change."""
    return section(difference(policy(old), policy(new)), "route r")


def test_a_chain_names_who_is_asked() -> None:
    routes = load(policy("{provider: a}, {provider: b, model: m}, {answer: {status: 503}}")).routes
    assert routes is not None
    assert chain(routes[0]) == ["a", "b/m", "answer 503"]
    assert chain(routes[0], {"b": "c"}) == ["a", "c/m", "answer 503"]


def test_who_is_asked() -> None:
    one = found("{provider: k}, {provider: k, model: m}", "{provider: k, model: m}, {provider: k}")
    assert says(one)["tiers"] == ("k, k/m", "k/m, k")


def test_overrides_of_a_tier() -> None:
    one = found(
        "{provider: a, first_byte: 8s, set: {n: 1}}, {provider: k}",
        "{provider: a, answer: {p95: 2, plus: 1s}, queue: 1s, set: {n: 2}}, {provider: k}",
    )
    assert says(one) == {
        "a: set": ('{"n": 1}', '{"n": 2}'),
        "a: queue": ("the provider's", "1s"),
        "a: first_byte": ("8s", "the provider's"),
        "a: answer": ("the provider's", "p95 × 2 + 1s"),
    }


def test_equals() -> None:
    spread = "{spread: [{provider: a}, {provider: k, model: m, weight: 2}], by: %s}"
    one = found("{provider: a}, {provider: k, model: m}", spread % "remaining")
    assert says(one)["tiers"] == ("a, k/m", "spread a | k/m")
    one = found(spread % "remaining", spread % "weight")
    assert says(one) == {"tiers": ("spread a | k/m", "spread 1 × a | 2 × k/m")}
    one = found(spread % "weight", (spread % "weight").replace("weight: 2", "weight: 3"))
    assert says(one) == {"tiers": ("spread 1 × a | 2 × k/m", "spread 1 × a | 3 × k/m")}
    assert section(difference(policy(spread % "weight"), policy("{provider: a}")), "route r").warnings == (
        "no other provider is asked any more when the first one fails",
    )


def test_what_an_equal_gets_of_its_tier() -> None:
    spread = "{spread: [{provider: a}, {provider: k}]%s}"
    one = found(spread % "", spread % ", first_byte: 8s")
    assert says(one) == {"a: first_byte": ("the provider's", "8s"), "k: first_byte": ("the provider's", "8s")}


def test_the_same_target_twice() -> None:
    one = found("{provider: k}, {provider: k, idle: 1s}", "{provider: k}, {provider: k, idle: 2s}")
    assert says(one) == {"k #2: idle": ("1s", "2s")}


def test_a_tier_behind_another_waits_less_by_default() -> None:
    one = found("{provider: a}", "{provider: a}, {provider: k}")
    assert says(one)["a: wait for a permit"] == ("10s", "300ms")
    assert says(one)["a: wait for quota or a key"] == ("30s", "300ms")
    assert [value.note for value in one.values][1] == "new requests; a tier follows now"
    assert "wait for a permit" not in str(
        says(found("{provider: a, queue: 1s}", "{provider: a, queue: 1s}, {provider: k}"))
    )


@pytest.mark.parametrize(
    ("old", "new", "told_of"),
    [
        ("{provider: k}", "{provider: k}, {provider: a}", True),
        ("{provider: a}, {provider: k}", "{provider: k}, {provider: a}", True),
        ("{provider: k}, {provider: a}", "{provider: k}, {provider: a, idle: 1s}", False),
        ("{provider: a}", "{provider: a}, {provider: k}", False),
    ],
)
def test_a_later_tier_without_keys_has_no_credential(old: str, new: str, told_of: bool) -> None:
    assert ("a has no keys and is not the first tier" in told(found(old, new))) is told_of


def test_the_last_fallback_that_goes() -> None:
    words = "no other provider is asked any more when the first one fails"
    assert words in told(found("{provider: a}, {provider: k}", "{provider: a}, {answer: {}}"))
    assert words not in told(found("{provider: a}, {provider: k}, {provider: k}", "{provider: a}, {provider: k}"))
