from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.downstream.connections import BACKLOG
from proxy.runtime.machine import (
    FEW_FILES,
    FEW_WAITING,
    FEWEST_CONNECTIONS,
    FEWEST_FILES,
    OWN_FILES,
    most_connections,
    most_waiting,
    shortages,
)


@given(st.integers(FEWEST_FILES, 1 << 20))
def test_every_client_that_may_come_can_have_a_call(files: int) -> None:
    most = most_connections(files)
    assert most >= FEWEST_CONNECTIONS
    assert OWN_FILES + 2 * most <= files
    assert most_connections(files + 1) >= most


@pytest.mark.parametrize(("text", "waiting"), [("128\n", 128), ("4096", 4096), ("", BACKLOG), ("many", BACKLOG)])
def test_what_the_system_lets_wait_is_read(tmp_path: Path, text: str, waiting: int) -> None:
    path = tmp_path / "somaxconn"
    path.write_text(text)
    assert most_waiting(path) == waiting


def test_a_system_that_says_nothing_lets_the_backlog_wait(tmp_path: Path) -> None:
    assert most_waiting(tmp_path / "nothing") == BACKLOG


@pytest.mark.parametrize(
    ("files", "waiting", "words"),
    [
        (FEW_FILES, FEW_WAITING, []),
        (FEW_FILES - 1, FEW_WAITING, ["ulimit -n"]),
        (FEW_FILES, FEW_WAITING - 1, ["net.core.somaxconn"]),
        (100, 100, ["at most 26 clients", "only 100 new connections"]),
    ],
)
def test_tight_limits_are_told_with_their_cure(files: int, waiting: int, words: list[str]) -> None:
    said = list(shortages(files, waiting))
    assert len(said) == len(words)
    assert all(word in line for word, line in zip(words, said, strict=True))
