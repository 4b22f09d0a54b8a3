"""OTEL_* read into one frozen object.

The mapping is passed in. A value that cannot be understood is a ValueError that names its variable.
Variables that the SDK's classes read themselves are only checked here, so that a mistake stops the start
instead of passing as a default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final
from urllib.parse import unquote, urlsplit

from otel.attributes import GENAI_1_41, GENAI_LATEST, GenAiMetrics
from otel.exporters import TIMEOUT_SECONDS
from proxy.trace_context import Sampler

_OTLP: Final = "OTEL_EXPORTER_OTLP_"
_QUEUE_SIZE: Final = "OTEL_BSP_MAX_QUEUE_SIZE"
_CREDENTIALS: Final = frozenset("@?#")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*=[ \t]*[ !#-+\--:<-\[\]-~]*")
"""As the SDK reads them: a token, then what a header may hold without quotes, comma, semicolon and backslash."""
_SAMPLERS: Final = {
    "always_on": (1.0, False),
    "always_off": (0.0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (1.0, True),
    "parentbased_always_off": (0.0, True),
    "parentbased_traceidratio": (None, True),
}
"""Name → (ratio, None for the argument's; whether a caller's own decision is followed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What OTEL_* say. Time-outs are None where the exporter shall read the environment's own."""

    traces: tuple[str, ...]
    metrics: tuple[str, ...]
    sampler: Sampler
    genai: GenAiMetrics
    resource: Mapping[str, str]
    interval_seconds: float
    traces_timeout: float | None
    metrics_timeout: float | None
    queue_size: int


def read_environment(env: Mapping[str, str]) -> Environment:
    """Reads and checks everything. Raises ValueError."""
    disabled = _word(env, "OTEL_SDK_DISABLED", "false", ("true", "false")) == "true"
    traces = () if disabled else _exporters(env, "OTEL_TRACES_EXPORTER", ("otlp", "console"))
    metrics = () if disabled else _exporters(env, "OTEL_METRICS_EXPORTER", ("otlp", "console", "prometheus"))
    if "otlp" in (*traces, *metrics):
        _check_otlp(env)
    if traces:
        _check_batches(env)
    return Environment(
        traces=traces,
        # `/metrics` is always there: nothing is exported for it.
        metrics=tuple(name for name in metrics if name != "prometheus"),
        # What is not exported is not sampled; a caller's own decision still goes on to the provider.
        sampler=_sampler(env) if traces else Sampler(ratio=0.0),
        genai=_genai(env),
        resource=_resource(env),
        interval_seconds=_positive(env, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        traces_timeout=_timeout(env, "TRACES_"),
        metrics_timeout=_timeout(env, "METRICS_"),
        queue_size=_count(env, _QUEUE_SIZE, 2048) if traces else 0,
    )


def _value(env: Mapping[str, str], name: str) -> str:
    """Returns the value; empty is unset, as OpenTelemetry has it."""
    return env.get(name, "").strip()


def _word(env: Mapping[str, str], name: str, default: str, known: tuple[str, ...]) -> str:
    word = _value(env, name).lower() or default
    if word not in known:
        raise ValueError(f"{name} is {word!r}: expected one of {', '.join(known)}")
    return word


def _positive(env: Mapping[str, str], name: str, default: float) -> float:
    text = _value(env, name)
    try:
        number = float(text or default)
    except ValueError:
        number = -1.0
    if not isfinite(number) or number <= 0:
        raise ValueError(f"{name} is {text!r}: expected a number above 0")
    return number


def _exporters(env: Mapping[str, str], name: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip().lower() for word in (_value(env, name) or "otlp").split(","))
    if words == ("none",):
        return ()
    for word in words:
        if word not in known:
            raise ValueError(f"{name} is {_value(env, name)!r}: expected {', '.join(known)} or none")
    return tuple(dict.fromkeys(words))


def _sampler(env: Mapping[str, str]) -> Sampler:
    name = _word(env, "OTEL_TRACES_SAMPLER", "parentbased_always_on", tuple(_SAMPLERS))
    ratio, follow_parent = _SAMPLERS[name]
    return Sampler(ratio=_ratio(env) if ratio is None else ratio, follow_parent=follow_parent)


def _ratio(env: Mapping[str, str]) -> float:
    text = _value(env, "OTEL_TRACES_SAMPLER_ARG") or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"OTEL_TRACES_SAMPLER_ARG is {text!r}: expected a ratio from 0 to 1")
    return ratio


def _genai(env: Mapping[str, str]) -> GenAiMetrics:
    chosen = {word.strip() for word in _value(env, "OTEL_SEMCONV_STABILITY_OPT_IN").split(",")}
    return GENAI_LATEST if "gen_ai_latest_experimental" in chosen else GENAI_1_41


def _resource(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the resource's attributes; instances are told apart by HOSTNAME, a pod's own name."""
    found = {"service.name": "sponson"}
    if host := _value(env, "HOSTNAME"):
        found["service.instance.id"] = host
    for pair in filter(None, (part.strip() for part in _value(env, "OTEL_RESOURCE_ATTRIBUTES").split(","))):
        name, mark, value = pair.partition("=")
        if not mark or not name.strip():
            raise ValueError(f"OTEL_RESOURCE_ATTRIBUTES has {pair!r}: expected name=value, separated by commas")
        found[name.strip()] = unquote(value.strip())
    if service := _value(env, "OTEL_SERVICE_NAME"):
        found["service.name"] = service
    return found


def _timeout(env: Mapping[str, str], signal: str) -> float | None:
    names = (f"{_OTLP}{signal}TIMEOUT", f"{_OTLP}TIMEOUT")
    return None if any(_value(env, name) for name in names) else TIMEOUT_SECONDS


def _check_otlp(env: Mapping[str, str]) -> None:
    for signal in ("", "TRACES_", "METRICS_"):
        _word(env, f"{_OTLP}{signal}PROTOCOL", "http/protobuf", ("http/protobuf",))
        _word(env, f"{_OTLP}{signal}COMPRESSION", "none", ("none", "gzip", "deflate"))
        _positive(env, f"{_OTLP}{signal}TIMEOUT", TIMEOUT_SECONDS)
        _check_url(env, f"{_OTLP}{signal}ENDPOINT")
        _check_headers(env, f"{_OTLP}{signal}HEADERS")
    _word(env, f"{_OTLP}METRICS_TEMPORALITY_PREFERENCE", "cumulative", ("cumulative",))


def _check_url(env: Mapping[str, str], name: str) -> None:
    """The exporter itself would only fail again and again, in a thread of its own."""
    url = _value(env, name)
    if not url:
        return
    if not url.lower().startswith(("http://", "https://")):
        raise ValueError(f"{name} is {_shown(url)}: expected a URL that begins with http:// or https://")
    try:
        parts = urlsplit(url)
        found = bool(parts.hostname) and parts.port != 0
    except ValueError:
        found = False
    if not found:
        raise ValueError(f"{name} is {_shown(url)}: expected a URL with a host, and a port of 1-65535 if any")


def _shown(url: str) -> str:
    """Returns the URL for people, unless it may hold a credential."""
    return "a URL with credentials or parameters" if _CREDENTIALS.intersection(url) else repr(url)


def _check_headers(env: Mapping[str, str], name: str) -> None:
    """The SDK leaves out what it cannot read, and writes it, a credential as a rule, to the log."""
    for number, pair in enumerate(_value(env, name).split(","), 1):
        pair = pair.strip()
        if pair and not (_HEADER.fullmatch(pair) and unquote(pair).isprintable()):
            raise ValueError(f"{name}: entry {number} is not name=value, the value URL-encoded")


def _check_batches(env: Mapping[str, str]) -> None:
    _positive(env, "OTEL_BSP_SCHEDULE_DELAY", 5000)
    largest = _count(env, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)
    if largest > _count(env, _QUEUE_SIZE, 2048):
        raise ValueError(f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE must not be above {_QUEUE_SIZE}")


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    number = _positive(env, name, default)
    if number != int(number):
        raise ValueError(f"{name} is {_value(env, name)!r}: expected a whole number")
    return int(number)
