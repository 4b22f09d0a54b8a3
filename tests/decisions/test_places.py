"""A counted limit."""

from __future__ import annotations

from proxy.decisions.places import Places


def test_what_is_taken_stays_taken_when_the_limit_changes() -> None:
    places = Places("provider alpha", 4)
    places.used = 3
    places.reconfigure(1)
    assert (places.used, places.size) == (3, 1)
    assert repr(places) == "<Places provider alpha 3/1>"


def reserves(places: Places) -> dict[str, tuple[int, int]]:
    return {one.group: (one.used, one.size) for one in places.reserves}


def test_what_is_kept_is_a_part_of_the_size_whatever_that_becomes() -> None:
    places = Places("provider alpha", 10)
    places.reserve([("P0", 0.29), ("lane", 0.5)])
    assert (reserves(places), places.common) == ({"P0": (0, 2), "lane": (0, 5)}, 3)
    places.reconfigure(3)
    assert (reserves(places), places.common) == ({"lane": (0, 1)}, 2)
    places.reconfigure(100)
    assert (reserves(places), places.common) == ({"P0": (0, 29), "lane": (0, 50)}, 21)


def test_who_is_in_a_reserve_stays_counted_there_until_it_leaves() -> None:
    places = Places("provider alpha", 4)
    places.reserve([("lane", 0.5)])
    held = places.take(["lane"])
    places.reserve([])
    assert (reserves(places), places.left([])) == ({"lane": (1, 0)}, 3)
    places.reserve([("lane", 0.5)])
    assert (reserves(places), places.left([])) == ({"lane": (1, 2)}, 2)
    assert held is not None
    held.used -= 1
    places.used -= 1
    places.reserve([])
    assert (places.reserves, places.common) == ((), 4)


def test_a_group_that_is_renamed_takes_its_reserve_along() -> None:
    places = Places("provider alpha", 4)
    places.reserve([("lane old", 0.5)])
    places.take(["lane old"])
    was = {"lane new": "lane old"}
    for _ in range(2):
        places.reserve([("lane new", 0.5)], was=was)
        assert reserves(places) == {"lane new": (1, 2)}
    places.reserve([("lane new", 0.25), ("lane old", 0.25)], was=was)
    assert reserves(places) == {"lane new": (1, 1), "lane old": (0, 1)}


def test_a_group_whose_name_somebody_else_bears_now_begins_anew() -> None:
    places = Places("provider alpha", 4)
    places.reserve([("lane old", 0.5)])
    places.take(["lane old"])
    places.reserve([("lane new", 0.25), ("lane old", 0.5)], was={"lane new": "lane old"})
    assert reserves(places) == {"lane new": (0, 1), "lane old": (1, 2)}


def test_what_a_group_has_left_and_may_ever_have() -> None:
    places = Places("provider alpha", 5)
    places.reserve([("P0", 0.2), ("lane", 0.4)])
    assert [places.most(groups) for groups in ((), ["lane"], ["P0", "lane"])] == [2, 4, 5]
    for _ in range(3):
        places.take([])
    assert [places.left(groups) for groups in ((), ["lane"], ["P0", "lane"])] == [-1, 1, 2]
    assert [places.free(groups) for groups in ((), ["lane"])] == [False, True]
