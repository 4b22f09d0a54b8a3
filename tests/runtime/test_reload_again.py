"""Looking again: at what could not be checked, and, when somebody asks for it, at what was rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.runtime.compiler import CompilerFailed
from proxy.runtime.reload import BETWEEN_RELOADS_SECONDS
from tests.runtime.desk import BAD, Desk, text
from tests.runtime.places import moved_in
from tests.runtime.test_reload_following import run, stop, until


@pytest.fixture
def desk(desk: Desk) -> Desk:
    desk.parsed = 0
    return desk


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_policy_that_could_not_be_checked_is_tried_again_at_the_next_look(desk: Desk, failures: int) -> None:
    desk.compiler_failures = [CompilerFailed("ended with -9") for _ in range(failures)]
    moved_in(desk.path, text(2))
    for number in range(failures):
        await desk.check()
        assert (desk.parsed, desk.limits) == (number + 1, [1])
    assert "ended with -9; try `sponson check`" in desk.keeper.state.problems[0]
    assert len(desk.rejections) == 1, "the same again is no news"
    await desk.check()
    assert (desk.limits, desk.keeper.state.problems) == ([1, 2], ())


async def test_a_policy_that_could_not_be_checked_and_is_bad_is_rejected_for_what_it_is(desk: Desk) -> None:
    desk.compiler_failures = [CompilerFailed("ended with -9")]
    moved_in(desk.path, BAD)
    for _ in range(4):
        await desk.check()
    assert desk.parsed == 2
    assert "concurrency" in desk.keeper.state.problems[0]


async def test_a_rejected_policy_is_not_looked_at_again_by_itself(desk: Desk) -> None:
    moved_in(desk.path, BAD)
    for _ in range(4):
        await desk.check()
    assert (desk.parsed, len(desk.rejections)) == (1, 1)


async def test_who_asks_has_a_rejected_policy_looked_at_again(desk: Desk) -> None:
    desk.fails = True
    moved_in(desk.path, text(2))
    for _ in range(3):
        await desk.check()
    assert (desk.parsed, desk.limits, bool(desk.keeper.state.problems)) == (1, [1], True)
    desk.fails = False
    desk.keeper.ask()
    await desk.check()
    assert (desk.parsed, desk.limits, desk.keeper.state.problems) == (2, [1, 2], ())


async def test_who_asks_while_all_is_well_causes_no_reload(desk: Desk) -> None:
    desk.keeper.ask()
    await desk.check()
    assert (desk.parsed, desk.limits) == (0, [1])


async def test_the_signal_wakes_a_keeper_that_follows(desk: Desk) -> None:
    desk.fails = True
    task = await run(desk)
    moved_in(desk.path, text(2))
    await until(lambda: bool(desk.rejections))
    desk.fails = False
    desk.keeper.ask()
    await until(lambda: desk.clock.next_due is not None)
    desk.clock.advance(BETWEEN_RELOADS_SECONDS)
    await until(lambda: desk.limits == [1, 2])
    await stop(task)


async def test_a_first_policy_that_could_not_be_checked_is_fatal_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(text(1))
    desk = Desk(tmp_path / "policy.yaml")
    desk.compiler_failures = [CompilerFailed("took longer than 60 s")]
    with pytest.raises(CompilerFailed, match="took longer than 60 s"):
        await desk.keeper.first()
