"""Deadlines: how long each phase may take, and what the exchange has left (`policy.md` rule 6)."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.exchange import PhaseLimits

QUEUE_WITH_NEXT_TIER = 0.3
QUEUE_LAST_TIER = 10.0
QUOTA_WAIT_WITH_NEXT_TIER = 0.3
QUOTA_WAIT_LAST_TIER = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPaceSettings:
    """`answer: {p95, plus}`: the limit is `factor` × the live 95th percentile of the target + `plus` seconds."""

    factor: float = 1.5
    plus: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutSettings:
    """`timeouts`: seconds. `queue` and `quota_wait` None: 0.3 where a later tier exists, else 10 and 30.

    With `answer_pace` the limit to the head follows the answers measured; `answer` holds until there are enough of
    them, and is the most that it can be.
    """

    connect: float = 5.0
    queue: float | None = None
    quota_wait: float | None = None
    first_byte: float = 30.0
    answer: float = 600.0
    answer_pace: AnswerPaceSettings | None = None
    idle: float = 30.0
    stream: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLimits:
    """Seconds that one tier may wait in admission: for a permit, and for a key or quota."""

    queue: float
    quota_wait: float


def phase_limits(
    timeouts: TimeoutSettings, *, first_byte: float | None, answer: float | None, idle: float | None
) -> PhaseLimits:
    """Returns a tier's limits: its own, else (None) the provider's."""
    return PhaseLimits(
        connect=timeouts.connect,
        first_byte=_first(first_byte, timeouts.first_byte),
        answer=_first(answer, timeouts.answer),
        idle=_first(idle, timeouts.idle),
        stream=timeouts.stream,
    )


def answer_pace(
    timeouts: TimeoutSettings, *, answer: float | None, pace: AnswerPaceSettings | None
) -> AnswerPaceSettings | None:
    """Returns what a tier's answer limit follows: its own pace; nothing beside a fixed limit of its own; the rest."""
    return pace if pace is not None or answer is not None else timeouts.answer_pace


def wait_limits(
    timeouts: TimeoutSettings, *, queue: float | None, quota_wait: float | None, later_tier: bool
) -> WaitLimits:
    """Returns a tier's waiting limits: its own, else the provider's, else the default for its place."""
    return WaitLimits(
        queue=_first(queue, timeouts.queue, QUEUE_WITH_NEXT_TIER if later_tier else QUEUE_LAST_TIER),
        quota_wait=_first(
            quota_wait, timeouts.quota_wait, QUOTA_WAIT_WITH_NEXT_TIER if later_tier else QUOTA_WAIT_LAST_TIER
        ),
    )


def deadline_at(arrived_at: float, total: float, waits: float) -> float:
    """Returns when an exchange must have committed: arrival + `total` + what its tiers allow for waiting."""
    return arrived_at + total + waits


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
