"""Counting: how a provider counts tokens, and what an ended attempt costs (`semantics.md` §4).

Owns the rules by which a reservation is settled, once, whatever way the attempt ended.

| the attempt | its request | its tokens |
|---|---|---|
| never reached the provider | back | back |
| told its usage | stays | as told; a cut stream's output is at least what was seen |
| was refused by the provider | stays | the prompt stays, the output goes back |
| may have been executed (no head, or none that can be read) | stays | all that was reserved stays |
| was answered, whole or in part, without usage | stays | the prompt, and the output that was seen |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from proxy.dialects.demand import Demand
from proxy.exchange import Attempt, Usage
from proxy.outcome import OutcomeKind

MOST_TOKENS = 10_000_000
"""More than any model reads or writes in one call: who reports it has no number at all."""
DOUBT = 2.0
"""What was seen of a cut stream is an estimate; a report that falls short of it by more was made before the rest."""
_UNREAD: Final = frozenset({OutcomeKind.BAD_ANSWER, OutcomeKind.BUG})
_NEVER_ASKED: Final = frozenset(
    {OutcomeKind.REFUSED, OutcomeKind.ANSWERED, OutcomeKind.UNREACHABLE, OutcomeKind.CONNECT_TIMEOUT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSettings:
    """`cached_input`: part (0-1) of cached input tokens that counts.

    `reserve_output`: whether the longest possible output is reserved at the start. `unused_output`: part (0-1) of
    what the caller allowed and the answer did not need that counts all the same.
    """

    cached_input: float = 1.0
    reserve_output: bool = True
    unused_output: float = 0.0


class Guesses(Protocol):
    """What the calls of a model usually take (`decisions/estimates`)."""

    def input_tokens(self, demand: Demand) -> float:
        """Returns how many tokens the prompt has."""
        ...

    def output_tokens(self, demand: Demand) -> float:
        """Returns how many tokens an answer has that nobody could count."""
        ...

    def answer_tokens(self, size: int, *, stream: bool) -> float:
        """Returns how many output tokens these bytes of an answer are."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What an ended attempt costs: `request`: whether it counts as one; `tokens` in all.

    `usage` is what it used, as reported or as estimated; None where the provider did no work.
    """

    request: bool
    tokens: float
    usage: Usage | None = None


FREE: Final = Charge(request=False, tokens=0.0)


def credible(usage: Usage) -> bool:
    """Whether a provider reported this, and it says something: prompts have tokens, and no call has millions."""
    return not usage.estimated and 0 < usage.input <= MOST_TOKENS and usage.output <= MOST_TOKENS


def charge(
    attempt: Attempt,
    *,
    demand: Demand | None,
    estimates: Guesses,
    count: CountSettings,
    reserved: float,
    stream: bool,
) -> Charge:
    """Returns what an ended attempt costs, of which `reserved` tokens were taken before.

    `demand` is None where the body was not understood; `stream`: whether an event stream was asked for.
    """
    if not _reached(attempt):
        return FREE
    usage = attempt.usage
    if usage is not None and not 0 < max(usage.input, usage.output) <= MOST_TOKENS:
        usage = None
    prompt = reserved if demand is None else min(estimates.input_tokens(demand), reserved)
    if usage is None:
        if attempt.status >= 400:
            return Charge(request=True, tokens=prompt + _unused(demand, 0, count))
        if not attempt.head_at or attempt.kind in _UNREAD:
            return Charge(request=True, tokens=reserved, usage=_estimated(prompt, reserved - prompt))
    seen = 0.0 if usage is not None and not stream else _seen(attempt, demand, estimates, stream=stream)
    used = _used(attempt, usage, prompt, seen)
    cached = used.cached_input * (1.0 - count.cached_input)
    tokens = used.input - cached + used.output + _unused(demand, used.output, count)
    return Charge(request=True, tokens=tokens, usage=used)


def _reached(attempt: Attempt) -> bool:
    """Whether the provider may have read the request.

    A 408 on a reused connection, which ends as disconnected, was sent by a server that was closing it.
    """
    if not attempt.sent_bytes or attempt.kind in _NEVER_ASKED:
        return False
    return not (attempt.kind is OutcomeKind.DISCONNECTED and attempt.status)


def _used(attempt: Attempt, usage: Usage | None, prompt: float, seen: float) -> Usage:
    """Returns what was reported, completed where it is missing or where the answer went on after the report."""
    if usage is None:
        return _estimated(prompt, seen)
    final = attempt.kind is OutcomeKind.OK or usage.output * DOUBT >= seen
    if usage.input and final and usage.cached_input <= usage.input:
        return usage
    given = usage.input or round(prompt)
    output = usage.output if final else round(seen)
    return Usage(given, output, min(usage.cached_input, given), estimated=not (usage.input and final))


def _seen(attempt: Attempt, demand: Demand | None, estimates: Guesses, *, stream: bool) -> float:
    """Returns the output tokens that an answer without a report shows.

    One that is no stream is generated before its head is sent: cut off, it says little of its length.
    """
    if demand is None or (not stream and attempt.kind is OutcomeKind.ERROR_IN_ANSWER):
        return 0.0
    seen = estimates.answer_tokens(attempt.answer_bytes, stream=stream)
    if not stream and attempt.kind is not OutcomeKind.OK:
        seen = max(seen, estimates.output_tokens(demand))
    limit = demand.output_limit
    return seen if limit is None else min(seen, limit)


def _unused(demand: Demand | None, output: float, count: CountSettings) -> float:
    if not count.unused_output or demand is None:
        return 0.0
    return count.unused_output * max((demand.output_limit or 0) - output, 0)


def _estimated(given: float, output: float) -> Usage:
    return Usage(round(given), round(output), estimated=True)
