"""Reloads and quotas: what was used stays used, whoever is renamed or gone for a while, and whoever runs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import when
from tests.integration.quotas import FLEET, RESERVED, SLOW, USED, ask, full, goes_live, uses, with_limits

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("back")]

Policy = dict[str, Any]
ONCE = {"attempts": 1}
OWN = {"rpm": 6_000, "tpm": 600_000}
POLICY: Policy = {
    "version": 1,
    "providers": {
        "alpha": {
            "keys": [{"id": "a", "env": "KEY_A", **OWN}],
            "limits": {},
            "models": {"large": {"limits": OWN}},
        },
        "beta": {},
    },
    "routes": [route("large", "alpha", retry=ONCE)],
}
LIMITS = ("provider {name}", "model {name}/large", "key {name}/{key}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with full(POLICY, env={"KEY_A": "sk-a"}) as lab:
        lab["alpha"].script = uses()
        # A new bucket has a request's worth: from here on every one counts.
        assert (await ask(lab, "large")).status == 200
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def back(lab: Lab) -> None:
    """Nothing was asked; `alpha` is live, as it was at the beginning."""
    lab["alpha"].forget()
    lab["alpha"].script = uses()


def slow(lab: Lab) -> Policy:
    """The policy to begin with."""
    return with_limits(lab.policy, SLOW, fleet=FLEET)


def other_knobs(policy: Policy) -> Policy:
    """Everything that must not matter."""
    alpha = {**policy["providers"]["alpha"], "headers": {"x-some": "thing"}, "queue": {"max": 7}}
    routes = [{**policy["routes"][0], "retry": {"attempts": 2}}]
    return {**policy, "providers": {"beta": policy["providers"]["beta"], "alpha": alpha}, "routes": routes}


def renamed(policy: Policy) -> Policy:
    """Provider and key have other names."""
    old = policy["providers"]["alpha"]
    key = {**old["keys"][0], "id": "z", "was": "a"}
    gamma = {**old, "was": "alpha", "keys": [key]}
    routes = [{**policy["routes"][0], "tiers": [{"provider": "gamma"}]}]
    return {**policy, "providers": {"gamma": gamma, "beta": policy["providers"]["beta"]}, "routes": routes}


def back_again(policy: Policy) -> Policy:
    """They have their old names again."""
    old = policy["providers"]["alpha"]
    alpha = {**old, "was": "gamma", "keys": [{**old["keys"][0], "was": "z"}]}
    return {**policy, "providers": {**policy["providers"], "alpha": alpha}}


def without(policy: Policy) -> Policy:
    """The provider is gone."""
    routes = [{**policy["routes"][0], "tiers": [{"provider": "beta"}]}]
    return {**policy, "providers": {"beta": policy["providers"]["beta"]}, "routes": routes}


async def levels(lab: Lab, name: str = "alpha", key: str = "a") -> list[float]:
    """What is left of each limit, of requests and tokens, in a fixed order."""
    status = await lab.proxy.status()
    left = {(row["limit"], row["unit"]): row["left"] for row in status["quotas"]}
    limits = [limit.format(name=name, key=key) for limit in LIMITS]
    return [left[limit, unit] for limit in limits for unit in ("requests", "tokens")]


def about(values: list[float], *, requests: int = 0, tokens: int = 0) -> Any:
    """These levels, when so much was used of each since; what comes back in the meantime is less than one."""
    return pytest.approx([value - (tokens if number % 2 else requests) for number, value in enumerate(values)], abs=0.9)


@pytest.mark.parametrize("changes", [[other_knobs], [renamed, back_again], [without]], ids=["knobs", "names", "gone"])
async def test_a_reload_changes_no_level(lab: Lab, changes: list[Callable[[Policy], Policy]]) -> None:
    before = await levels(lab)
    for change in changes:
        await goes_live(lab, change(slow(lab)))
        if change is renamed:
            assert await levels(lab, "gamma", "z") == about(before)
    await goes_live(lab, slow(lab))
    assert await levels(lab) == about(before)
    assert (await ask(lab, "large")).status == 200
    assert await levels(lab) == about(before, requests=1, tokens=USED)


@pytest.mark.parametrize("change", [other_knobs, renamed, without])
async def test_a_call_is_settled_once_whatever_goes_live_meanwhile(
    lab: Lab, change: Callable[[Policy], Policy]
) -> None:
    gate = asyncio.Event()
    lab["alpha"].script = when(gate, uses())
    before = await levels(lab)
    call: asyncio.Task[Answer] = asyncio.ensure_future(ask(lab, "large"))
    await lab["alpha"].has_seen(1)
    assert await levels(lab) == about(before, requests=1, tokens=RESERVED)
    await goes_live(lab, change(slow(lab)))
    gate.set()
    assert (await call).status == 200
    await lab.idle()
    if change is renamed:
        assert await levels(lab, "gamma", "z") == about(before, requests=1, tokens=USED)
        await goes_live(lab, back_again(slow(lab)))
    await goes_live(lab, slow(lab))
    assert await levels(lab) == about(before, requests=1, tokens=USED)


async def test_a_smaller_bucket_spills_and_a_larger_one_is_not_filled(lab: Lab) -> None:
    before = await levels(lab)
    small = with_limits(lab.policy, {**SLOW, "burst": "500000s"}, fleet=FLEET)
    await goes_live(lab, small)
    during = await levels(lab)
    assert during == pytest.approx([50, 5000] * 3, abs=0.9)
    await goes_live(lab, slow(lab))
    assert await levels(lab) == about(during)
    assert all(late < early for late, early in zip(during, before, strict=True))
