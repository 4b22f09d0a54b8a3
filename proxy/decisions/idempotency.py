"""Idempotency: which requests are the same, and what the end of one means for those that repeat it.

Sources: `semantics.md` §5 (last bullets) and §6a. A key holds within its scope: route, tenant and, where the caller's
own credential goes along, that credential; nobody reads what another one was answered. Names and marks are digests: no
key's value is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final
from urllib.parse import quote

from proxy.exchange import Attempt
from proxy.fields import Fields
from proxy.outcome import Outcome, OutcomeKind
from proxy.ports import Fate
from proxy.request import Request

NAME_BYTES: Final = 20
NO_MARK: Final = b""
"""Of a request whose body is passed on unread: it is the same as no other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencySettings:
    """`headers` (lower case) make the key together; `all_required`: one that is missing is a bad request.

    `keep`: seconds that an answer is kept.
    """

    headers: tuple[str, ...] = ("idempotency-key",)
    all_required: bool = False
    keep: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoKey:
    """The headers make no key; `detail` says what is wrong with them."""

    detail: str


def read_key(headers: Sequence[str], fields: Fields) -> str | NoKey:
    """Returns the key: the one header's value as it came, or several ones joined so that no two lists look alike."""
    missing = [name for name in headers if name not in fields.shape.first]
    if missing:
        return NoKey(detail=f"this route asks for {' and '.join(headers)}; missing: {', '.join(missing)}")
    for name in headers:
        if name in fields.repeated:
            return NoKey(detail=f"{name} stands there more than once; it is a part of the request's key")
        if not fields[name]:
            return NoKey(detail=f"{name} is empty; it is a part of the request's key")
    if len(headers) == 1:
        return fields[headers[0]]
    return ":".join(quote(fields[name].encode("utf-8", "surrogateescape"), safe="") for name in headers)


def name_of(parts: Iterable[bytes]) -> bytes:
    """Returns the digest of several parts; other parts, or the same ones cut in another way, give another one."""
    digest = blake2b(digest_size=NAME_BYTES)
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def credential_of(fields: Fields, names: Iterable[str]) -> Iterable[bytes]:
    """Yields the credential that a caller brings, header by header."""
    for name in names:
        if name in fields.shape.first:
            yield name.encode("latin-1")
            yield "\n".join(fields.getall(name)).encode("utf-8", "surrogateescape")


def mark_of(request: Request) -> bytes:
    """Returns what the same request has in common: method, path with query, and body."""
    if request.body is None:
        return NO_MARK
    return name_of((request.method.encode(), request.target.encode("utf-8", "surrogateescape"), request.body))


_CUT: Final = frozenset({OutcomeKind.CLIENT_LEFT, OutcomeKind.DRAINED, OutcomeKind.BUG})
"""Ends that say nothing of the call itself."""
_SAID: Final = frozenset(
    {
        OutcomeKind.CALLER_ERROR,
        OutcomeKind.RATE_LIMITED,
        OutcomeKind.CREDENTIAL_REJECTED,
        OutcomeKind.UPSTREAM_ERROR,
        OutcomeKind.REFUSED,
        OutcomeKind.ANSWERED,
    }
)
"""Ends in which somebody says that it was not done, whether that has reached the caller or not."""


def fate_of(outcome: Outcome, *, repeatable: bool, sent: bool) -> Fate | None:
    """Returns what is to be remembered of a keyed request; None: nothing, the key is free again.

    `repeatable`: it may be executed twice. `sent`: it was on its way when it was cut off.
    """
    if outcome.kind is OutcomeKind.OK:
        return Fate.ANSWERED
    if repeatable:
        return None
    if outcome.maybe_executed or (outcome.kind in _CUT and sent):
        return Fate.UNKNOWN
    if outcome.committed and outcome.kind not in _SAID:
        return Fate.UNKNOWN
    return None


def was_sent(attempts: Iterable[Attempt]) -> bool:
    """Whether a provider has got bytes of a request and did not say that it failed."""
    return any(attempt.sent_bytes and attempt.status < 400 for attempt in attempts)


class Conflict(StrEnum):
    """Why a request that repeats a key is refused; the text is for people."""

    OTHER_REQUEST = (
        "this idempotency key belongs to another request: method, path, query or body differ; take a new key for a "
        "new operation"
    )
    UNREAD = (
        "this idempotency key is in use, and bodies of this kind are passed on unread, so that two of them cannot be "
        "compared; it is not executed again"
    )
    UNKNOWN = (
        "the first request with this idempotency key may have been executed, and its answer is not known; find out "
        "what it did before you try with a new key"
    )
    TOO_LARGE = (
        "the first request with this idempotency key was executed, and its answer is too large to be given twice; it "
        "is not executed again"
    )
    DROPPED = (
        "the first request with this idempotency key was executed, and its answer is not kept any more; it is not "
        "executed again"
    )


CONFLICTS: Final = {Fate.UNKNOWN: Conflict.UNKNOWN, Fate.TOO_LARGE: Conflict.TOO_LARGE, Fate.DROPPED: Conflict.DROPPED}
