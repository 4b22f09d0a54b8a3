"""A route's tiers: who is asked, in which order, by which limits, with which credential."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.decisions.deadline import WaitLimits, wait_limits
from proxy.policy.difference.change import Findings
from proxy.policy.difference.fields import REQUEST, Field, answer_limit, compare, plain, seconds, shortened
from proxy.policy.difference.shares import Reload
from proxy.policy.difference.state import renamings
from proxy.policy.snapshot import (
    AnswerTier,
    PolicySnapshot,
    ProviderSnapshot,
    ProviderTier,
    RouteSnapshot,
    SpreadTier,
    StaleTier,
    Tier,
)

INHERITED = "the provider's"


def _override(value: float | None) -> str:
    return INHERITED if value is None else seconds(value)


def _answer(tier: ProviderTier) -> str:
    none = tier.answer_seconds is None and tier.answer_pace is None
    return INHERITED if none else answer_limit(tier.answer_seconds, tier.answer_pace)


def _parameters(pairs: Iterable[tuple[str, object]]) -> str:
    fields = dict(pairs)
    return plain(shortened(json.dumps(fields, ensure_ascii=False))) if fields else "none"


FIELDS: tuple[Field[ProviderTier], ...] = (
    Field(name="set", read=lambda t: t.set, write=_parameters),
    Field(name="queue", read=lambda t: t.queue_seconds, write=_override),
    Field(name="quota_wait", read=lambda t: t.quota_wait_seconds, write=_override),
    Field(name="first_byte", read=lambda t: t.first_byte_seconds, write=_override),
    Field(name="answer", read=_answer),
    Field(name="idle", read=lambda t: t.idle_seconds, write=_override),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A tier in its route: what it is called, and whether another one follows."""

    tier: ProviderTier
    label: str
    number: int
    later: bool
    provider: ProviderSnapshot

    def waits(self) -> WaitLimits:
        """How long a call may wait here."""
        tier = self.tier
        return wait_limits(
            self.provider.timeouts,
            queue=tier.queue_seconds,
            quota_wait=tier.quota_wait_seconds,
            later_tier=self.later,
        )


def compare_tiers(findings: Findings, old: RouteSnapshot, new: RouteSnapshot, reload: Reload) -> None:
    """Notes what of a route's tiers differs. A provider that has another name now is the same."""
    renamed = renamings(reload.old.providers, reload.new.providers)
    before, after = chain(old, renamed), chain(new)
    if before != after:
        findings.value("tiers", plain(tuple(before)), plain(tuple(after)), note=REQUEST)
    elif _answers(old) != _answers(new):
        findings.value("answer", "one body", "another body", note=REQUEST)
    places = {place.label: place for place in _places(old, reload.old, renamed)}
    for place in _places(new, reload.new, {}):
        if (match := places.get(place.label)) is not None:
            _compare(findings, match, place)
        _credential(findings, match, place)
    if len(list(new.asked())) < min(2, len(list(old.asked()))):
        findings.warn("no other provider is asked any more when the first one fails")


def chain(route: RouteSnapshot, renamed: dict[str, str] | None = None) -> list[str]:
    """Returns who is asked, in order: `provider/model`, `provider` for the caller's model, `spread …`, `answer 200`."""
    return [_label(tier, renamed or {}) for tier in route.tiers]


def _label(tier: Tier, renamed: dict[str, str]) -> str:
    match tier:
        case AnswerTier():
            return f"answer {tier.status}"
        case StaleTier():
            return f"stale answer up to {seconds(tier.max_age_seconds)}"
        case SpreadTier():
            return _spread(tier, renamed)
        case ProviderTier():
            name = renamed.get(tier.provider, tier.provider)
            return name if tier.model is None else f"{name}/{plain(tier.model)}"


def _spread(tier: SpreadTier, renamed: dict[str, str]) -> str:
    """Writes equals, for example `spread alpha | beta/m`, `spread 2 × alpha | 1 × beta/m`."""
    names = [_label(member, renamed) for member in tier.members]
    if tier.by == "weight":
        names = [f"{weight:g} × {name}" for weight, name in zip(tier.weights, names, strict=True)]
    return f"spread {' | '.join(names)}"


def _answers(route: RouteSnapshot) -> list[AnswerTier]:
    return [tier for tier in route.tiers if isinstance(tier, AnswerTier)]


def _places(route: RouteSnapshot, policy: PolicySnapshot, renamed: dict[str, str]) -> Sequence[_Place]:
    """All who may be asked; the same target for the second time is another one."""
    providers = {provider.name: provider for provider in policy.providers}
    times: Counter[str] = Counter()
    found = []
    for number, tier in enumerate(route.tiers, 1):
        for one in _asked(tier):
            label = _label(one, renamed)
            times[label] += 1
            found.append(
                _Place(
                    tier=one,
                    label=label if times[label] == 1 else f"{label} #{times[label]}",
                    number=number,
                    later=number < len(route.tiers),
                    provider=providers[one.provider],
                )
            )
    return found


def _asked(tier: Tier) -> tuple[ProviderTier, ...]:
    match tier:
        case SpreadTier():
            return tier.members
        case ProviderTier():
            return (tier,)
        case StaleTier() | AnswerTier():
            return ()


def _compare(findings: Findings, old: _Place, new: _Place) -> None:
    here = Findings()
    compare(here, FIELDS, old.tier, new.tier)
    for value in here.values:
        findings.value(f"{new.label}: {value.name}", value.old, value.new, note=value.note)
    if old.later == new.later:
        return
    before, after = old.waits(), new.waits()
    why = "a tier follows now" if new.later else "no tier follows any more"
    waits = ("a permit", before.queue, after.queue), ("quota or a key", before.quota_wait, after.quota_wait)
    for what, was, now in waits:
        if was != now:
            findings.value(f"{new.label}: wait for {what}", seconds(was), seconds(now), note=f"{REQUEST}; {why}")


def _credential(findings: Findings, old: _Place | None, new: _Place) -> None:
    """Only a first tier passes the caller's own credential on."""
    if not new.provider.keys and new.number > 1 and (old is None or old.number == 1 or old.provider.keys):
        findings.warn(f"{new.label} has no keys and is not the first tier: it is asked without any credential")
