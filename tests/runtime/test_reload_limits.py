"""A thousand reloads and what limits keep: bucket levels, key rests, queue places; and what acts at once."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from proxy.decisions.deadline import WaitLimits
from proxy.decisions.permits import Permit
from proxy.decisions.queues import Ask, Line, Refusal, Waiter
from proxy.decisions.quota import Bucket
from proxy.outcome import Reason
from proxy.policy.snapshot import PolicySnapshot
from tests.policy.samples import load
from tests.runtime.shop import Shop, park, rest, targets

RELOADS = 1000
STEP_SECONDS = 0.01
RPM, TPM, KEY_TPM, MODEL_RPM = 60.0, 60_000.0, 6_000.0, 30.0
PATIENT = WaitLimits(queue=1e6, quota_wait=1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What things are called in one policy, and what the other policies of the walk call them."""

    provider: str = "alpha"
    provider_was: str = "gamma"
    key: str = "a1"
    key_was: str = "z1"

    def provider_renamed(self) -> Names:
        """The same with the provider's other name."""
        return Names(provider=self.provider_was, provider_was=self.provider, key=self.key, key_was=self.key_was)

    def key_renamed(self) -> Names:
        """The same with the key's other name."""
        return Names(provider=self.provider, provider_was=self.provider_was, key=self.key_was, key_was=self.key)


def policy(names: Names, knob: int = 0, *, rpm: float = RPM) -> str:
    """A policy whose limits are the same whatever the knob says."""
    keys = [
        f"{{id: {names.key}, was: {names.key_was}, env: KEY_1, tpm: {KEY_TPM:g}, weight: {1 + knob % 3}}}",
        "{id: rests, env: KEY_2}",
        "{id: parked, env: KEY_3}",
    ]
    return f"""\
version: 1
providers:
  {names.provider}:
    was: {names.provider_was}
    base_url: http://127.0.0.1:{9 + knob % 2}/v1
    keys: [{", ".join(keys[:: 1 if knob % 2 else -1])}]
    limits: {{rpm: {rpm:g}, tpm: {TPM:g}, headroom: 1.0}}
    models: {{large: {{limits: {{rpm: {MODEL_RPM:g}}}}}}}
    queue: {{max: {100 + knob}}}
    timeouts: {{first_byte: {30 + knob}s}}
    breaker: {{consecutive: {5 + knob % 3}, scope: {"provider" if knob % 5 else "target"}}}
  beta: {{base_url: "http://127.0.0.1:9/v1"}}
routes:
  - name: chat
    match: {{path: /v1/chat/completions}}
    tiers: [{{provider: {names.provider}, model: large}}, {{provider: beta}}]
    retry: {{attempts: {1 + knob % 3}}}
"""


WITHOUT = "version: 1\nproviders: {beta: {base_url: 'http://127.0.0.1:9/v1'}}\n"


class Kept:
    """Every bucket of the walk, by what it is; each level is foreseen from the time that has passed."""

    def __init__(self, shop: Shop, names: Names) -> None:
        self.shop = shop
        self.buckets = self.found(names)
        self.levels = {what: bucket.level(shop.clock.now()) for what, bucket in self.buckets.items()}

    def found(self, names: Names) -> dict[str, Bucket]:
        """The buckets that the live policy uses."""
        core, name = self.shop.core, names.provider
        return {
            "rpm": core(Bucket, "rpm", name),
            "tpm": core(Bucket, "tpm", name),
            "model": core(Bucket, "model_rpm", name, "large"),
            "key": core(Bucket, "key_tpm", name, names.key),
        }

    def passes(self, seconds: float) -> None:
        """Time goes by."""
        self.shop.passes(seconds)
        for what, bucket in self.buckets.items():
            self.levels[what] = min(self.levels[what] + seconds * bucket.rate, bucket.capacity)

    def holds(self, names: Names) -> None:
        """The same buckets are in use, and hold what they should."""
        now = self.shop.clock.now()
        assert self.found(names) == self.buckets
        assert {what: bucket.level(now) for what, bucket in self.buckets.items()} == pytest.approx(self.levels)


def snapshots() -> dict[tuple[Names, int], PolicySnapshot]:
    """The policies of the walk, read once."""
    named = Names()
    every = [named, named.provider_renamed(), named.key_renamed(), named.provider_renamed().key_renamed()]
    return {(names, knob): load(policy(names, knob)) for names in every for knob in range(6)}


def enter(shop: Shop, names: Names, *, tokens: float, model: str = "large") -> Permit | Waiter | Refusal:
    """Asks admission for a call."""
    line = shop.core(Line, "line", names.provider, model)
    return shop.admission.enter(line, Ask(limits=PATIENT, tokens=tokens), shop.clock.now())


def waits(shop: Shop, names: Names, *, tokens: float, model: str = "large") -> Waiter:
    """One more waits."""
    waiter = enter(shop, names, tokens=tokens, model=model)
    assert isinstance(waiter, Waiter), waiter
    return waiter


def goes(shop: Shop, names: Names, *, tokens: float, model: str = "large") -> Permit:
    """One more goes."""
    permit = enter(shop, names, tokens=tokens, model=model)
    assert isinstance(permit, Permit), permit
    return permit


def next_names(draw: random.Random, names: Names) -> Names:
    """The names of the next policy: seldom others."""
    turn = draw.random()
    if turn < 0.1:
        return names.provider_renamed()
    return names.key_renamed() if turn < 0.2 else names


@pytest.mark.parametrize("seed", range(2))
async def test_a_thousand_reloads_change_no_level_no_rest_and_no_place_in_a_queue(shop: Shop, seed: int) -> None:
    draw, names, policies = random.Random(seed), Names(), snapshots()
    runtime = shop.live(policy(names))
    goes(shop, names, tokens=7_000.0).release(shop.clock.now())
    ring = shop.key(names.provider, "rests")
    rest(shop, "rests", 3000.0)
    park(shop, "parked")
    kept = Kept(shop, names)
    assert kept.levels["tpm"] == -2_000, "larger than the bucket"
    targets(runtime).of("invented")
    models = ("large", "invented")
    waiters = [waits(shop, names, tokens=50.0 + number, model=models[number % 2]) for number in range(20)]
    rests_until = ring.rests_until
    for _ in range(RELOADS):
        if draw.random() < 0.1:
            shop.assemble(WITHOUT).go_live(shop.clock.now())
        else:
            names = next_names(draw, names)
            shop.assemble(policies[names, draw.randrange(6)]).go_live(shop.clock.now())
            kept.holds(names)
            assert shop.key(names.provider, "rests").rests_until == rests_until
            assert shop.key(names.provider, "parked").parked
        if not any(waiter.permit for waiter in waiters):
            kept.passes(STEP_SECONDS / 10)
    assert all(waiter.refusal is None for waiter in waiters)
    assert shop.admission.waiting == len(waiters) - sum(waiter.permit is not None for waiter in waiters)
    shop.assemble(policies[names, 0]).go_live(shop.clock.now())
    order = in_order(shop, waiters)
    for number in range(len(models)):
        assert [one for one in order if one % 2 == number] == list(range(number, len(waiters), 2))


def in_order(shop: Shop, waiters: list[Waiter]) -> list[int]:
    """Lets time go by until all have gone; returns in which order."""
    order: list[int] = []
    for _ in range(100_000):
        for number, waiter in enumerate(waiters):
            if waiter.permit is not None and number not in order:
                order.append(number)
                waiter.permit.release(shop.clock.now())
        if len(order) == len(waiters):
            break
        shop.passes(0.1)
    return order


# What acts at once.


SMALL = "version: 1\nproviders: {alpha: {base_url: 'http://127.0.0.1:9/v1'%s}}\n"
ONE_A_MINUTE = SMALL % ", limits: {rpm: 1, headroom: 1.0}"


def first(shop: Shop, written: str, model: str) -> Waiter:
    """Takes a policy live whose only request a minute is taken, and waits for the next one."""
    targets(shop.live(written)).of(model)
    names = Names()
    goes(shop, names, tokens=10.0, model=model).release(shop.clock.now())
    return waits(shop, names, tokens=10.0, model=model)


@pytest.mark.parametrize(
    "limits",
    ["", ", limits: {rpm: 6000, headroom: 1.0}", ", limits: {tpm: 1}, mode: observe"],
    ids=["gone", "raised", "observed"],
)
@pytest.mark.parametrize("model", ["other", "invented"])
async def test_more_than_there_was_lets_who_waits_go(shop: Shop, model: str, limits: str) -> None:
    waiter = first(shop, ONE_A_MINUTE, model)
    alarms: list[float] = []
    shop.admission.alarm = alarms.append
    shop.live(SMALL % limits)
    if waiter.permit is None:
        assert min(alarms) == pytest.approx(shop.clock.now() + 0.01), "nobody waits for the ticker"
        shop.passes(0.01)
    assert waiter.permit is not None


@pytest.mark.parametrize("model", ["other", "invented"])
async def test_a_limit_of_places_that_goes_lets_who_waits_go(shop: Shop, model: str) -> None:
    targets(shop.live(SMALL % ", limits: {concurrency: 1}")).of(model)
    goes(shop, Names(), tokens=0.0, model=model)
    waiter = waits(shop, Names(), tokens=0.0, model=model)
    shop.live(SMALL % "")
    assert waiter.permit is not None


@pytest.mark.parametrize("model", ["other", "invented"])
async def test_a_model_that_is_named_no_more_has_no_quota_of_its_own(shop: Shop, model: str) -> None:
    waiter = first(shop, SMALL % f", models: {{{model}: {{limits: {{rpm: 1}}}}}}", model)
    shop.live(SMALL % "")
    assert waiter.permit is not None


async def test_less_than_a_call_needs_refuses_it_at_once(shop: Shop) -> None:
    targets(shop.live(SMALL % ", limits: {tpm: 600, headroom: 1.0}")).of("other")
    goes(shop, Names(), tokens=400.0, model="other")
    waiter = waits(shop, Names(), tokens=400.0, model="other")
    shop.live(SMALL % ", limits: {tpm: 300, headroom: 1.0}")
    assert waiter.refusal is not None
    assert waiter.refusal.reason is Reason.CONTEXT_TOO_LONG


async def test_a_refusal_names_a_limit_as_the_policy_now_does(shop: Shop) -> None:
    shop.live(SMALL % ", limits: {tpm: 600}")
    renamed = (SMALL % ", was: alpha, limits: {tpm: 600}").replace("{alpha:", "{gamma:")
    shop.live(renamed)
    refusal = enter(shop, Names(provider="gamma"), tokens=5000.0, model="other")
    assert isinstance(refusal, Refusal)
    assert "tpm of gamma" in refusal.detail


@pytest.mark.parametrize("minutes", [9, 60])
async def test_a_debt_is_owed_however_long_its_provider_is_gone(shop: Shop, minutes: int) -> None:
    fleet = f"fleet: {{size: {{static: 100}}}}\n{SMALL % ', limits: {tpm: 6000, headroom: 1.0}'}"
    shop.live(fleet)
    goes(shop, Names(), tokens=6000.0, model="other").release(shop.clock.now())
    owed = shop.core(Bucket, "tpm", "alpha").level(shop.clock.now())
    shop.live(WITHOUT)
    for _ in range(minutes):
        shop.clock.advance(60.0)
        shop.kept.expire(shop.clock.now())
    shop.live(fleet)
    level = shop.core(Bucket, "tpm", "alpha").level(shop.clock.now())
    assert level == pytest.approx(min(owed + minutes * 60.0, 5.0))
