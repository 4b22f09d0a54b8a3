"""Whether what stands at the policy's place is whole: swapped or moved in it is, being written it may not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.runtime.settling import came_whole, mounted_alone, standing
from tests.runtime.places import mounted, moved_in


def test_a_rename_over_the_file_came_whole(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("old")
    old = standing(file)
    moved_in(file, "new")
    assert came_whole(old, standing(file))


@pytest.mark.parametrize("whole", [True, False])
def test_a_new_file_in_a_directory_came_whole_only_when_it_was_moved_in(tmp_path: Path, whole: bool) -> None:
    (tmp_path / "a.yaml").write_text("old")
    old = standing(tmp_path)
    if whole:
        moved_in(tmp_path / "b.yaml", "new")
    else:
        (tmp_path / "b.yaml").write_text("being written")
    assert came_whole(old, standing(tmp_path)) is whole


def test_a_file_that_was_removed_and_is_written_again_may_not_be_whole(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("old")
    old = standing(file)
    other = tmp_path / "keeps-the-inode"
    file.rename(other)
    file.write_text("ne")
    assert old != standing(file)
    assert not came_whole(old, standing(file))


def test_a_write_in_place_shows_nothing_new(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("old")
    old = standing(file)
    file.write_text("new")
    assert old == standing(file)
    assert not came_whole(old, standing(file))


@pytest.mark.parametrize("inside", ["", "policy.yaml"])
def test_a_swap_of_a_mounted_directory_came_whole_however_young_its_files_are(tmp_path: Path, inside: str) -> None:
    mounted(tmp_path, "v1", "old")
    old = standing(tmp_path / inside)
    mounted(tmp_path, "v2", "new")
    assert came_whole(old, standing(tmp_path / inside))


def test_what_another_link_leads_to_may_still_be_written(tmp_path: Path) -> None:
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "policy.yaml").write_text("ne")
    place = tmp_path / "conf"
    place.symlink_to("v1")
    old = standing(place)
    place.unlink()
    place.symlink_to("v2")
    assert not came_whole(old, standing(place))
    moved_in(tmp_path / "v2" / "policy.yaml", "new")
    assert came_whole(old, standing(place))


def test_a_file_that_is_written_as_soon_as_it_replaced_a_mount_may_not_be_whole(tmp_path: Path) -> None:
    mounted(tmp_path, "v1", "old")
    old = standing(tmp_path)
    moved_in(tmp_path / "policy.yaml", "old")
    (tmp_path / "..data").unlink()
    assert came_whole(old, standing(tmp_path))
    (tmp_path / "policy.yaml").write_text("ne")
    assert not came_whole(old, standing(tmp_path))


def test_a_file_that_only_left_is_no_arrival(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("x")
    old = standing(tmp_path)
    (tmp_path / "b.yaml").unlink()
    assert not came_whole(old, standing(tmp_path))


def test_what_is_not_there_stands_nowhere(tmp_path: Path) -> None:
    assert standing(tmp_path / "none") is None
    assert not came_whole(None, standing(tmp_path))
    assert not came_whole(standing(tmp_path), None)


def test_a_file_that_is_a_mount_of_its_own_is_named(tmp_path: Path) -> None:
    for name in ("a b.yaml", "c.yaml"):
        (tmp_path / name).write_text("x")
    mounts = tmp_path / ".mountinfo"
    line = "310 299 254:1 /pods/volumes {} ro,relatime - ext4 /dev/vda1 rw\n"
    mounts.write_text(line.format(tmp_path) + line.format(f"{tmp_path}/a\\040b.yaml") + "\n")
    assert mounted_alone(standing(tmp_path), mounts) == [f"{tmp_path}/a b.yaml"]
    assert mounted_alone(standing(tmp_path / "a b.yaml"), mounts) == [f"{tmp_path}/a b.yaml"]
    assert mounted_alone(standing(tmp_path / "c.yaml"), mounts) == []


def test_where_mounts_cannot_be_told_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("x")
    assert mounted_alone(standing(tmp_path), tmp_path / "none") == []
    assert mounted_alone(None) == []
    assert mounted_alone(standing(tmp_path)) == []
