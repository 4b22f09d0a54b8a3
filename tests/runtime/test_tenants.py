"""Tenants in an assembled policy: whose requests are held, by which estimates, and what a reload leaves as it was."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.decisions.deadline import deadline_at
from proxy.decisions.estimates import Estimates
from proxy.decisions.tenants import Tenants
from proxy.exchange import Exchange
from proxy.outcome import Outcome, Reason
from proxy.plan import RoutePlan
from proxy.runtime.assembly import Runtime
from proxy.runtime.status import StatusReader
from proxy.runtime.status_tenants import MOST_ROWS
from proxy.stages.context import ContextStage, ObservingContextStage
from proxy.stages.fallback import FallbackTiers
from proxy.stages.tenants import ObservingTenantStage, TenantStage
from tests.fakes import Ask, answered, make_exchange
from tests.runtime.shop import Shop
from tests.scripted import within

PLAIN = """\
version: 1
providers:
  alpha:
    base_url: http://127.0.0.1:9/v1
    models: {large: {context_tokens: 1000}}
  beta:
    base_url: http://127.0.0.1:9/v1
routes:
  - name: chat
    match: {path: /v1/chat/completions}
    class: P2
    class_from_header: true
    tiers: [{provider: alpha, model: large}, {provider: beta}]
    total: 60s
  - name: rest
    mode: observe
    match: {path: "/v1/*"}
    tiers: [{answer: {status: 200, json: {}}}]
"""
TENANTS = """\
tenants:
  from: [{header: x-agent-id}]
  default: {rps: 2, tpm: 6000, concurrency: 3}
"""
PATHS = ["/v1/chat/completions", "/v1/models", "/alpha/v1/models"]


def plan_of(shop: Shop, policy: str, path: str) -> RoutePlan:
    """The first route of a path, live."""
    plan = shop.live(policy).router.candidates(path, {}).routes[0]
    assert isinstance(plan, RoutePlan)
    return plan


def tiers_of(plan: RoutePlan) -> list[Any]:
    """A route's tiers."""
    below: Any = plan.call
    while not isinstance(below, FallbackTiers):
        _, below = within(below)
    return list(below._tiers)


def stage_of(shop: Shop, policy: str, path: str) -> TenantStage | None:
    """A route's tenant stage; None where it has none."""
    _, below = within(plan_of(shop, policy, path).call)
    stage: Any = within(below)[0] if callable(below) and hasattr(below, "__closure__") else None
    return stage if isinstance(stage, TenantStage) else None


@pytest.mark.parametrize("policy", [PLAIN, PLAIN + "tenants: {default: {class: P0}}\n"], ids=["no tenants", "no caps"])
async def test_where_no_tenant_has_a_cap_the_stage_is_absent(shop: Shop, policy: str) -> None:
    assert [stage_of(shop, policy, path) for path in PATHS] == [None, None, None]


@pytest.mark.parametrize(
    ("policy", "observes"),
    [
        (PLAIN + TENANTS, [False, True, False]),
        (PLAIN + TENANTS + "  mode: observe\n", [True, True, True]),
        (PLAIN + TENANTS + "mode: observe\n", [True, True, True]),
    ],
    ids=["enforced", "tenants", "policy"],
)
async def test_the_most_lenient_mode_holds(shop: Shop, policy: str, observes: list[bool]) -> None:
    found = [stage_of(shop, policy, path) for path in PATHS]
    assert [isinstance(stage, ObservingTenantStage) for stage in found] == observes
    assert None not in found


async def test_estimates_are_those_of_the_first_that_the_route_asks(shop: Shop) -> None:
    stage = stage_of(shop, PLAIN + TENANTS, PATHS[0])
    assert stage is not None
    assert stage._tokens.estimates("gpt-x") is shop.core(Estimates, "estimates", "alpha", "large")
    plan = plan_of(shop, PLAIN + TENANTS, PATHS[2])
    own: Any = within(within(plan.call)[1])[0]
    assert own._tokens.estimates("large") is shop.core(Estimates, "estimates", "alpha", "large")
    assert own._tokens.estimates("gpt-x") is shop.core(Estimates, "estimates", "alpha", "other")
    assert own._tokens.estimates(None) is own._tokens.estimates("gpt-x")
    tiers_of(plan)[0].targets.of("gpt-x")
    assert own._tokens.estimates("gpt-x") is shop.core(Estimates, "estimates", "alpha", "gpt-x")


@pytest.mark.parametrize(
    ("policy", "counts"),
    [(PLAIN, False), (PLAIN + TENANTS, True), (PLAIN + TENANTS.replace("tpm: 6000, ", ""), False)],
)
async def test_where_tenants_have_a_cap_of_tokens_every_answer_must_tell_them(
    shop: Shop, policy: str, counts: bool
) -> None:
    for path in (PATHS[0], PATHS[2]):
        assert {tier.counts_tokens for tier in tiers_of(plan_of(shop, policy, path))} == {counts}


@pytest.mark.parametrize(
    ("policy", "kind"), [(PLAIN, ContextStage), (PLAIN + "mode: observe\n", ObservingContextStage)]
)
async def test_only_a_model_that_says_how_much_it_takes_looks_at_prompts(
    shop: Shop, policy: str, kind: type[ContextStage]
) -> None:
    tiers = tiers_of(plan_of(shop, policy, PATHS[0]))
    kinds = [type(within(tier.targets.of(tier.model)[1])[0]) for tier in tiers]
    assert [one is kind for one in kinds] == [True, False]


async def test_a_route_hands_on_its_class_and_what_p2_may_wait(shop: Shop) -> None:
    plan = plan_of(shop, PLAIN + "classes: {P2: {queue: 90s}}\n", PATHS[0])
    assert (plan.klass, plan.class_from_header) == ("P2", True)
    deadline: Any = within(plan.call)[0]
    seen: list[float] = []

    async def below(exchange: Exchange) -> Outcome:
        seen.append(exchange.deadline_at)
        return answered()

    await deadline(make_exchange(Ask(klass="P2"), now=0.0), below)
    assert seen == [deadline_at(0.0, 60.0, 2 * 90.0)]


async def ask(runtime: Runtime) -> Outcome:
    """Sends a request as agent a7 through a route that answers by itself."""
    ask = Ask(method="GET", target="/v1/models", headers=(("x-agent-id", "a7"),), body=b"")
    return await runtime.call(make_exchange(ask))


ENFORCED = PLAIN.replace("    mode: observe\n", "") + TENANTS


async def test_a_thousand_reloads_refill_no_tenant_and_a_changed_cap_acts_at_once(shop: Shop) -> None:
    runtime = shop.live(ENFORCED)
    assert (await ask(runtime)).status == 200
    assert (await ask(runtime)).reason is Reason.TENANT_LIMIT
    tenants = shop.core(Tenants, "tenants")
    for _ in range(1000):
        runtime = shop.live(ENFORCED)
    assert shop.core(Tenants, "tenants") is tenants
    assert (await ask(runtime)).reason is Reason.TENANT_LIMIT
    shop.clock.advance(1.0)
    assert (await ask(shop.live(ENFORCED.replace("rps: 2", "rps: 0")))).reason is Reason.TENANT_LIMIT
    runtime = shop.live(ENFORCED)
    shop.clock.advance(0.5)
    assert (await ask(runtime)).status == 200


async def test_names_of_credentials_stay_the_same_over_a_reload(shop: Shop) -> None:
    policy = ENFORCED.replace("{header: x-agent-id}", "{credential: true}")
    fields = make_exchange(Ask(headers=(("authorization", "Bearer s"),))).request.fields
    shop.live(policy)
    name = shop.core(Tenants, "tenants").name_of(fields)
    shop.live(policy)
    assert shop.core(Tenants, "tenants").name_of(fields) == name != "default"


async def test_status_shows_a_bounded_number_of_tenants_and_what_each_has_left(shop: Shop) -> None:
    runtime = shop.live(ENFORCED)
    for _ in range(2):
        await ask(runtime)
    tenants = shop.core(Tenants, "tenants")
    status = StatusReader(shop.kept, shop.clock, admission=shop.admission).status()
    assert status["tenants"] == [
        {
            "tenant": "a7",
            "class": None,
            "in_flight": 0,
            "concurrency": 3,
            "rps": 2.0,
            "requests_left": 0.0,
            "tpm": 6000.0,
            "tokens_left": status["tenants"][0]["tokens_left"],
            "context_tokens": None,
            "refused": 1,
            "would_tenant_limit": 0,
            "would_context_too_long": 0,
        }
    ]
    for number in range(MOST_ROWS + 10):
        tenants.of(f"n{number}", shop.clock.now())
    status = StatusReader(shop.kept, shop.clock, admission=shop.admission).status()
    assert (len(status["tenants"]), status["tenants_known"]) == (MOST_ROWS, MOST_ROWS + 11)
    assert status["tenants"][0]["tenant"] == f"n{MOST_ROWS + 9}"
    shop.live(PLAIN)
    status = StatusReader(shop.kept, shop.clock, admission=shop.admission).status()
    assert (status["tenants"], status["tenants_known"]) == ([], 0)
