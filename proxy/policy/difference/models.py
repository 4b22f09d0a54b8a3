"""The sections of models that a policy names: their own limit, and the state that a name gives them."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy.difference.change import Findings, Section, Sign
from proxy.policy.difference.fields import DECISION, Field, compare, plain
from proxy.policy.difference.rates import compare_rates, grant
from proxy.policy.difference.shares import Limit, Reload, compare_share
from proxy.policy.difference.state import named_models
from proxy.policy.snapshot import ModelSnapshot, ProviderSnapshot

FIELDS: tuple[Field[ModelSnapshot], ...] = (
    Field(name="limits.concurrency", read=lambda m: m.concurrency, when=DECISION),
    Field(name="limits.rpm", read=lambda m: m.rpm, when=DECISION),
    Field(name="limits.tpm", read=lambda m: m.tpm, when=DECISION),
    Field(name="context_tokens", read=lambda m: m.context_tokens),
)


def models(old: ProviderSnapshot, new: ProviderSnapshot, reload: Reload) -> Iterator[Section | None]:
    """Yields a section for every model of a provider that stays; None for one that does not change."""
    before, after = named_models(reload.old, old.name), named_models(reload.new, new.name)
    for model in dict.fromkeys([*after, *before]):
        findings = Findings()
        _limit(findings, model, (old, new), reload)
        subject = f"model {new.name}/{plain(model)}"
        if model not in before:
            _named(findings, model, new, reload)
            yield findings.section(Sign.ADDED, subject)
        elif model not in after:
            findings.effect("named by no limit and no tier any more: metrics count it as `other`")
            if reload.fates.kept("pool", new.name):
                findings.effect(f"when callers ask for it by name within 10 minutes, {_own(new)} on")
            yield findings.section(Sign.REMOVED, subject)
        else:
            yield findings.changes(subject)


def _limit(findings: Findings, model: str, pair: tuple[ProviderSnapshot, ProviderSnapshot], reload: Reload) -> None:
    old, new = pair
    before, after = old.model(model), new.model(model)
    differ = compare(findings, FIELDS, before, after)
    if before.concurrency is not None and after.concurrency is None:
        findings.warn("the model has no limit of its own any more")
    limit = Limit(
        old=before.concurrency,
        new=after.concurrency,
        old_key=f"{old.name}/{model}",
        new_key=f"{new.name}/{model}",
    )
    compare_share(findings, limit, reload, what="this model")
    compare_rates(findings, grant(before, old, reload.old), grant(after, new, reload.new), what="this model")
    if "context_tokens" in differ and after.context_tokens is not None:
        findings.effect("a longer input goes to the next tier, or is refused: 413 context_too_long")


def _named(findings: Findings, model: str, provider: ProviderSnapshot, reload: Reload) -> None:
    """A model that callers asked for by name before has cores already, by the same identity."""
    findings.effect("named now: it has a label of its own in metrics")
    if reload.fates.kept("pool", provider.name):
        findings.effect(f"where callers asked for it by name before, {_own(provider)} on, else they are new")


def _own(provider: ProviderSnapshot) -> str:
    apart = provider.breaker is not None and not provider.breaker.per_provider
    return "its queue and breaker go" if apart else "its queue goes"
