"""A counted limit."""

from __future__ import annotations

from proxy.decisions.places import Places


def test_what_is_taken_stays_taken_when_the_limit_changes() -> None:
    places = Places("provider alpha", 4)
    places.used = 3
    places.reconfigure(1)
    assert (places.used, places.size) == (3, 1)
    assert repr(places) == "<Places provider alpha 3/1>"
