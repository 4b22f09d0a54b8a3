"""Failing answers, read whole and held back: what the caller gets if nothing better comes (`semantics.md` §6)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from proxy.body import Body, BodyBroken
from proxy.dialects.errors import blames_key, delay_in, quota_is_spent
from proxy.dialects.retry_after import retry_after_seconds
from proxy.outcome import Outcome, OutcomeKind, kind_of_status
from proxy.upstream.answer import AnswerHead
from proxy.upstream.meter import parsed

KEPT_BYTES: Final = 65536
KEPT_SECONDS: Final = 1.0

KEPT_KINDS: Final = frozenset({OutcomeKind.RATE_LIMITED, OutcomeKind.CREDENTIAL_REJECTED, OutcomeKind.UPSTREAM_ERROR})
_HINTS: Final = {"true": True, "false": False}


async def read_bounded(payload: Body) -> tuple[bytes, bool]:
    """Reads a failing answer's body, 64 KiB and one second at most; returns it and whether it is whole."""
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(KEPT_SECONDS):
            while size <= KEPT_BYTES and (piece := await payload.readany()):
                pieces.append(piece)
                size += len(piece)
    except (TimeoutError, BodyBroken):
        return b"".join(pieces), False
    return b"".join(pieces), payload.at_eof()


def judge(message: AnswerHead, body: bytes, *, wall_seconds: float) -> Outcome:
    """Makes the outcome of a failing answer: its kind, whose key is at fault, and when to come again."""
    fields = message.headers
    document: Any = parsed(body)
    status = message.code
    kind = kind_of_status(status)
    after = retry_after_seconds(
        fields,
        wall_seconds=wall_seconds,
        in_body=delay_in(document),
        limited=kind is OutcomeKind.RATE_LIMITED,
    )
    fault = blames_key(status, document) if kind is OutcomeKind.CREDENTIAL_REJECTED else False
    if kind is OutcomeKind.RATE_LIMITED and quota_is_spent(document):
        fault = True
    return Outcome(
        kind,
        status=status,
        retry_after=after,
        should_retry=hint(fields),
        key_fault=fault,
    )


def hint(fields: Mapping[str, str]) -> bool | None:
    """Returns the provider's own word on retrying (`x-should-retry`), None where it gave none."""
    return _HINTS.get(fields.get("x-should-retry", "").strip().lower())
