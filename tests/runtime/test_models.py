"""A tier's pipelines by model: named ones compiled, invented ones bounded and labelled `other`."""

from __future__ import annotations

from proxy.decisions.retry import RetryBudget, RetrySettings
from proxy.runtime.models import LONGEST_INVENTED_NAME, MOST_INVENTED_MODELS, OTHER, ModelTargets, TierParts
from proxy.stage import CallNext
from tests.fakes import LIMITS
from tests.scripted import ScriptedTerminal
from tests.stages.world import WAITS


class Maker:
    """Notes which pipelines it makes."""

    def __init__(self) -> None:
        self.live = True
        self.made: list[tuple[str, str]] = []
        self.late: list[tuple[str, str]] = []

    def pipeline(self, model: str, label: str, parts: TierParts) -> CallNext:
        """Makes one."""
        self.made.append((model, label))
        return ScriptedTerminal()

    def late_pipeline(self, model: str, label: str, parts: TierParts) -> CallNext | None:
        """Makes one, while live."""
        if not self.live:
            return None
        self.late.append((model, label))
        return ScriptedTerminal()


def targets(maker: Maker, *named: str) -> ModelTargets:
    parts = TierParts(retry=RetrySettings(), budget=RetryBudget(0.2), phases=LIMITS, waits=WAITS)
    return ModelTargets(maker, parts, named=frozenset(named))


def test_named_models_are_compiled_and_labelled_by_their_names() -> None:
    maker = Maker()
    tier = targets(maker, "m1", "m2")
    assert maker.made == [("m1", "m1"), ("m2", "m2"), (OTHER, OTHER)]
    assert tier.of("m1")[0] == "m1"
    assert tier.of("m1")[1] is not tier.of("m2")[1]
    assert maker.late == []


def test_a_request_without_a_model_is_other() -> None:
    tier = targets(Maker(), "m1")
    assert tier.of(None)[0] == OTHER


def test_an_invented_model_gets_its_own_pipeline_once_and_the_label_other() -> None:
    maker = Maker()
    tier = targets(maker, "m1")
    label, call = tier.of("invented")
    assert label == OTHER
    assert tier.of("invented") == (label, call)
    assert call is not tier.of(None)[1]
    assert maker.late == [("invented", OTHER)]


def test_invented_models_are_bounded_and_those_beyond_share_one_pipeline() -> None:
    maker = Maker()
    tier = targets(maker, "m1")
    for number in range(10 * MOST_INVENTED_MODELS):
        assert tier.of(f"invented-{number}")[0] == OTHER
    assert len(maker.late) == MOST_INVENTED_MODELS
    assert tier.of("one more") == tier.of(None)
    assert tier.of("invented-0") != tier.of(None)
    assert tier.of("m1")[0] == "m1"


def test_a_name_that_is_none_is_not_kept() -> None:
    maker = Maker()
    tier = targets(maker)
    assert tier.of("x" * (LONGEST_INVENTED_NAME + 1)) == tier.of(None)
    assert maker.late == []
    assert tier.of("x" * LONGEST_INVENTED_NAME) != tier.of(None)


def test_of_a_policy_that_is_live_no_more_new_inventions_share_the_pipeline_of_others() -> None:
    maker = Maker()
    tier = targets(maker, "m1")
    kept = tier.of("before")
    maker.live = False
    assert tier.of("after") == tier.of(None)
    assert tier.of("before") == kept
