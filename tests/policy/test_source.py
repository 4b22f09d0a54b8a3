from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from proxy.policy.problem import PolicyUnreadable
from proxy.policy.source import LARGEST_POLICY, PolicyBytes, read_policy
from tests.freed import uncollected


def write(folder: Path, **texts: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


def swap(mount: Path, version: str, **texts: str) -> None:
    """Mounts a version as kubelet does: a new folder, then the link `..data` is moved to it."""
    mount.mkdir(exist_ok=True)
    write(mount / f"..{version}", **texts)
    for name in texts:
        if not (mount / f"{name}.yaml").is_symlink():
            (mount / f"{name}.yaml").symlink_to(f"..data/{name}.yaml")
    (mount / "..data_tmp").symlink_to(f"..{version}")
    old = os.path.realpath(mount / "..data")
    os.replace(mount / "..data_tmp", mount / "..data")
    if old != str(mount / "..data"):
        for file in Path(old).iterdir():
            file.unlink()
        os.rmdir(old)


def test_a_file_keeps_its_own_name(tmp_path: Path) -> None:
    write(tmp_path, p="version: 1\n")
    assert read_policy(tmp_path / "p.yaml").files == (("p.yaml", b"version: 1\n"),)


def test_a_directory_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path, b="b", a="a")
    (tmp_path / "c.yml").write_text("c")
    assert read_policy(tmp_path).files == (("a.yaml", b"a"), ("b.yaml", b"b"), ("c.yml", b"c"))


def test_hidden_and_other_entries_are_not_policy(tmp_path: Path) -> None:
    write(tmp_path, a="a")
    write(tmp_path / "folder.yaml", x="x")
    (tmp_path / ".hidden.yaml").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    assert [name for name, _ in read_policy(tmp_path).files] == ["a.yaml"]


def test_a_swapped_mount_is_read_as_file_and_as_directory(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    swap(mount, "one", a="1", b="1")
    swap(mount, "two", a="2", b="2")
    assert read_policy(mount).files == (("a.yaml", b"2"), ("b.yaml", b"2"))
    assert read_policy(mount / "a.yaml").files == (("a.yaml", b"2"),)


def test_a_swap_never_mixes_two_versions(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    swap(mount, "0", a="0", b="0")
    done = threading.Event()

    def keep_swapping() -> None:
        for version in range(1, 200):
            swap(mount, str(version), a=str(version), b=str(version))
        done.set()

    thread = threading.Thread(target=keep_swapping)
    thread.start()
    try:
        reads = 0
        while not done.is_set() or reads == 0:
            (_, a), (_, b) = read_policy(mount).files
            assert a == b
            reads += 1
    finally:
        thread.join()


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(PolicyUnreadable, match="no such file or directory") as caught:
        read_policy(tmp_path / "nope.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'nope.yaml'}:1:1: policy: cannot be read")


def test_a_broken_link_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").symlink_to("gone")
    with pytest.raises(PolicyUnreadable, match=r"p\.yaml:1:1: .*no such file"):
        read_policy(tmp_path)


def test_a_directory_without_policy_files(tmp_path: Path) -> None:
    with pytest.raises(PolicyUnreadable, match="has no policy files"):
        read_policy(tmp_path)


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_bytes(b"#" * (LARGEST_POLICY + 1000))
    ((_, content),) = read_policy(tmp_path / "p.yaml").files
    assert len(content) == LARGEST_POLICY + 1


def test_the_digest_tells_policies_apart() -> None:
    policies = [
        (("a", b"1"), ("b", b"2")),
        (("a", b"12"), ("b", b"")),
        (("a", b"1"), ("c", b"2")),
        (("a", b"1"),),
        (),
    ]
    digests = [PolicyBytes(files=files).digest for files in policies]
    assert len(set(digests)) == len(policies)
    assert all(len(digest) == 64 for digest in digests)
    assert PolicyBytes(files=policies[0]).digest == digests[0]


def test_what_cannot_be_read_leaves_nothing_to_the_collector(tmp_path: Path) -> None:
    with uncollected(PolicyUnreadable) as alive:
        for _ in range(3):
            with suppress(PolicyUnreadable):
                read_policy(tmp_path / "none.yaml")
        assert alive() == 0
