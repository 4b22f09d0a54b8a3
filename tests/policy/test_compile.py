"""The child process that understands policies, as a process."""

from __future__ import annotations

import pickle
import subprocess
import sys

from proxy.policy.problem import Problem
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes

CHILD = [sys.executable, "-m", "proxy.policy.compile"]
GOOD = b"version: 1\nproviders: {a: {base_url: 'http://127.0.0.1:1/v1', limits: {concurrency: 10}}}\n"


def ask(content: bytes, index: int | None = None) -> object:
    question = pickle.dumps((PolicyBytes(files=(("p.yaml", content),)), index))
    answer = subprocess.run(CHILD, input=question, capture_output=True, check=True, timeout=30)
    assert answer.stderr == b""
    return pickle.loads(answer.stdout)


def test_a_good_policy_comes_back_as_a_snapshot() -> None:
    snapshot = ask(GOOD, index=3)
    assert isinstance(snapshot, PolicySnapshot)
    assert [provider.name for provider in snapshot.providers] == ["a"]
    assert snapshot.fleet.index == 3


def test_problems_come_back_with_their_places() -> None:
    problems = ask(b"version: 1\nproviders: {a: {base_ulr: x}}\n")
    assert isinstance(problems, tuple)
    assert all(isinstance(problem, Problem) and problem.file == "p.yaml" for problem in problems)
    assert any("base_url" in str(problem) for problem in problems)


def test_a_child_that_is_asked_nothing_ends_quietly() -> None:
    ended = subprocess.run(CHILD, input=b"", capture_output=True, check=False, timeout=30)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
