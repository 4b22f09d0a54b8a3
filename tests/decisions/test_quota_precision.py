"""Over minutes of mixed traffic nearly all that a provider allows is used, and it never has to refuse."""

from __future__ import annotations

import pytest

from tests.bench.quota_precision import run
from tests.bench.quota_provider import Rule

SEEDS = range(4)


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("seed", SEEDS)
def test_nearly_all_that_is_allowed_is_used_and_nothing_is_refused(rule: Rule, seed: int) -> None:
    result = run(seed, rule)
    assert result.refusals == 0
    assert 0.97 <= result.used <= 1.0


@pytest.mark.parametrize("rule", list(Rule))
@pytest.mark.parametrize("seed", SEEDS)
def test_two_hundred_at_once_never_get_more_than_is_left(rule: Rule, seed: int) -> None:
    result = run(seed, rule)
    assert 0 < result.admitted <= result.left
    assert result.crowd_used <= result.left


@pytest.mark.parametrize("rule", list(Rule))
def test_the_provider_of_this_experiment_refuses_what_is_too_much(rule: Rule) -> None:
    assert run(0, rule, pace=1.05).refusals > 0


def test_to_give_back_what_a_provider_goes_on_counting_meets_refusals() -> None:
    """Why `unused_output` exists: settled by usage alone, a provider that gives nothing back is asked too often."""
    assert run(0, Rule.FOR_GOOD, settles_as=Rule.IN_ADVANCE).refusals > 10
