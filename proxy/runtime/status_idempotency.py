"""What `/status` shows of keyed requests: counts and bytes, never a key."""

from __future__ import annotations

from typing import Any

from proxy.decisions.answers import Answers
from proxy.runtime.kept_state import KeptState
from proxy.stages.idempotency import KeyedCalls


def idempotency_status(kept: KeptState, now: float) -> dict[str, Any]:
    """Returns what runs, what is remembered (`unknown`: may have been executed), and how often a key came again."""
    calls = next((calls for _, calls, _ in kept.all(KeyedCalls)), KeyedCalls())
    answers = next((answers for _, answers, _ in kept.all(Answers)), Answers())
    answers.expire(now)
    known = answers.statistics()
    return {
        "running": len(calls.flights),
        "keys": known.names,
        "answers": known.answers,
        "unknown": known.unknown,
        "bytes": known.bytes,
        "max": known.most_bytes,
        "joined": calls.joined,
        "replayed": calls.replayed,
        "conflicts": calls.conflicts,
    }
