"""A validated route → RouteSnapshot: which requests, which tiers, one becomes many."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from proxy.decisions.classification import MatchSettings
from proxy.decisions.idempotency import IdempotencySettings
from proxy.decisions.lanes import LaneSettings
from proxy.decisions.retry import RetrySettings
from proxy.policy.build_providers import answer_pace, answer_seconds, seconds
from proxy.policy.build_saved import build_cache, build_merge, build_redis
from proxy.policy.schema.routes import AnswerTier as WrittenAnswer
from proxy.policy.schema.routes import Idempotency, Match, Route, TierLimits
from proxy.policy.schema.routes import ProviderTier as WrittenProvider
from proxy.policy.schema.routes import SpreadTier as WrittenSpread
from proxy.policy.schema.routes import StaleCacheTier as WrittenStale
from proxy.policy.schema.routes import Tier as WrittenTier
from proxy.policy.snapshot import AnswerTier, ProviderTier, RouteSnapshot, SpreadTier, StaleTier, Tier
from proxy.policy.tree import Node

EMPTY_STATUSES = frozenset({204, 205, 304})
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def build_route(root: Node, number: int, route: Route) -> RouteSnapshot:
    """Returns the snapshot of a route; `root` is the tree that it was validated from, `number` its place there."""
    return RouteSnapshot(
        name=route.name,
        was=route.was,
        observe=route.mode == "observe",
        match=_match(route.match),
        klass=route.class_,
        class_from_header=route.class_from_header,
        tiers=tuple(_tiers(route.tiers)),
        total_seconds=float(route.total),
        retry=RetrySettings(
            attempts=route.retry.attempts,
            base=float(route.retry.base),
            cap=float(route.retry.cap),
            budget=route.retry.budget,
        ),
        body_max=int(route.body.max),
        body_replay=int(route.body.replay),
        repeatable=route.repeatable,
        idempotency=_idempotency(route.idempotency),
        lanes=tuple(LaneSettings(max_output=lane.max_output, share=lane.share) for lane in route.lanes),
        cache=None if route.cache is None else build_cache(route.cache),
        cache_redis=None if route.cache is None else build_redis(root, number, route.cache),
        single_flight=route.cache is not None if route.single_flight is None else route.single_flight,
        merge=None if route.merge is None else build_merge(route.merge),
    )


def _match(match: Match) -> MatchSettings:
    return MatchSettings(
        path=_many(match.path),
        model=_many(match.model),
        header=tuple((name.lower(), _many(patterns)) for name, patterns in match.header.items()),
    )


def _many(patterns: str | list[str] | None) -> tuple[str, ...]:
    if patterns is None:
        return ()
    return (patterns,) if isinstance(patterns, str) else tuple(patterns)


def _idempotency(written: Idempotency) -> IdempotencySettings:
    names = written.from_ or [written.header]
    return IdempotencySettings(
        headers=tuple(name.lower() for name in names),
        all_required=written.from_ is not None,
        keep=float(written.keep),
    )


def _tiers(tiers: Iterable[WrittenTier]) -> Iterable[Tier]:
    for tier in tiers:
        if isinstance(tier, WrittenProvider):
            yield _asking(tier, tier.provider, tier.model, set_=tier.set)
        elif isinstance(tier, WrittenSpread):
            yield _spread(tier)
        elif isinstance(tier, WrittenStale):
            yield StaleTier(max_age_seconds=float(tier.stale_cache.max_age))
        elif isinstance(tier, WrittenAnswer):
            yield _answer_tier(tier)


def _spread(tier: WrittenSpread) -> SpreadTier:
    """Returns equals that each have what the tier sets for itself."""
    return SpreadTier(
        members=tuple(_asking(tier, member.provider, member.model) for member in tier.spread),
        weights=tuple(1.0 if member.weight is None else member.weight for member in tier.spread),
        by=tier.by,
    )


def _asking(limits: TierLimits, provider: str, model: str | None, *, set_: Mapping[str, Any] = NOTHING) -> ProviderTier:
    return ProviderTier(
        provider=provider,
        model=model,
        set=tuple(set_.items()),
        queue_seconds=seconds(limits.queue),
        quota_wait_seconds=seconds(limits.quota_wait),
        first_byte_seconds=seconds(limits.first_byte),
        answer_seconds=answer_seconds(limits.answer),
        answer_pace=answer_pace(limits.answer),
        idle_seconds=seconds(limits.idle),
    )


def _answer_tier(tier: WrittenAnswer) -> AnswerTier:
    status = tier.answer.status
    if status in EMPTY_STATUSES:
        return AnswerTier(status=status, body=b"")
    text = json.dumps(tier.answer.json_, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return AnswerTier(status=status, body=text.encode())
