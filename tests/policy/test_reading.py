from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.policy.problem import PolicyUnreadable
from proxy.policy.reading import NOT_REGULAR, read_bounded
from proxy.policy.secret_sources import SecretProblem, read_value
from proxy.policy.snapshot import ValueSource
from proxy.policy.source import read_policy


def pipe(place: Path) -> None:
    os.mkfifo(place)


def endless(place: Path) -> None:
    place.symlink_to("/dev/zero")


def listener(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as here:
        here.bind(str(place))


def test_a_longer_file_is_read_so_far_that_this_can_be_seen(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"twelve bytes")
    assert read_bounded(str(place), 12) == b"twelve bytes"
    assert read_bounded(str(place), 5) == b"twelve"


@pytest.mark.parametrize("kind", [pipe, endless, listener])
def test_what_could_never_begin_or_never_end_is_not_read(tmp_path: Path, kind: Callable[[Path], None]) -> None:
    place = tmp_path / "odd.yaml"
    kind(place)
    with pytest.raises(OSError, match=NOT_REGULAR):
        read_bounded(str(place), 9)
    for policy in (place, tmp_path):
        with pytest.raises(PolicyUnreadable, match=rf":1:1: policy: cannot be read: {NOT_REGULAR}$"):
            read_policy(policy)
    with pytest.raises(SecretProblem, match=rf"odd\.yaml cannot be read: {NOT_REGULAR}$"):
        read_value(ValueSource(file=str(place)), {})


def test_a_directory_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(SecretProblem, match="cannot be read: is a directory"):
        read_value(ValueSource(file=str(tmp_path)), {})
