from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.provider.faults import FaultKind, Plan
from proxy.simulation.provider.grammar import parse_fault
from proxy.simulation.provider.schedule import FaultSchedule


def schedule(*texts: str, provider: str = "alpha") -> FaultSchedule:
    return FaultSchedule([parse_fault(text) for text in texts], provider=provider, set_at=100.0)


def status_of(plan: Plan) -> int | None:
    return plan.fault.status if plan.fault is not None else None


def ask(
    faults: FaultSchedule, *, at: float = 100.0, model: str = "m", key: str | None = None, seed: int = 0
) -> int | None:
    return status_of(faults.plan(now=at, model=model, key=key, rng=random.Random(seed)))


@pytest.mark.parametrize(("at", "status"), [(109.9, None), (110, 503), (119.9, 503), (120, None)])
def test_a_window_counts_from_when_the_list_was_set(at: float, status: int | None) -> None:
    assert ask(schedule("status=503,from=10s,to=20s"), at=at) == status


def test_model_key_and_provider_select() -> None:
    faults = schedule("status=500,model=big-*", "status=401,key=k1", "status=503,provider=beta")
    assert ask(faults, model="big-1") == 500
    assert ask(faults, model="small", key="k1") == 401
    assert ask(faults, model="small", key="k2") is None


def test_first_and_every_count_the_requests_that_are_otherwise_meant() -> None:
    faults = schedule("status=500,first=2,model=a", "status=502,every=3,model=b")
    assert [ask(faults, model="a") for _ in range(4)] == [500, 500, None, None]
    assert [ask(faults, model="b") for _ in range(7)] == [None, None, 502, None, None, 502, None]


def test_a_rate_is_met_and_repeats_with_the_seed() -> None:
    faults = schedule("status=500,rate=0.25")
    hits = [ask(faults, seed=n) for n in range(2000)]
    assert hits.count(500) == pytest.approx(500, abs=80)
    assert hits == [ask(faults, seed=n) for n in range(2000)]


def test_slow_adds_up_and_the_first_of_the_others_wins() -> None:
    faults = schedule("slow=1s", "drip=10ms", "status=503", "slow=2s", "reset", "drip=20ms")
    plan = faults.plan(now=100, model=None, key=None, rng=random.Random(0))
    assert (plan.extra_seconds, plan.drip_seconds, status_of(plan)) == (3.0, 0.01, 503)
    assert plan.name == "slow+drip+status"


def test_nothing_befalls_a_request_without_faults() -> None:
    plan = schedule().plan(now=100, model="m", key=None, rng=random.Random(0))
    assert plan == Plan()
    assert plan.name is None


def test_refusal_has_edges_and_meets_no_request() -> None:
    faults = schedule("refuse,from=10s,to=20s", "refuse,from=15s,to=30s", "refuse,provider=beta")
    assert faults.plan(now=112, model="m", key=None, rng=random.Random(0)).fault is None
    assert [faults.refuses(at) for at in (100, 110, 125, 130)] == [False, True, True, False]
    assert [faults.next_change(at) for at in (100, 110, 115, 120, 130)] == [110, 115, 120, 130, None]


@given(st.floats(0, 1e7), st.integers(0, 10**6), st.integers(1, 10**6))
def test_a_refusal_has_changed_at_the_edge_that_was_announced(set_at: float, begin: int, length: int) -> None:
    fault = parse_fault(f"refuse,from={begin}ms,to={begin + length}ms")
    faults = FaultSchedule([fault], provider="alpha", set_at=set_at)
    first = faults.next_change(set_at - 1)
    assert first is not None
    assert faults.refuses(first)
    second = faults.next_change(first)
    assert second is not None
    assert not faults.refuses(second)
    assert faults.next_change(second) is None


def test_every_kind_but_refuse_can_be_planned() -> None:
    texts = ("status=500", "reset", "silence", "cut=1", "error-in-200", "drip=1s", "slow=1s", "lost")
    named = {schedule(text).plan(now=100, model=None, key=None, rng=random.Random(0)).name for text in texts}
    assert named == {kind.value for kind in FaultKind} - {"refuse"}
