"""A tier's pipelines by model: compiled for models that the policy names, bounded for models that callers invent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from proxy.decisions.deadline import AnswerPaceSettings, WaitLimits
from proxy.decisions.retry import RetryBudget, RetrySettings
from proxy.exchange import PhaseLimits
from proxy.policy.snapshot import RouteSnapshot
from proxy.stage import CallNext

MOST_INVENTED_MODELS: Final = 64
LONGEST_INVENTED_NAME: Final = 256
OTHER: Final = "other"
"""The label of every model that the policy does not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierParts:
    """What a tier brings to its target's pipelines.

    `observes`: what shares and breakers say is only reported. `counts_tokens`: the tokens of its answers must be known.
    `fields` is its `set`.
    """

    retry: RetrySettings
    budget: RetryBudget
    phases: PhaseLimits
    waits: WaitLimits
    pace: AnswerPaceSettings | None = None
    observes: bool = False
    counts_tokens: bool = False
    fields: Mapping[str, Any] = field(default_factory=dict)
    route: RouteSnapshot = RouteSnapshot(name="")


class Maker(Protocol):
    """A provider, which makes the pipelines."""

    def pipeline(self, model: str, label: str, parts: TierParts) -> CallNext:
        """Builds the pipeline of one tier and model, for a policy that is not live yet."""
        ...

    def late_pipeline(self, model: str, label: str, parts: TierParts) -> CallNext | None:
        """Builds one while the policy is live; None when it is live no more."""
        ...


class ModelTargets:
    """One tier's pipelines: compiled for every model that the policy names, and for a bounded number of others."""

    __slots__ = ("_invented", "_parts", "_provider", "_ready")

    def __init__(self, provider: Maker, parts: TierParts, *, named: frozenset[str]) -> None:
        self._provider = provider
        self._parts = parts
        self._invented = 0
        self._ready: dict[str | None, tuple[str, CallNext]] = {}
        for model in sorted(named):
            self._ready[model] = (model, provider.pipeline(model, model, parts))
        self._ready[None] = (OTHER, provider.pipeline(OTHER, OTHER, parts))

    def of(self, model: str | None) -> tuple[str, CallNext]:
        """Returns the model's label and pipeline; too many invented models, and names that are none, share one."""
        found = self._ready.get(model)
        if found is not None:
            return found
        assert model is not None
        if self._invented >= MOST_INVENTED_MODELS or len(model) > LONGEST_INVENTED_NAME:
            return self._ready[None]
        made = self._provider.late_pipeline(model, OTHER, self._parts)
        if made is None:
            return self._ready[None]
        self._invented += 1
        self._ready[model] = (OTHER, made)
        return self._ready[model]
