"""What is counted of saved work: what caches answered, calls and tokens that nobody had to pay for, merged calls.

Owns what counts as saved. A call is saved when a request is answered well and made none of its own. Its tokens are
those that another call has spent: they are never among the tokens used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel import attributes as a
from proxy.observer import CacheUse, Merged, Shared, Split
from proxy.outcome import OutcomeKind

if TYPE_CHECKING:
    from otel.instruments import Instruments
    from proxy.exchange import Facts, Usage

MERGED: Final = "merged"
"""`sponson.how` of those that a merged call was carried for; others have the words of `CacheUse` and `Sharing`."""
_GIVEN: Final = frozenset({CacheUse.HIT, CacheUse.STALE, CacheUse.SHARED})


class SavedWork:
    """Counts in `instruments`, request by request."""

    __slots__ = ("_callers", "_inputs", "_refreshes", "_requests", "_saved_calls", "_saved_tokens", "_splits")

    def __init__(self, instruments: Instruments) -> None:
        self._requests = instruments.number(a.CACHE_REQUESTS)
        self._refreshes = instruments.number(a.CACHE_REFRESHES)
        self._saved_calls = instruments.number(a.SAVED_CALLS)
        self._saved_tokens = instruments.number(a.SAVED_TOKENS)
        self._callers = instruments.histogram(a.MERGE_CALLERS)
        self._inputs = instruments.histogram(a.MERGE_INPUTS)
        self._splits = instruments.number(a.MERGE_SPLITS)

    def count(self, facts: Facts) -> None:
        """Counts a request in which a cache took part, or that has events."""
        if facts.events:
            self._count_merging(facts)
        if facts.cache is CacheUse.REFRESH:
            self._refreshes.at(facts.route, facts.kind or a.UNKNOWN).value += 1
            return
        if facts.cache is not None:
            self._requests.at(facts.route, facts.cache).value += 1
        how = how_answered(facts)
        if not how:
            return
        if facts.kind is OutcomeKind.OK and not facts.attempts:
            self._saved_calls.at(facts.route, how).value += 1
        if facts.saved is not None:
            self._count_tokens(facts.route, how, facts.saved)

    def _count_tokens(self, route: str, how: str, saved: Usage) -> None:
        mark = "true" if saved.estimated else "false"
        self._saved_tokens.at(route, how, "input", mark).value += saved.input
        self._saved_tokens.at(route, how, "output", mark).value += saved.output

    def _count_merging(self, facts: Facts) -> None:
        for _, event in facts.events:
            match event:
                case Merged(carries=True):
                    self._callers.at(facts.route).record(event.callers)
                    self._inputs.at(facts.route).record(event.inputs)
                case Split():
                    self._splits.at(facts.route, event.after).value += 1


def how_answered(facts: Facts) -> str:
    """Returns how a request got the answer of a call that it did not make, "" for none such."""
    if facts.cache in _GIVEN:
        return facts.cache or ""
    for _, event in facts.events:
        match event:
            case Shared():
                return event.how
            case Merged(carries=False):
                return MERGED
    return ""
