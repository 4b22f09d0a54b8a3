"""The validated policy → PolicySnapshot: units become numbers, one becomes many, secrets keep places."""

from __future__ import annotations

import json
from collections.abc import Iterable

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.classification import MatchSettings
from proxy.decisions.deadline import AnswerPaceSettings, TimeoutSettings
from proxy.decisions.queues import QueueSettings
from proxy.decisions.retry import RetrySettings
from proxy.decisions.shares import FleetSettings
from proxy.policy.problem import Path
from proxy.policy.schema.fleet import Fleet
from proxy.policy.schema.policy import Policy
from proxy.policy.schema.providers import (
    AnswerQuantile,
    AuthHeader,
    Breaker,
    Connections,
    Key,
    NamedValue,
    Provider,
    Timeouts,
)
from proxy.policy.schema.routes import AnswerTier as WrittenAnswer
from proxy.policy.schema.routes import Match, Route, Tier
from proxy.policy.schema.routes import ProviderTier as WrittenTier
from proxy.policy.schema.types import split_url
from proxy.policy.snapshot import (
    AnswerTier,
    AuthScheme,
    ConnectionSettings,
    KeySnapshot,
    PolicySnapshot,
    ProviderSnapshot,
    ProviderTier,
    RouteSnapshot,
    TelemetrySnapshot,
    ValueSource,
)
from proxy.policy.tree import Node, deepest

PORTS = {"http": 80, "https": 443}
EMPTY_STATUSES = frozenset({204, 205, 304})


def build(policy: Policy, root: Node, *, digest: str, instance_index: int | None) -> PolicySnapshot:
    """Returns the snapshot of a policy without problems; `root` is the tree that it was validated from."""
    return PolicySnapshot(
        providers=tuple(_provider(root, name, one) for name, one in policy.providers.items()),
        routes=None if policy.routes is None else tuple(map(_route, policy.routes)),
        observe=policy.mode == "observe",
        fleet=_fleet(policy.fleet, instance_index),
        concurrency=policy.limits.concurrency,
        telemetry=TelemetrySnapshot(log_successes=policy.telemetry.log_successes),
        digest=digest,
    )


def _fleet(fleet: Fleet, index: int | None) -> FleetSettings:
    if fleet.size is None or fleet.size.static is None:
        return FleetSettings(index=index)
    return FleetSettings(size=fleet.size.static, index=index)


def _provider(root: Node, name: str, provider: Provider) -> ProviderSnapshot:
    here: Path = ("providers", name)
    base_url = provider.base_url if isinstance(provider.base_url, str) else provider.base_url[0]
    parts = split_url(base_url)
    assert parts is not None
    return ProviderSnapshot(
        name=name,
        was=provider.was,
        observe=provider.mode == "observe",
        base_url=base_url,
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=parts.port or PORTS[parts.scheme],
        root_path=parts.path.rstrip("/"),
        dialect=provider.dialect,
        query=tuple(provider.query.items()),
        headers=tuple(
            (header.lower(), _value(root, (*here, "headers", header), value))
            for header, value in provider.headers.items()
        ),
        auth=_auth(provider),
        keys=tuple(_key(root, (*here, "keys", i), key) for i, key in enumerate(provider.keys)),
        key_rest_seconds=float(provider.key_rest),
        concurrency=provider.limits.concurrency,
        models=tuple((model, one.limits.concurrency) for model, one in provider.models.items()),
        queue=QueueSettings(max=provider.queue.max, bytes=int(provider.queue.bytes)),
        connections=_connections(provider.connections),
        timeouts=_timeouts(provider.timeouts),
        breaker=_breaker(provider.breaker),
        propagate_trace=provider.propagate_trace,
    )


def _value(root: Node, path: Path, value: str | NamedValue) -> ValueSource:
    if isinstance(value, str):
        return ValueSource(literal=value, place=str(deepest(root, path).node.place))
    return _named(root, path, value)


def _named(root: Node, path: Path, value: NamedValue | Key) -> ValueSource:
    where = deepest(root, (*path, "file" if value.env is None else "env"))
    return ValueSource(env=value.env, file=value.file, place=str(where.node.place))


def _key(root: Node, path: Path, key: Key) -> KeySnapshot:
    return KeySnapshot(
        id=key.id,
        source=_named(root, path, key),
        weight=key.weight,
        concurrency=key.concurrency,
        was=key.was,
    )


def _auth(provider: Provider) -> AuthScheme:
    match provider.auth:
        case AuthHeader(header=header):
            return AuthScheme(header=header.lower(), prefix="")
        case None if provider.dialect == "anthropic":
            return AuthScheme(header="x-api-key", prefix="")
        case "x-api-key":
            return AuthScheme(header="x-api-key", prefix="")
        case _:
            return AuthScheme()


def _connections(connections: Connections) -> ConnectionSettings:
    return ConnectionSettings(max=connections.max, idle_seconds=float(connections.idle))


def _timeouts(timeouts: Timeouts) -> TimeoutSettings:
    defaults = TimeoutSettings()
    return TimeoutSettings(
        connect=float(timeouts.connect),
        queue=_seconds(timeouts.queue),
        quota_wait=_seconds(timeouts.quota_wait),
        first_byte=float(timeouts.first_byte),
        answer=_answer_seconds(timeouts.answer) or defaults.answer,
        answer_pace=_answer_pace(timeouts.answer),
        idle=float(timeouts.idle),
        stream=float(timeouts.stream),
    )


def _breaker(breaker: str | Breaker) -> BreakerSettings | None:
    if isinstance(breaker, str):
        return None
    return BreakerSettings(
        failure_ratio=breaker.failure_ratio,
        window_calls=breaker.window.calls,
        window_seconds=float(breaker.window.time),
        min_calls=breaker.min_calls,
        consecutive=breaker.consecutive,
        slow_after=_seconds(breaker.slow.after),
        slow_ratio=breaker.slow.ratio,
        open_first=float(breaker.open.first),
        open_cap=float(breaker.open.cap),
        probes=breaker.probes,
        per_provider=breaker.scope == "provider",
    )


def _route(route: Route) -> RouteSnapshot:
    return RouteSnapshot(
        name=route.name,
        was=route.was,
        observe=route.mode == "observe",
        match=_match(route.match),
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


def _tiers(tiers: Iterable[Tier]) -> Iterable[ProviderTier | AnswerTier]:
    for tier in tiers:
        if isinstance(tier, WrittenTier):
            yield _provider_tier(tier)
        elif isinstance(tier, WrittenAnswer):
            yield _answer_tier(tier)


def _provider_tier(tier: WrittenTier) -> ProviderTier:
    return ProviderTier(
        provider=tier.provider,
        model=tier.model,
        set=tuple(tier.set.items()),
        queue_seconds=_seconds(tier.queue),
        quota_wait_seconds=_seconds(tier.quota_wait),
        first_byte_seconds=_seconds(tier.first_byte),
        answer_seconds=_answer_seconds(tier.answer),
        answer_pace=_answer_pace(tier.answer),
        idle_seconds=_seconds(tier.idle),
    )


def _answer_tier(tier: WrittenAnswer) -> AnswerTier:
    status = tier.answer.status
    if status in EMPTY_STATUSES:
        return AnswerTier(status=status, body=b"")
    text = json.dumps(tier.answer.json_, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return AnswerTier(status=status, body=text.encode())


def _seconds(duration: float | None) -> float | None:
    return None if duration is None else float(duration)


def _answer_seconds(limit: float | AnswerQuantile | None) -> float | None:
    return None if isinstance(limit, AnswerQuantile) else _seconds(limit)


def _answer_pace(limit: float | AnswerQuantile | None) -> AnswerPaceSettings | None:
    if not isinstance(limit, AnswerQuantile):
        return None
    return AnswerPaceSettings(factor=limit.p95, plus=float(limit.plus))
