"""Idempotency: by which key requests are the same, and how long their answer is kept (`semantics.md` §6a)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotencySettings:
    """`headers` (lower case) make the key together; `all_required`: one that is missing is a bad request.

    `keep`: seconds that an answer is kept.
    """

    headers: tuple[str, ...] = ("idempotency-key",)
    all_required: bool = False
    keep: float = 600.0
