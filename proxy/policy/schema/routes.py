"""The `routes` section: which requests, which tiers, and how often they are tried."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema

from proxy.decisions.idempotency import IdempotencySettings
from proxy.decisions.retry import RetrySettings
from proxy.policy.schema.base import Section, absent, default_of, option, required, section
from proxy.policy.schema.fleet import MODE, ClassName, Mode
from proxy.policy.schema.providers import AnswerLimit
from proxy.policy.schema.saved import Cache, Merge
from proxy.policy.schema.types import (
    LIST,
    SCALAR,
    Duration,
    HeaderName,
    Json,
    Label,
    Maybe,
    Number,
    PositiveCount,
    PositiveDuration,
    Ratio,
    Size,
    Status,
    Text,
    Weight,
    expected,
    list_or_scalar,
)
from proxy.policy.snapshot import AnswerTier as AnswerTierSnapshot
from proxy.policy.snapshot import RouteSnapshot
from proxy.policy.snapshot import SpreadTier as SpreadTierSnapshot

_RETRY = RetrySettings()
_IDEMPOTENCY = IdempotencySettings()

Patterns = Annotated[
    Annotated[Text, Tag(SCALAR)] | Annotated[Annotated[list[Text], Field(min_length=1)], Tag(LIST)],
    Discriminator(list_or_scalar),
]


class Match(Section):
    """Which requests; each pattern is shell-style, or a list of which one must match."""

    path: Maybe[Patterns] = absent("the caller's raw path without query; * crosses /")
    model: Maybe[Patterns] = absent("the model that the caller asks for")
    header: dict[HeaderName, Patterns] = option({}, "values of headers, all of them")


class TierLimits(Section):
    """What a tier may set for itself."""

    queue: Maybe[Duration] = absent("waiting for a permit")
    quota_wait: Maybe[Duration] = absent("waiting for quota or a resting key")
    first_byte: Maybe[PositiveDuration] = absent("streams: to the first content")
    answer: Maybe[AnswerLimit] = absent("other answers: to the head")
    idle: Maybe[PositiveDuration] = absent("between events or reads")


class ProviderTier(TierLimits):
    """Ask a provider."""

    provider: Text = required("name of the provider")
    model: Maybe[Text] = absent("model to ask for; the caller's where absent")
    set: dict[Text, Json] = option({}, "fields of the request's body that are replaced")


class SpreadMember(Section):
    """One of several equals."""

    provider: Text = required("name of the provider")
    model: Maybe[Text] = absent("model to ask for; the caller's where absent")
    weight: Maybe[Weight] = absent("its part of the calls by weight, against the others'; 1 where absent")


class SpreadTier(TierLimits):
    """Ask one of several equals; when it cannot go or fails, the next of them."""

    spread: Annotated[list[SpreadMember], Field(min_length=1)] = required("the equals, two at least")
    by: Literal["remaining", "weight"] = option(
        default_of(SpreadTierSnapshot, "by"), "by what is left of their limits and quotas, or by weight"
    )


class StaleCache(Section):
    """An old answer from the cache."""

    max_age: PositiveDuration = required("age of the oldest answer that may be given")


class StaleCacheTier(Section):
    """Answer from the cache when all tiers before have failed."""

    stale_cache: StaleCache = required("an old answer from the cache")


class Later(Section):
    """A job to poll."""

    keep: PositiveDuration = required("how long the job's answer is kept")


class LaterTier(Section):
    """Answer 202 with a job to poll."""

    later: Later = required("a job to poll")


class Answer(Section):
    """An answer without asking anybody."""

    status: Status = option(default_of(AnswerTierSnapshot, "status"), "status of the answer")
    json_: Json = option({}, "its body", alias="json")


class AnswerTier(Section):
    """Answer without asking anybody."""

    answer: Answer = required("the answer")


def _tier_kind(value: object) -> str:
    names = value if isinstance(value, dict) else {}
    if "provider" in names:
        return "<provider>"
    kinds = ("spread", "stale_cache", "later", "answer")
    # A provider tier may have `answer` too, as a duration.
    fits = [kind for kind in kinds if kind in names and (kind != "answer" or _is_answer(names))]
    return f"<{fits[0]}>" if fits else "<provider>"


def _is_answer(names: dict[str, object]) -> bool:
    return not isinstance(names["answer"], str) and "model" not in names


Tier = Annotated[
    Annotated[ProviderTier, Tag("<provider>")]
    | Annotated[SpreadTier, Tag("<spread>")]
    | Annotated[StaleCacheTier, Tag("<stale_cache>")]
    | Annotated[LaterTier, Tag("<later>")]
    | Annotated[AnswerTier, Tag("<answer>")],
    Discriminator(_tier_kind),
]


class Retry(Section):
    """Calls per tier, and the pauses between them."""

    attempts: PositiveCount = option(_RETRY.attempts, "calls per tier, the first included")
    base: Duration = option(Duration(_RETRY.base), "first pause; doubles each time")
    cap: Duration = option(Duration(_RETRY.cap), "longest pause")
    budget: Ratio = option(_RETRY.budget, "retries as a part of all calls; 10 in 10s always")


class Body(Section):
    """The caller's body."""

    max: Size = option(Size(default_of(RouteSnapshot, "body_max")), "largest request")
    replay: Size = option(
        Size(default_of(RouteSnapshot, "body_replay")), "how much is kept in memory for another attempt"
    )


class Idempotency(Section):
    """Which requests are the same; from a header, or from several together."""

    header: HeaderName = option(_IDEMPOTENCY.headers[0], "header that has the key")
    from_: Maybe[Annotated[list[HeaderName], Field(min_length=1)]] = absent(
        "headers that make the key together; all of them, or 400", alias="from"
    )
    keep: PositiveDuration = option(Duration(_IDEMPOTENCY.keep), "how long an answer is kept")


def _a_part(share: float) -> float:
    if not 0 < share < 1:
        raise expected("a number between 0 and 1: longer answers need a part, too")
    return share


LaneShare = Annotated[
    Number,
    AfterValidator(_a_part),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
]


class Lane(Section):
    """A part of the share only for short answers."""

    max_output: PositiveCount = required("longest answer in tokens")
    share: LaneShare = required("part of the share that no longer answer may use")


class Route(Section):
    """Which requests, which tiers."""

    name: Label = required("name in logs, metrics and /status")
    was: Maybe[Label] = absent("its old name: the route keeps its state")
    mode: Mode = option("enforce", MODE)
    match: Match = section(Match, "which requests; any where absent")
    class_: ClassName = option(default_of(RouteSnapshot, "klass"), "priority of its calls", alias="class")
    class_from_header: bool = option(
        default_of(RouteSnapshot, "class_from_header"),
        "true: the caller's x-sponson-class may also raise the class, unless its tenant has one; else only lower",
    )
    tiers: Annotated[list[Tier], Field(min_length=1)] = required("whom to ask, in this order")
    total: PositiveDuration = option(
        Duration(default_of(RouteSnapshot, "total_seconds")), "longest time to the answer, waiting apart"
    )
    retry: Retry = section(Retry, "calls per tier, and the pauses between them")
    body: Body = section(Body, "the caller's body")
    repeatable: Maybe[bool] = absent(
        "whether a call may be sent again when it may have run; true for inference calls, GET and HEAD"
    )
    idempotency: Idempotency = section(Idempotency, "which requests are the same")
    lanes: list[Lane] = option((), "parts of the share only for short answers")
    cache: Maybe[Cache] = absent("answers that may be given again")
    single_flight: Maybe[bool] = absent("equal calls at the same time become one; true where cache is on")
    merge: Maybe[Merge] = absent("requests that travel together")
    dead_letter: bool = option(False, "whether calls that failed are kept")
