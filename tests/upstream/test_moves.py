from __future__ import annotations

from proxy.upstream.moves import GRACE_SECONDS, Moves

OLD, NEW = "192.0.2.2", "192.0.2.3"


def test_an_address_is_gone_when_its_name_has_not_had_it_for_the_grace() -> None:
    moves = Moves()
    assert list(moves.gone([OLD, NEW], {NEW}, 100.0)) == []
    assert list(moves.gone([OLD, NEW], {NEW}, 99.9 + GRACE_SECONDS)) == []
    assert list(moves.gone([OLD, NEW], {NEW}, 100.0 + GRACE_SECONDS)) == [OLD]


def test_an_address_that_comes_back_in_time_has_not_moved() -> None:
    moves = Moves()
    moves.gone([OLD], {NEW}, 100.0)
    moves.gone([OLD], {OLD}, 110.0)
    assert list(moves.gone([OLD], {NEW}, 100.0 + GRACE_SECONDS)) == []


def test_where_nothing_was_looked_up_nothing_moves() -> None:
    moves = Moves()
    for now in (0.0, 1000.0):
        assert list(moves.gone([OLD], (), now)) == []


def test_it_keeps_nothing_of_addresses_to_which_nothing_leads() -> None:
    moves = Moves()
    for number in range(50):
        moves.gone([f"192.0.2.{number}"], {NEW}, float(number))
    assert len(moves._missing) == 1
