"""Hot reload over a real directory: only whole policies go live, the last good one stays, and what is wrong is seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.observer import PolicyLoaded
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError, PolicyUnreadable
from proxy.policy.source import PolicyBytes
from proxy.runtime.reload import BETWEEN_RELOADS_SECONDS, SETTLE_SECONDS
from tests.freed import freed, uncollected
from tests.runtime.desk import BAD, TORN_BLOCK, Desk, text, with_key
from tests.runtime.places import mounted, moved_in

# At start.


def test_the_first_policy_goes_live_as_revision_one(desk: Desk) -> None:
    state = desk.keeper.state
    assert desk.limits == [1]
    assert (state.revision, state.problems, state.rejected) == (1, (), 0)
    assert state.digest == state.seen_digest != ""
    assert desk.observer.events == [
        PolicyLoaded(revision=1, digest=state.digest, seconds=0.0, providers=1, routes=0, warnings=state.warnings)
    ]


@pytest.mark.parametrize("content", ["", "version: 2\n", BAD, "a: [", "\x00"])
async def test_a_bad_policy_is_fatal_at_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "policy.yaml").write_text(content)
    with pytest.raises(PolicyError):
        await Desk(tmp_path).keeper.first()


async def test_no_policy_is_fatal_at_start(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.yaml"):
        with pytest.raises(PolicyUnreadable):
            await Desk(path).keeper.first()


async def test_a_missing_secret_is_fatal_at_start(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(with_key(tmp_path / "none"))
    with pytest.raises(PolicyError):
        await Desk(tmp_path).keeper.first()


# How a new policy comes.


async def test_a_rename_acts_at_once(desk: Desk) -> None:
    moved_in(desk.path, text(2))
    assert await desk.check() == 0.0
    assert desk.limits == [1, 2]
    assert desk.keeper.state.revision == 2


@pytest.mark.parametrize("inside", ["", "policy.yaml"])
async def test_a_swap_as_kubelet_makes_it_acts_at_once(tmp_path: Path, inside: str) -> None:
    mounted(tmp_path, "v1", text(1))
    desk = Desk(tmp_path / inside)
    await desk.keeper.first()
    for version in (2, 3):
        desk.clock.advance(BETWEEN_RELOADS_SECONDS)
        mounted(tmp_path, f"v{version}", text(version))
        assert await desk.check() == 0.0
    assert desk.limits == [1, 2, 3]


async def test_a_write_in_place_acts_when_two_reads_are_equal(desk: Desk) -> None:
    desk.path.write_text(text(2))
    assert await desk.check() == pytest.approx(SETTLE_SECONDS)
    assert desk.limits == [1, 2]


async def test_a_slow_writer_is_waited_for_and_no_part_of_its_policy_goes_live(desk: Desk) -> None:
    parts = [TORN_BLOCK, "1", "00", "0\n"]
    steps = iter([lambda: write(desk.path, "".join(parts[:2])), *(lambda p=p: append(desk.path, p) for p in parts[2:])])
    desk.path.write_text(parts[0])
    assert await desk.check(between=steps) == pytest.approx(4 * SETTLE_SECONDS)
    assert desk.limits == [1, 1000]


async def test_a_torn_rewrite_of_a_removed_file_is_waited_for_too(desk: Desk) -> None:
    desk.path.rename(desk.path.parent / "old.backup")
    desk.path.write_text(TORN_BLOCK + "2")
    steps = iter([lambda: append(desk.path, "000\n")])
    await desk.check(between=steps)
    assert desk.limits == [1, 2000]


async def test_a_swap_in_the_middle_of_a_slow_write_is_taken_whole(desk: Desk) -> None:
    desk.path.write_text(TORN_BLOCK + "2")
    await desk.check(between=iter([lambda: moved_in(desk.path, text(7))]))
    assert desk.limits == [1, 7]


async def test_a_second_file_of_a_directory_is_merged(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text(1))
    desk = Desk(tmp_path)
    await desk.keeper.first()
    moved_in(tmp_path / "b.yaml", "limits: {concurrency: 9}\n")
    await desk.check()
    assert desk.live[-1].concurrency == 9


async def test_equal_bytes_are_no_reload(desk: Desk) -> None:
    moved_in(desk.path, text(1))
    await desk.check()
    desk.path.write_text(text(1))
    await desk.check()
    assert desk.limits == [1]
    assert desk.keeper.state.revision == 1


async def test_a_write_that_ends_where_it_began_is_no_reload(desk: Desk) -> None:
    desk.path.write_text("version: 1\n")
    await desk.check(between=iter([lambda: write(desk.path, text(1))]))
    assert (desk.limits, desk.rejections) == ([1], [])


# What bad input gets.


def emptied(path: Path) -> None:
    path.write_text("")


def deleted(path: Path) -> None:
    path.unlink()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def a_directory_without_policies(path: Path) -> None:
    path.unlink()
    path.mkdir()


def not_utf8(path: Path) -> None:
    path.write_bytes(b"version: 1 # \xff\xfe\n")


def broken_yaml(path: Path) -> None:
    path.write_text("providers: [")


def invalid(path: Path) -> None:
    path.write_text(BAD)


def too_large(path: Path) -> None:
    path.write_text(text(2) + "#" * (2 << 20))


def a_pipe_that_nobody_writes_to(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_device_without_end(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


ODD = [a_directory_without_policies, a_pipe_that_nobody_writes_to, a_device_without_end]
SPOILERS = [emptied, deleted, dangling, *ODD, not_utf8, broken_yaml, invalid, too_large]


@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
async def test_what_is_bad_keeps_the_last_good_one_is_seen_once_and_a_good_one_after_it_applies(
    desk: Desk, spoil: Callable[[Path], None]
) -> None:
    state, good = desk.keeper.state, desk.keeper.state.digest
    spoil(desk.path)
    for _ in range(3):
        await desk.check()
    assert desk.limits == [1]
    assert (state.revision, state.digest, state.rejected) == (1, good, 1)
    named = (str(desk.path.parent), desk.path.name, "/dev/zero")
    assert any(name in state.problems[0] for name in named)
    (rejection,) = desk.rejections
    assert rejection.problems == state.problems
    if desk.path.is_dir():
        desk.path.rmdir()
    moved_in(desk.path, text(2))
    await desk.check()
    assert desk.limits == [1, 2]
    assert (state.revision, state.problems) == (2, ())


async def test_a_policy_that_stays_away_leaves_nothing_to_the_collector(desk: Desk) -> None:
    deleted(desk.path)
    with uncollected(PolicyUnreadable) as alive:
        for _ in range(3):
            await desk.check()
        await freed(alive)


async def test_all_problems_are_shown_with_their_places(desk: Desk) -> None:
    desk.path.write_text("version: 1\nproviders: {a: {base_url: 'http://h/v1', x: 1, limits: {concurrency: -1}}}\n")
    await desk.check()
    problems = desk.keeper.state.problems
    assert len(problems) == 2
    assert all(problem.startswith("policy.yaml:2:") for problem in problems)


async def test_the_same_good_policy_after_a_bad_one_needs_no_reload(desk: Desk) -> None:
    desk.path.write_text(BAD)
    await desk.check()
    assert desk.keeper.state.seen_digest != desk.keeper.state.digest
    moved_in(desk.path, text(1))
    await desk.check()
    state = desk.keeper.state
    assert (desk.limits, state.revision, state.problems) == ([1], 1, ())
    assert state.seen_digest == state.digest


async def test_a_directory_that_comes_back_bad_shows_its_problems_again(desk: Desk) -> None:
    desk.path.write_text(BAD)
    await desk.check()
    problems = desk.keeper.state.problems
    desk.path.rename(desk.path.with_suffix(".gone"))
    await desk.check()
    assert desk.keeper.state.problems != problems
    desk.path.with_suffix(".gone").rename(desk.path)
    await desk.check()
    assert desk.keeper.state.problems == problems


async def test_a_directory_that_comes_back_good_clears_the_problem(desk: Desk) -> None:
    desk.path.rename(desk.path.with_suffix(".gone"))
    await desk.check()
    assert desk.keeper.state.problems
    desk.path.with_suffix(".gone").rename(desk.path)
    await desk.check()
    assert (desk.keeper.state.problems, desk.limits) == ((), [1])


async def test_an_assembly_that_fails_keeps_the_last_policy_is_seen_and_ends_nothing(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.fails = True
    moved_in(desk.path, text(2))
    await desk.check()
    state = desk.keeper.state
    assert (desk.limits, state.revision, state.rejected) == ([1], 1, 1)
    assert "LookupError" in state.problems[0]
    assert "a bug in assembly" in caplog.text
    desk.fails = False
    moved_in(desk.path, text(3))
    await desk.check()
    assert (desk.limits, state.problems) == ([1, 3], ())


def write(path: Path, content: str) -> None:
    path.write_text(content)


def append(path: Path, content: str) -> None:
    with path.open("a") as file:
        file.write(content)


def test_the_torn_sample_is_a_valid_policy_with_another_limit() -> None:
    torn = load_policy(PolicyBytes(files=(("p.yaml", (TORN_BLOCK + "1").encode()),)))
    assert torn.providers[0].concurrency == 1
