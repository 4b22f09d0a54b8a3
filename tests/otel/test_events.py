"""Events of merged calls, and links to other requests."""

from __future__ import annotations

from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import Link

from otel.events import MOST_LINKS, links_of, span_event
from proxy.observer import ExchangeEvent, Merged, Shared, Sharing, Split, Waited
from proxy.outcome import OutcomeKind


def ids(link: Link) -> tuple[int, int]:
    return link.context.trace_id, link.context.span_id


def test_events_that_concern_nobody_else_link_to_nobody() -> None:
    waited = Waited(provider="alpha", seconds=0.1, lacking="permit")
    assert links_of([(1.0, waited), (1.0, Shared(how=Sharing.REPLAYED))]) == ()


def test_who_carries_a_merged_call_links_to_all_others_and_they_to_it() -> None:
    carrier = links_of([(1.0, Merged(callers=3, inputs=5, carries=True, links=((1, 2), (3, 4))))])
    assert [ids(link) for link in carrier] == [(1, 2), (3, 4)]
    assert [dict(link.attributes or {}) for link in carrier] == [{"sponson.carries": False}] * 2
    (other,) = links_of([(1.0, Merged(callers=3, inputs=5, carries=False, links=((5, 6),)))])
    assert ids(other) == (5, 6)
    assert dict(other.attributes or {}) == {"sponson.carries": True}


def test_a_request_that_shares_and_is_merged_links_to_both() -> None:
    events: list[tuple[float, ExchangeEvent]] = [
        (1.0, Shared(how=Sharing.JOINED, link=(1, 2))),
        (2.0, Merged(callers=2, inputs=2, carries=False, links=((3, 4),))),
    ]
    assert [ids(link) for link in links_of(events)] == [(1, 2), (3, 4)]


def test_links_are_bounded_and_it_is_told_how_many_are_missing() -> None:
    several = tuple((n, n) for n in range(1, 2049))
    links = links_of([(1.0, Merged(callers=2049, inputs=2049, carries=True, links=several))])
    assert isinstance(links, BoundedList)
    assert (len(links), links.dropped) == (MOST_LINKS, 2048 - MOST_LINKS)


def test_how_large_a_merged_call_was_and_that_it_was_split() -> None:
    merged = span_event(Merged(callers=3, inputs=5, carries=True), 7)
    assert (merged.name, merged.timestamp) == ("sponson.merged", 7)
    assert dict(merged.attributes or {}) == {"sponson.callers": 3, "sponson.inputs": 5, "sponson.carries": True}
    split = span_event(Split(callers=3, after=OutcomeKind.CALLER_ERROR), 7)
    assert split.name == "sponson.split"
    assert dict(split.attributes or {}) == {"sponson.callers": 3, "sponson.outcome": "caller_error"}
