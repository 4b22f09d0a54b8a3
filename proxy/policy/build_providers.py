"""A validated provider → ProviderSnapshot: its addresses, credentials, limits, timeouts and breaker."""

from __future__ import annotations

from proxy.decisions.adaptive import AdaptiveSettings
from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.counting import CountSettings
from proxy.decisions.deadline import AnswerPaceSettings, TimeoutSettings
from proxy.decisions.quota import QuotaSettings
from proxy.decisions.room import QueueSettings
from proxy.policy.problem import Path
from proxy.policy.schema.hosts import split_host
from proxy.policy.schema.providers import (
    Adaptive,
    AnswerQuantile,
    AuthHeader,
    Breaker,
    Connections,
    Key,
    Limits,
    Model,
    NamedValue,
    Provider,
    Timeouts,
)
from proxy.policy.schema.types import split_url
from proxy.policy.snapshot import (
    AddressSnapshot,
    AuthScheme,
    ConnectionSettings,
    HostSnapshot,
    KeySnapshot,
    ModelSnapshot,
    ProviderSnapshot,
    ValueSource,
)
from proxy.policy.tree import Node, deepest

PORTS = {"http": 80, "https": 443}


def build_provider(root: Node, name: str, provider: Provider) -> ProviderSnapshot:
    """Returns the snapshot of a provider; `root` is the tree that it was validated from."""
    here: Path = ("providers", name)
    urls = [provider.base_url] if isinstance(provider.base_url, str) else provider.base_url
    addresses, paths = zip(*map(_address, urls), strict=True)
    first, limits = addresses[0], provider.limits
    return ProviderSnapshot(
        name=name,
        was=provider.was,
        observe=provider.mode == "observe",
        base_url=urls[0],
        scheme=first.scheme,
        host=first.host,
        port=first.port,
        root_path=paths[0],
        addresses=addresses,
        dialect=provider.dialect,
        hosts=tuple(_host(text) for text in provider.hosts),
        query=tuple(provider.query.items()),
        headers=_headers(root, here, provider),
        auth=_auth(provider),
        keys=tuple(_key(root, (*here, "keys", i), key) for i, key in enumerate(provider.keys)),
        key_rest_seconds=float(provider.key_rest),
        idempotency_header=provider.idempotency_header,
        concurrency=limits.concurrency,
        rpm=limits.rpm,
        tpm=limits.tpm,
        quota=QuotaSettings(headroom=limits.headroom, burst=float(limits.burst)),
        count=_count(limits),
        adaptive=_adaptive(limits.adaptive),
        models=tuple(_model(model, one) for model, one in provider.models.items()),
        queue=QueueSettings(max=provider.queue.max, bytes=int(provider.queue.bytes)),
        connections=_connections(provider.connections),
        timeouts=_timeouts(provider.timeouts),
        breaker=_breaker(provider.breaker),
        propagate_trace=provider.propagate_trace,
        max_inputs=provider.max_inputs,
    )


def _host(text: str) -> HostSnapshot:
    host, port = split_host(text)
    return HostSnapshot(host=host, port=port)


def _address(url: str) -> tuple[AddressSnapshot, str]:
    """Returns where an address listens, and its path."""
    parts = split_url(url)
    assert parts is not None
    port = parts.port or PORTS[parts.scheme]
    return AddressSnapshot(scheme=parts.scheme, host=parts.hostname or "", port=port), parts.path.rstrip("/")


def _headers(root: Node, here: Path, provider: Provider) -> tuple[tuple[str, ValueSource], ...]:
    return tuple(
        (name.lower(), _value(root, (*here, "headers", name), value)) for name, value in provider.headers.items()
    )


def _count(limits: Limits) -> CountSettings:
    count = limits.count
    return CountSettings(
        cached_input=count.cached_input, reserve_output=count.reserve_output, unused_output=count.unused_output
    )


def _adaptive(adaptive: Adaptive | None) -> AdaptiveSettings | None:
    return None if adaptive is None else AdaptiveSettings(decrease=adaptive.decrease, min=adaptive.min)


def _model(name: str, model: Model) -> ModelSnapshot:
    limits = model.limits
    return ModelSnapshot(
        name=name,
        concurrency=limits.concurrency,
        rpm=limits.rpm,
        tpm=limits.tpm,
        context_tokens=model.context_tokens,
    )


def _value(root: Node, path: Path, value: str | NamedValue) -> ValueSource:
    if isinstance(value, str):
        return ValueSource(literal=value, place=str(deepest(root, path).node.place))
    return named(root, path, value)


def named(root: Node, path: Path, value: NamedValue | Key) -> ValueSource:
    """Returns the source of a value that is named at `path`."""
    where = deepest(root, (*path, "file" if value.env is None else "env"))
    return ValueSource(env=value.env, file=value.file, place=str(where.node.place))


def _key(root: Node, path: Path, key: Key) -> KeySnapshot:
    return KeySnapshot(
        id=key.id,
        source=named(root, path, key),
        weight=key.weight,
        concurrency=key.concurrency,
        rpm=key.rpm,
        tpm=key.tpm,
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
    return ConnectionSettings(max=connections.max, idle_seconds=float(connections.idle), warm=connections.warm)


def _timeouts(timeouts: Timeouts) -> TimeoutSettings:
    defaults = TimeoutSettings()
    return TimeoutSettings(
        connect=float(timeouts.connect),
        queue=seconds(timeouts.queue),
        quota_wait=seconds(timeouts.quota_wait),
        first_byte=float(timeouts.first_byte),
        answer=answer_seconds(timeouts.answer) or defaults.answer,
        answer_pace=answer_pace(timeouts.answer),
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
        slow_after=seconds(breaker.slow.after),
        slow_ratio=breaker.slow.ratio,
        open_first=float(breaker.open.first),
        open_cap=float(breaker.open.cap),
        probes=breaker.probes,
        per_provider=breaker.scope == "provider",
    )


def seconds(duration: float | None) -> float | None:
    """Returns a duration as a plain number."""
    return None if duration is None else float(duration)


def answer_seconds(limit: float | AnswerQuantile | None) -> float | None:
    """Returns an `answer` limit that is fixed, else None."""
    return None if isinstance(limit, AnswerQuantile) else seconds(limit)


def answer_pace(limit: float | AnswerQuantile | None) -> AnswerPaceSettings | None:
    """Returns an `answer` limit that follows the answers measured, else None."""
    if not isinstance(limit, AnswerQuantile):
        return None
    return AnswerPaceSettings(factor=limit.p95, plus=float(limit.plus))
