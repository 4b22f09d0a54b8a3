"""The pace of reloads: at most one a second, the newest content wins, and a write in place must have settled."""

from __future__ import annotations

import pytest

from proxy.runtime.reload import BETWEEN_RELOADS_SECONDS, SETTLE_SECONDS
from tests.runtime.desk import BAD, TORN_BLOCK, Desk, text
from tests.runtime.places import moved_in
from tests.runtime.test_reload import append, write


async def test_the_newest_of_what_comes_within_a_second_is_taken_at_its_end(desk: Desk) -> None:
    moved_in(desk.path, text(2))
    await desk.check()
    moved_in(desk.path, text(3))
    assert await desk.check(between=iter([lambda: moved_in(desk.path, text(4))])) == BETWEEN_RELOADS_SECONDS
    assert desk.limits == [1, 2, 4]


async def test_a_write_in_place_settles_while_the_second_of_the_last_reload_goes_by(desk: Desk) -> None:
    moved_in(desk.path, text(2))
    await desk.check()
    desk.path.write_text(text(3))
    assert await desk.check() == pytest.approx(BETWEEN_RELOADS_SECONDS)
    assert desk.limits == [1, 2, 3]


async def test_a_write_in_place_at_the_end_of_the_second_is_waited_for(desk: Desk) -> None:
    moved_in(desk.path, text(2))
    await desk.check()
    moved_in(desk.path, text(3))
    steps = iter([lambda: write(desk.path, TORN_BLOCK + "4"), lambda: append(desk.path, "000\n")])
    assert await desk.check(between=steps) == pytest.approx(BETWEEN_RELOADS_SECONDS + 2 * SETTLE_SECONDS)
    assert desk.limits == [1, 2, 4000]


async def test_bad_policies_are_looked_at_once_a_second_too(desk: Desk) -> None:
    moved_in(desk.path, BAD)
    assert await desk.check() == 0.0
    moved_in(desk.path, BAD + "# again\n")
    assert await desk.check() == BETWEEN_RELOADS_SECONDS
    assert (desk.parsed, len(desk.rejections)) == (3, 2)
    desk.clock.advance(BETWEEN_RELOADS_SECONDS)
    moved_in(desk.path, text(2))
    assert await desk.check() == 0.0
    assert desk.limits == [1, 2]


# Halves.


async def test_the_same_half_written_twice_is_waited_for_twice(desk: Desk) -> None:
    desk.path.write_text(TORN_BLOCK + "2")
    await desk.check(between=iter([lambda: write(desk.path, text(1))]))
    desk.clock.advance(10.0)
    desk.path.write_text(TORN_BLOCK + "2")
    await desk.check(between=iter([lambda: append(desk.path, "000\n")]))
    assert desk.limits == [1, 2000]


async def test_half_a_policy_that_is_missing_for_a_moment_is_waited_for_again(desk: Desk) -> None:
    desk.path.write_text(TORN_BLOCK + "2")
    await desk.check(between=iter([desk.path.unlink]))
    assert desk.keeper.state.problems
    desk.clock.advance(10.0)
    desk.path.write_text(TORN_BLOCK + "2")
    await desk.check(between=iter([lambda: append(desk.path, "000\n")]))
    assert desk.limits == [1, 2000]
