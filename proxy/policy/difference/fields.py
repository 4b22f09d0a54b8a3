"""The settings that are compared one by one: their names in the policy, how they are written, when a change acts.

Limits, names, models, keys, tiers and addresses do more than change a value: they have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from proxy.decisions.adaptive import AdaptiveSettings
from proxy.decisions.deadline import AnswerPaceSettings, TimeoutSettings
from proxy.decisions.lanes import LaneSettings
from proxy.policy.difference.change import Findings, When
from proxy.policy.problem import one_line
from proxy.policy.snapshot import AuthScheme, ProviderSnapshot, RouteSnapshot, ValueSource
from proxy.policy.units import format_duration, format_size

T = TypeVar("T")
NONE: Final = "none"
LONGEST_TEXT: Final = 72


def plain(value: object) -> str:
    """Writes a value as YAML has it; what is absent as `none`."""
    match value:
        case None | () | "":
            return NONE
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.10g}"
        case tuple():
            return shortened(", ".join(map(plain, value)))
        case _:
            return shortened(one_line(str(value)))


def shortened(text: str) -> str:
    """Returns the text, its end left out where it is long."""
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def seconds(value: float | None) -> str:
    """Writes a duration; None as `none`."""
    return NONE if value is None else format_duration(value)


def source(value: ValueSource | None) -> str:
    """Writes where a value comes from, never the value."""
    if value is None:
        return NONE
    if value.literal is not None:
        return "written here"
    return plain(f"env {value.env}" if value.env is not None else f"file {value.file}")


def answer_limit(fixed: float | None, pace: AnswerPaceSettings | None) -> str:
    """Writes an `answer` limit: fixed, or following the answers measured."""
    return seconds(fixed) if pace is None else f"p95 × {pace.factor:g} + {format_duration(pace.plus)}"


def mode(observes: bool) -> str:
    """Writes a mode."""
    return "observe" if observes else "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Generic[T]):
    """One setting: its name in the policy, how it is read and written, and when its change acts."""

    name: str
    read: Callable[[T], Any]
    write: Callable[[Any], str] = plain
    when: When = When.REQUEST


def compare(findings: Findings, fields: Iterable[Field[T]], old: T, new: T) -> set[str]:
    """Notes the settings that differ; returns their names."""
    differ = [one for one in fields if one.read(old) != one.read(new)]
    for one in differ:
        findings.value(one.name, one.write(one.read(old)), one.write(one.read(new)), note=one.when)
    return {one.name for one in differ}


def compare_values(findings: Findings, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Notes named values (headers, query) that differ. The values themselves are not shown: some are secrets."""
    for key in dict.fromkeys([*old, *new]):
        before, after = _placeless(old.get(key)), _placeless(new.get(key))
        if before != after:
            written = _origin(before), _origin(after)
            same = written[0] == written[1]
            findings.value(f"{name}.{plain(key)}", written[0], "another value" if same else written[1], note=REQUEST)


def _placeless(value: ValueSource | str | None) -> ValueSource | str | None:
    """Where it stands in the policy makes no difference."""
    return replace(value, place="") if isinstance(value, ValueSource) else value


def _origin(value: ValueSource | str | None) -> str:
    return "written here" if isinstance(value, str) else source(value)


DECISION, REQUEST = When.DECISION, When.REQUEST

_TIMES: tuple[Field[ProviderSnapshot], ...] = (
    Field(name="timeouts.connect", read=lambda p: p.timeouts.connect, write=seconds),
    Field(name="timeouts.queue", read=lambda p: p.timeouts.queue, write=seconds),
    Field(name="timeouts.quota_wait", read=lambda p: p.timeouts.quota_wait, write=seconds),
    Field(name="timeouts.first_byte", read=lambda p: p.timeouts.first_byte, write=seconds),
    Field(name="timeouts.answer", read=lambda p: _answer(p.timeouts), write=lambda limit: answer_limit(*limit)),
    Field(name="timeouts.idle", read=lambda p: p.timeouts.idle, write=seconds),
    Field(name="timeouts.stream", read=lambda p: p.timeouts.stream, write=seconds),
)


def _answer(timeouts: TimeoutSettings) -> tuple[float, AnswerPaceSettings | None]:
    return timeouts.answer, timeouts.answer_pace


def _auth(auth: AuthScheme) -> str:
    if auth == AuthScheme():
        return "bearer"
    return plain(auth.header if auth.header == "x-api-key" else f"header {auth.header}")


def _urls(provider: ProviderSnapshot) -> str | tuple[str, ...]:
    more = tuple(f"{address}{provider.root_path}" for address in provider.addresses[1:])
    return (provider.base_url, *more) if more else provider.base_url


def _adaptive(adaptive: AdaptiveSettings | None) -> str:
    return NONE if adaptive is None else f"decrease {adaptive.decrease:g}, min {adaptive.min}"


PROVIDER: tuple[Field[ProviderSnapshot], ...] = (
    Field(name="mode", read=lambda p: p.observe, write=mode, when=DECISION),
    Field(name="base_url", read=_urls),
    Field(name="hosts", read=lambda p: p.hosts, write=lambda hosts: plain(hosts) if hosts else "those of base_url"),
    Field(name="dialect", read=lambda p: p.dialect),
    Field(name="auth", read=lambda p: p.auth, write=_auth, when=DECISION),
    Field(name="propagate_trace", read=lambda p: p.propagate_trace),
    Field(name="idempotency_header", read=lambda p: p.idempotency_header),
    Field(name="key_rest", read=lambda p: p.key_rest_seconds, write=seconds, when=DECISION),
    Field(name="limits.concurrency", read=lambda p: p.concurrency, when=DECISION),
    Field(name="limits.rpm", read=lambda p: p.rpm, when=DECISION),
    Field(name="limits.tpm", read=lambda p: p.tpm, when=DECISION),
    Field(name="limits.headroom", read=lambda p: p.quota.headroom, when=DECISION),
    Field(name="limits.burst", read=lambda p: p.quota.burst, write=seconds, when=DECISION),
    Field(name="limits.adaptive", read=lambda p: p.adaptive, write=_adaptive, when=DECISION),
    Field(name="limits.count.cached_input", read=lambda p: p.count.cached_input),
    Field(name="limits.count.reserve_output", read=lambda p: p.count.reserve_output),
    Field(name="limits.count.unused_output", read=lambda p: p.count.unused_output),
    Field(
        name="max_inputs", read=lambda p: p.max_inputs, write=lambda most: "by its host" if most is None else str(most)
    ),
    Field(name="queue.max", read=lambda p: p.queue.max, when=DECISION),
    Field(name="queue.bytes", read=lambda p: p.queue.bytes, write=format_size, when=DECISION),
    Field(name="connections.max", read=lambda p: p.connections.max, when=DECISION),
    Field(name="connections.idle", read=lambda p: p.connections.idle_seconds, write=seconds, when=DECISION),
    Field(name="connections.warm", read=lambda p: p.connections.warm, when=DECISION),
    *_TIMES,
)

_BREAKER: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "failure_ratio": ("failure_ratio", plain),
    "window_calls": ("window.calls", plain),
    "window_seconds": ("window.time", seconds),
    "min_calls": ("min_calls", plain),
    "consecutive": ("consecutive", lambda count: str(count) if count else "off"),
    "slow_after": ("slow.after", lambda after: "2/3 of first_byte" if after is None else seconds(after)),
    "slow_ratio": ("slow.ratio", plain),
    "open_first": ("open.first", seconds),
    "open_cap": ("open.cap", seconds),
    "probes": ("probes", plain),
    "per_provider": ("scope", lambda whole: "provider" if whole else "target"),
}


def _of_breaker(attribute: str) -> Callable[[ProviderSnapshot], Any]:
    return lambda provider: getattr(provider.breaker, attribute)


BREAKER: tuple[Field[ProviderSnapshot], ...] = tuple(
    Field(name=f"breaker.{name}", read=_of_breaker(attribute), write=write, when=DECISION)
    for attribute, (name, write) in _BREAKER.items()
)
"""Compared where both sides have a breaker."""

BREAKER_SWITCH: Field[ProviderSnapshot] = Field(
    name="breaker", read=lambda p: p.breaker is not None, write=lambda on: "on" if on else "off"
)


def _key_of(read: tuple[tuple[str, ...], bool]) -> str:
    headers, all_required = read
    return plain(f"all of {', '.join(headers)}" if all_required else headers)


def _lanes(lanes: tuple[LaneSettings, ...]) -> str:
    return plain(tuple(f"{lane.share:g} up to {lane.max_output} tokens" for lane in lanes))


ROUTE: tuple[Field[RouteSnapshot], ...] = (
    Field(name="mode", read=lambda r: r.observe, write=mode),
    Field(name="match.path", read=lambda r: r.match.path, write=lambda patterns: plain(patterns or "any")),
    Field(name="match.model", read=lambda r: r.match.model, write=lambda patterns: plain(patterns or "any")),
    Field(
        name="match.header",
        read=lambda r: r.match.header,
        write=lambda headers: plain(tuple(f"{name}: {plain(patterns)}" for name, patterns in headers) or "any"),
    ),
    Field(name="class", read=lambda r: r.klass),
    Field(name="class_from_header", read=lambda r: r.class_from_header),
    Field(name="total", read=lambda r: r.total_seconds, write=seconds),
    Field(name="retry.attempts", read=lambda r: r.retry.attempts),
    Field(name="retry.base", read=lambda r: r.retry.base, write=seconds),
    Field(name="retry.cap", read=lambda r: r.retry.cap, write=seconds),
    Field(name="retry.budget", read=lambda r: r.retry.budget, when=DECISION),
    Field(name="body.max", read=lambda r: r.body_max, write=format_size),
    Field(name="body.replay", read=lambda r: r.body_replay, write=format_size),
    Field(
        name="repeatable",
        read=lambda r: r.repeatable,
        write=lambda repeatable: "by the path" if repeatable is None else plain(repeatable),
    ),
    Field(name="idempotency", read=lambda r: (r.idempotency.headers, r.idempotency.all_required), write=_key_of),
    Field(name="idempotency.keep", read=lambda r: r.idempotency.keep, write=seconds),
    Field(name="lanes", read=lambda r: r.lanes, write=_lanes),
)
