"""What of a route saves calls: answers that are given again, and requests that travel together."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, WithJsonSchema

from proxy.decisions.cacheability import CacheSettings
from proxy.decisions.merging import MergeSettings
from proxy.policy.schema.base import Section, absent, default_of, option, required
from proxy.policy.schema.providers import NamedValue
from proxy.policy.schema.types import (
    HOST,
    MAPPING,
    SCALAR,
    Duration,
    Maybe,
    PositiveCount,
    PositiveDuration,
    Size,
    Text,
    expected,
    mapping_or_scalar,
)

_MERGE = MergeSettings()

REDIS_PORT = 6379
LONGEST_WINDOW = 1.0
"""Seconds: the first of several requests waits as long, and no call is worth more; `5s` is a slip for `5ms`."""
THE_QUESTION = frozenset({"model", "messages", "input", "prompt", "stream"})
"""Fields of a body that no two equal requests can differ in."""

Scope = Literal["tenant", "route", "credential"]


def split_redis(value: str) -> SplitResult | None:
    """Returns the parts of the address of a Redis or Valkey server, None for anything else."""
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("redis", "rediss") and HOST.fullmatch(parts.hostname or "") and parts.port != 0
    except ValueError:
        return None
    database = parts.path.removeprefix("/")
    return parts if usable and (not database or (database.isdecimal() and len(database) <= 5)) else None


def _redis(value: object) -> str:
    address = "an address such as redis://host:6379/0 or rediss://host:6379/0"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise expected(address)
    if "@" in value:
        raise expected("an address without credentials: name the password beside it, by env or file")
    if "?" in value or "#" in value:
        raise expected("an address without ? and #")
    if split_redis(value) is None:
        raise expected(address)
    return value


RedisUrl = Annotated[
    str,
    BeforeValidator(_redis),
    WithJsonSchema({"type": "string", "pattern": "^rediss?://[^/?#@ ]+(/[0-9]*)?$"}),
]


def _named(value: object) -> object:
    if not isinstance(value, dict):
        raise expected("{env: NAME} or {file: PATH}: a secret is named, never written here")
    return value


class RedisStore(Section):
    """A Redis or Valkey server that keeps answers; while it cannot be reached, nothing is found."""

    redis: RedisUrl = required("its address, without credentials: redis://host:6379/0, or rediss:// for TLS")
    username: Maybe[Text] = absent("user of the server; its default one where absent")
    password: Maybe[Annotated[NamedValue, BeforeValidator(_named)]] = absent("password, named by env or file")


def _memory(value: object) -> object:
    if value != "memory":
        raise expected("memory or {redis: ADDRESS}")
    return value


Store = Annotated[
    Annotated[Literal["memory"], BeforeValidator(_memory), Tag(SCALAR)] | Annotated[RedisStore, Tag(MAPPING)],
    Discriminator(mapping_or_scalar),
]


def _no_question(name: str) -> str:
    if name in THE_QUESTION:
        raise expected("a field that changes no answer: the question itself is never ignored")
    return name


class Cache(Section):
    """Answers that may be given again."""

    ttl: PositiveDuration = required("how long an answer is fresh")
    stale_while_revalidate: Duration = option(
        Duration(default_of(CacheSettings, "stale_while_revalidate")),
        "how long after that an old one is given at once, while a new one is fetched",
    )
    scope: Scope = option(default_of(CacheSettings, "scope"), "who shares answers")
    normalize: list[Literal["space", "case"]] = option((), "differences in texts that do not count")
    ignore: list[Annotated[Text, AfterValidator(_no_question)]] = option(
        (), "fields of the body that change nothing in an answer"
    )
    max_bytes: Size = option(Size(default_of(CacheSettings, "max_bytes")), "most memory, where they are kept there")
    store: Store = option("memory", "where they are kept: memory, or {redis: ADDRESS}")


def _short(window: Duration) -> Duration:
    if window > LONGEST_WINDOW:
        raise expected("a duration of at most 1s, such as 5ms: the first of several requests waits so long")
    return window


class Merge(Section):
    """Requests that travel together."""

    window: Annotated[PositiveDuration, AfterValidator(_short)] = option(
        Duration(_MERGE.window), "longest wait of the first one for others, at most 1s"
    )
    max: PositiveCount = option(_MERGE.max, "most inputs in one call")
    inputs: Maybe[Text] = absent("field of the request that has the inputs, where the path is not a known one")
    results: Maybe[Text] = absent("field of the answer that has the results, where the path is not a known one")
    scope: Scope = option(_MERGE.scope, "whose requests may travel together")
