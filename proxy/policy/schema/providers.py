"""The `providers` section: address, credentials, limits, timeouts and breaker of each model service."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Tag, WithJsonSchema
from pydantic.config import JsonDict

from proxy.decisions.adaptive import AdaptiveSettings
from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.counting import CountSettings
from proxy.decisions.deadline import AnswerPaceSettings, TimeoutSettings
from proxy.decisions.quota import QuotaSettings
from proxy.decisions.room import QueueSettings
from proxy.policy.schema.base import Section, absent, default_of, option, required, section
from proxy.policy.schema.fleet import MODE, Mode
from proxy.policy.schema.hosts import Addresses, HostPort
from proxy.policy.schema.types import (
    MAPPING,
    SCALAR,
    Count,
    Duration,
    HeaderName,
    HeaderText,
    Label,
    Maybe,
    Number,
    PositiveCount,
    PositiveDuration,
    ProviderName,
    Ratio,
    Size,
    Text,
    Url,
    Variable,
    Weight,
    expected,
    mapping_or_scalar,
)
from proxy.policy.snapshot import ConnectionSettings, KeySnapshot, ProviderSnapshot

_TIMEOUTS = TimeoutSettings()
_ANSWER_PACE = AnswerPaceSettings()
_BREAKER = BreakerSettings()
_QUEUE = QueueSettings()
_QUOTA = QuotaSettings()
_COUNT = CountSettings()
_ADAPTIVE = AdaptiveSettings()
_CONNECTIONS = ConnectionSettings()
_ENV_OR_FILE: JsonDict = {"oneOf": [{"required": ["env"]}, {"required": ["file"]}]}


class NamedValue(Section):
    """A value that is named, never written in the policy; exactly one of these."""

    model_config = ConfigDict(json_schema_extra=_ENV_OR_FILE)

    env: Maybe[Variable] = absent("environment variable that has the value")
    file: Maybe[Text] = absent("file that has the value; read again when it changes")


HeaderValue = Annotated[
    Annotated[HeaderText, Tag(SCALAR)] | Annotated[NamedValue, Tag(MAPPING)], Discriminator(mapping_or_scalar)
]


class Key(Section):
    """A credential of a provider, named by env or file; exactly one of these."""

    model_config = ConfigDict(json_schema_extra=_ENV_OR_FILE)

    id: Label = required("name in logs, metrics and /status")
    was: Maybe[Label] = absent("its old id: the key keeps its state")
    env: Maybe[Variable] = absent("environment variable that has the secret")
    file: Maybe[Text] = absent("file that has the secret; read again when it changes")
    weight: Weight = option(default_of(KeySnapshot, "weight"), "its part of the calls, against the others'")
    concurrency: Maybe[Count] = absent("most attempts in flight with it, fleet-wide")
    rpm: Maybe[Number] = absent("requests per minute, fleet-wide")
    tpm: Maybe[Number] = absent("tokens per minute, fleet-wide")


class AuthHeader(Section):
    """A header that carries the bare key."""

    header: HeaderName = required("name of the header")


Auth = Annotated[
    Annotated[Literal["bearer", "x-api-key"], Tag(SCALAR)] | Annotated[AuthHeader, Tag(MAPPING)],
    Discriminator(mapping_or_scalar),
]


def _a_decrease(factor: float) -> float:
    if not 0 < factor < 1:
        raise expected("a number between 0 and 1: the limit is multiplied by it after a refusal")
    return factor


Decrease = Annotated[
    Number,
    AfterValidator(_a_decrease),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
]


class Adaptive(Section):
    """A limit that follows the provider's refusals, under the share."""

    decrease: Decrease = option(_ADAPTIVE.decrease, "factor after a refusal")
    min: PositiveCount = option(_ADAPTIVE.min, "never below this")


class TokenCount(Section):
    """How this provider counts tokens."""

    cached_input: Ratio = option(_COUNT.cached_input, "part of cached input tokens that counts")
    reserve_output: bool = option(_COUNT.reserve_output, "whether the longest possible output is reserved at the start")
    unused_output: Ratio = option(_COUNT.unused_output, "part of allowed output that counts though it was not needed")


class Limits(Section):
    """What the provider grants to the whole fleet; zero means none allowed, absent means no such limit."""

    concurrency: Maybe[Count] = absent("most attempts in flight")
    rpm: Maybe[Number] = absent("requests per minute")
    tpm: Maybe[Number] = absent("tokens per minute")
    headroom: Ratio = option(_QUOTA.headroom, "part of rpm and tpm that is used, also of keys and models")
    burst: PositiveDuration = option(
        Duration(_QUOTA.burst), "bucket size as seconds of rate, at least one request; also of keys and models"
    )
    adaptive: Maybe[Adaptive] = absent("a concurrency limit that follows the provider's refusals")
    count: TokenCount = section(TokenCount, "how this provider counts tokens")


class ModelLimits(Section):
    """Limits of a single model, fleet-wide, under the provider's."""

    concurrency: Maybe[Count] = absent("most attempts in flight")
    rpm: Maybe[Number] = absent("requests per minute")
    tpm: Maybe[Number] = absent("tokens per minute")


class Price(Section):
    """Price per million tokens."""

    input: Number = option(0.0, "per million input tokens")
    output: Number = option(0.0, "per million output tokens")


class Model(Section):
    """A single model of the provider."""

    limits: ModelLimits = section(ModelLimits, "limits of this model, under the provider's")
    context_tokens: Maybe[PositiveCount] = absent("longest input in tokens; a longer one goes to the next tier")
    price: Maybe[Price] = absent("price per million tokens")


class Queue(Section):
    """Who may wait for a permit, per instance; for each call those of its class and of higher ones count."""

    max: Count = option(_QUEUE.max, "most waiters; 0: max(8, 2 × share)")
    bytes: Size = option(Size(_QUEUE.bytes), "most bytes of bodies that wait")


class Connections(Section):
    """Connections per address and instance."""

    max: PositiveCount = option(_CONNECTIONS.max, "most; the limit where no concurrency is given")
    idle: Duration = option(Duration(_CONNECTIONS.idle_seconds), "how long an idle one is kept")
    warm: Count = option(_CONNECTIONS.warm, "how many are kept open and ready")


def _at_least_one(factor: float) -> float:
    if factor < 1:
        raise expected("a number, 1 or more: below the percentile itself the limit would cut off usual answers")
    return factor


Factor = Annotated[Number, AfterValidator(_at_least_one), WithJsonSchema({"type": "number", "minimum": 1})]


class AnswerQuantile(Section):
    """A limit that follows the target's latest answers: factor × 95th percentile + plus.

    The fixed limit (the provider's own, else the default) holds until 50 answers are known, and is never exceeded.
    """

    p95: Factor = required("factor on the 95th percentile of the time to the head, over the last 5 to 10 minutes")
    plus: Duration = option(Duration(_ANSWER_PACE.plus), "added to it")


AnswerLimit = Annotated[
    Annotated[PositiveDuration, Tag(SCALAR)] | Annotated[AnswerQuantile, Tag(MAPPING)],
    Discriminator(mapping_or_scalar),
]


class Timeouts(Section):
    """How long each phase may take. Phase limits start on the wire and never count waiting."""

    connect: PositiveDuration = option(Duration(_TIMEOUTS.connect), "DNS, TCP and TLS")
    queue: Maybe[Duration] = absent("waiting for a permit; 300ms where a later tier exists, else 10s")
    quota_wait: Maybe[Duration] = absent(
        "waiting for quota or a resting key; 300ms where a later tier exists, else 30s"
    )
    first_byte: PositiveDuration = option(Duration(_TIMEOUTS.first_byte), "streams: to the first content")
    answer: AnswerLimit = option(
        Duration(_TIMEOUTS.answer), "other answers: to the head; or {p95: FACTOR, plus: DURATION}"
    )
    idle: PositiveDuration = option(Duration(_TIMEOUTS.idle), "between events or reads")
    stream: PositiveDuration = option(Duration(_TIMEOUTS.stream), "longest stream")


class Window(Section):
    """The results that the breaker looks at."""

    calls: PositiveCount = option(_BREAKER.window_calls, "the last calls")
    time: PositiveDuration = option(Duration(_BREAKER.window_seconds), "none older than this")


class Slow(Section):
    """Streams whose first content comes late count as slow."""

    after: Maybe[PositiveDuration] = absent("slow from here on, below first_byte; 2/3 of it where absent")
    ratio: Ratio = option(_BREAKER.slow_ratio, "opens above this part of slow calls")


class Open(Section):
    """How long an open breaker refuses."""

    first: PositiveDuration = option(Duration(_BREAKER.open_first), "the first time")
    cap: PositiveDuration = option(Duration(_BREAKER.open_cap), "the longest, after failed probes")


class Breaker(Section):
    """When calls to a failing target stop, and when they begin again."""

    scope: Literal["target", "provider"] = option(
        "provider" if _BREAKER.per_provider else "target", "one for each model, or one for the provider"
    )
    failure_ratio: Ratio = option(_BREAKER.failure_ratio, "opens above this part of failures")
    window: Window = section(Window, "the results that count")
    min_calls: PositiveCount = option(_BREAKER.min_calls, "fewest results for a ratio to count")
    consecutive: Count = option(_BREAKER.consecutive, "opens after so many failures in a row; 0: off")
    slow: Slow = section(Slow, "late first content")
    open: Open = section(Open, "how long it stays open")
    probes: PositiveCount = option(_BREAKER.probes, "good calls that close it again")


BreakerOrOff = Annotated[
    Annotated[Literal["off"], Tag(SCALAR)] | Annotated[Breaker, Tag(MAPPING)],
    Discriminator(mapping_or_scalar),
]


class QueueMetric(Section):
    """The provider-side queue, for display and planning."""

    url: Url = required("metrics page of the provider")
    name: Text = required("name of the metric")


class Provider(Section):
    """A model service: address and limits."""

    base_url: Addresses = required("API root, as in SDKs; or a list: several addresses of one service")
    was: Maybe[ProviderName] = absent("its old name: the provider keeps its state")
    mode: Mode = option("enforce", MODE)
    dialect: Literal["openai", "anthropic", "opaque"] = option(
        default_of(ProviderSnapshot, "dialect"), "the shape of its requests and answers"
    )
    hosts: list[HostPort] = option((), "forwarded traffic to these belongs here; base_url's host where absent")
    query: dict[Text, Text] = option({}, "query parameters of every attempt")
    headers: dict[HeaderName, HeaderValue] = option({}, "headers added to every attempt")
    auth: Maybe[Auth] = absent("how a key is sent; bearer, with the anthropic dialect x-api-key")
    idempotency_header: Maybe[HeaderName] = absent("header by which the provider de-duplicates")
    propagate_trace: bool = option(
        default_of(ProviderSnapshot, "propagate_trace"), "whether the provider gets the trace context"
    )
    keys: list[Key] = option((), "credentials; none: the caller's own")
    key_rest: Duration = option(
        Duration(default_of(ProviderSnapshot, "key_rest_seconds")), "rest after a 429 without Retry-After"
    )
    limits: Limits = section(Limits, "what the provider grants to the whole fleet")
    models: dict[Text, Model] = option({}, "single models")
    max_inputs: Maybe[PositiveCount] = absent("most inputs of one call; where absent, what is known of its host")
    queue: Queue = section(Queue, "who may wait for a permit")
    connections: Connections = section(Connections, "connections per address and instance")
    timeouts: Timeouts = section(Timeouts, "how long each phase may take")
    breaker: BreakerOrOff = section(Breaker, "when calls to it stop; or off")
    queue_metric: Maybe[QueueMetric] = absent("the provider-side queue")
