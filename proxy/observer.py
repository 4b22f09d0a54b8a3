"""What can be observed: the Observer port, and the rare events as frozen dataclasses.

An observer cannot change anything. `ended` is called once per exchange with its facts filled; event objects exist only
for rare things. Implemented in the `otel` package; core code knows no OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from proxy.exchange import Exchange
    from proxy.outcome import OutcomeKind, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """A request waited in admission; `lacking` is "permit", "quota" or "key"."""

    provider: str
    seconds: float
    lacking: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A tier was refused locally, before any provider was asked."""

    provider: str
    tier: int
    reason: Reason


class Would(StrEnum):
    """What enforcing would have done to a call that `mode: observe` let go: the closed set of metrics and `/status`.

    How long a wait would have been is an estimate: the calls above a limit stand for the queue before it.
    """

    WAIT = "would_wait"
    """It would have waited for a permit or for quota, and got it in time."""
    QUEUE_FULL = "would_queue_full"
    QUEUE_TIMEOUT = "would_queue_timeout"
    QUOTA_EXHAUSTED = "would_quota_exhausted"
    BREAKER_OPEN = "would_breaker_open"
    TENANT_LIMIT = "would_tenant_limit"
    CONTEXT_TOO_LONG = "would_context_too_long"

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """`mode: observe` let a call go that would have waited or been refused."""

    provider: str
    tier: int
    would: Would


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """Another attempt of the same tier follows after `delay` seconds; `other_key` when only the key changes."""

    provider: str
    tier: int
    after: OutcomeKind
    delay: float
    other_key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack:
    """The next tier is asked."""

    from_tier: int
    to_tier: int
    after: OutcomeKind
    reason: Reason | None


class CacheUse(StrEnum):
    """What part a cache, or an equal call under way, had in an answer: the value of `x-sponson-cache`."""

    HIT = "hit"
    STALE = "stale"
    MISS = "miss"
    SHARED = "shared"
    """An equal call was under way, and its answer is this one's too."""
    REFRESH = "refresh"
    """No caller's call: a stale answer is fetched anew."""

    __hash__ = str.__hash__


class Sharing(StrEnum):
    """How a request got the answer of a call that another one made."""

    JOINED = "joined"
    """That call was still under way."""
    REPLAYED = "replayed"
    """It had ended."""

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A request makes no call of its own: another one has made it, or makes it.

    Another one with its key; or, where `Facts.cache` says so, an equal one. `link`: trace id and span id of that
    request, None where it is not known.
    """

    how: Sharing
    link: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """A request travelled with others, as one call of `callers` requests with `inputs` inputs together.

    `links`: trace id and span id, for the request that carried the call those of all others, for each other one those
    of the carrier. `carries` is True for that one.
    """

    callers: int
    inputs: int
    carries: bool
    links: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A merged call failed, and its `callers` were asked for one by one."""

    callers: int
    after: OutcomeKind


ExchangeEvent = Waited | Refused | Observed | Retried | FellBack | Shared | Merged | Split


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerChanged:
    """A breaker changed its state: "closed", "open" or "half_open"; `why` is a short closed word."""

    provider: str
    model: str
    old: str
    new: str
    why: str
    open_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanged:
    """A key rests (after a 429), is parked (after a 401) or is usable again."""

    provider: str
    key_id: str
    state: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoaded:
    """A policy went live; `warnings` are whole lines with their places."""

    revision: int
    digest: str
    seconds: float
    providers: int = 0
    routes: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRejected:
    """A policy was not taken; the last good one stays. `problems` are whole lines with their places."""

    digest: str
    problems: tuple[str, ...]


ProcessEvent = BreakerChanged | KeyChanged | PolicyLoaded | PolicyRejected


@dataclass(frozen=True, slots=True)
class Reading:
    """One gauge at this moment: a name of the instruments' table, a value, and labels from closed sets."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


GaugeSource = Callable[[], Iterable[Reading]]


class Observer(Protocol):
    """Told what happened, after it happened. Must never raise and never block."""

    def ended(self, exchange: Exchange) -> None:
        """An exchange has ended; its facts are final."""
        ...

    def happened(self, event: ProcessEvent) -> None:
        """Something rare happened to the process as a whole."""
        ...


class Observers:
    """Several observers as one."""

    __slots__ = ("_members",)

    def __init__(self, members: Iterable[Observer]) -> None:
        self._members = tuple(members)

    def ended(self, exchange: Exchange) -> None:
        """Tells every member."""
        for member in self._members:
            member.ended(exchange)

    def happened(self, event: ProcessEvent) -> None:
        """Tells every member."""
        for member in self._members:
            member.happened(event)
