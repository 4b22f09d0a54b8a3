"""Phase limits, waiting limits and the deadline (rule 6 and the policy's defaults)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.deadline import (
    AnswerPaceSettings,
    TimeoutSettings,
    WaitLimits,
    answer_pace,
    deadline_at,
    phase_limits,
    wait_limits,
)
from proxy.exchange import PhaseLimits

SECONDS = st.one_of(st.none(), st.floats(0.001, 10_000))


def test_the_policys_defaults() -> None:
    assert phase_limits(TimeoutSettings(), first_byte=None, answer=None, idle=None) == PhaseLimits(
        connect=5.0, first_byte=30.0, answer=600.0, idle=30.0, stream=3600.0
    )


def test_a_tier_overrides_what_it_names_and_nothing_else() -> None:
    limits = phase_limits(TimeoutSettings(connect=2.0, stream=60.0), first_byte=8.0, answer=None, idle=1.0)
    assert limits == PhaseLimits(connect=2.0, first_byte=8.0, answer=600.0, idle=1.0, stream=60.0)


PROVIDERS, TIERS = AnswerPaceSettings(factor=2.0), AnswerPaceSettings(factor=3.0)


@pytest.mark.parametrize(
    ("provider", "fixed", "tier", "follows"),
    [
        (None, None, None, None),
        (None, 4.0, None, None),
        (None, None, TIERS, TIERS),
        (PROVIDERS, None, None, PROVIDERS),
        (PROVIDERS, None, TIERS, TIERS),
        (PROVIDERS, 4.0, None, None),
    ],
)
def test_the_answer_limit_follows_the_tiers_pace_or_is_its_fixed_one_or_follows_the_providers(
    provider: AnswerPaceSettings | None,
    fixed: float | None,
    tier: AnswerPaceSettings | None,
    follows: AnswerPaceSettings | None,
) -> None:
    assert answer_pace(TimeoutSettings(answer_pace=provider), answer=fixed, pace=tier) == follows


def test_waiting_is_short_where_another_tier_could_answer() -> None:
    assert wait_limits(TimeoutSettings(), queue=None, quota_wait=None, later_tier=True) == WaitLimits(
        queue=0.3, quota_wait=0.3
    )


def test_waiting_is_long_where_nobody_else_can_answer() -> None:
    assert wait_limits(TimeoutSettings(), queue=None, quota_wait=None, later_tier=False) == WaitLimits(
        queue=10.0, quota_wait=30.0
    )


@given(tier=SECONDS, provider=SECONDS, later=st.booleans())
def test_the_tiers_word_stands_before_the_providers_and_that_before_the_default(
    tier: float | None, provider: float | None, later: bool
) -> None:
    timeouts = TimeoutSettings(queue=provider, quota_wait=provider)
    limits = wait_limits(timeouts, queue=tier, quota_wait=tier, later_tier=later)
    known = next((value for value in (tier, provider) if value is not None), None)
    assert limits.queue == (known if known is not None else 0.3 if later else 10.0)
    assert limits.quota_wait == (known if known is not None else 0.3 if later else 30.0)


def test_no_waiting_at_all_is_a_word_too() -> None:
    limits = wait_limits(TimeoutSettings(queue=5.0), queue=0.0, quota_wait=0.0, later_tier=False)
    assert limits == WaitLimits(queue=0.0, quota_wait=0.0)


def test_the_deadline_adds_what_the_tiers_may_wait() -> None:
    assert deadline_at(1000.0, 600.0, 40.0) == 1640.0
