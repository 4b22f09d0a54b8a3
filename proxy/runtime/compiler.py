"""Understanding a policy in a child process (`policy/compile.py`), so that requests and memory do not notice it."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from collections.abc import Sequence

from proxy.policy.problem import PolicyError, Problem
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes

LIMIT_SECONDS = 60.0
CHILD = (sys.executable, "-m", "proxy.policy.compile")

_log = logging.getLogger("sponson.policy")


class PolicyCompiler:
    """Turns bytes into a snapshot. Blocking: call it in a thread."""

    __slots__ = ("_command", "_instance_index", "_warm")

    def __init__(self, *, instance_index: int | None = None, command: Sequence[str] = CHILD) -> None:
        self._command = command
        self._instance_index = instance_index
        self._warm: subprocess.Popen[bytes] | None = None

    def warm_up(self) -> None:
        """Starts a child that waits for its policy: it can import while we do."""
        try:
            self._warm = _start(self._command)
        except OSError:
            self._warm = None

    def __call__(self, data: PolicyBytes) -> PolicySnapshot:
        """Returns the snapshot of a policy. Raises `PolicyError`."""
        child, self._warm = self._warm, None
        try:
            child = child or _start(self._command)
        except OSError as error:
            _log.warning("cannot start a process to check the policy (%s); it is checked in this one", error)
            return _here(data, self._instance_index)
        answer = _ask(child, pickle.dumps((data, self._instance_index), pickle.HIGHEST_PROTOCOL))
        if isinstance(answer, PolicySnapshot):
            return answer
        raise PolicyError(answer)


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _ask(child: subprocess.Popen[bytes], question: bytes) -> PolicySnapshot | tuple[Problem, ...]:
    try:
        with child:
            output, _ = child.communicate(question, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return _failed(f"took longer than {LIMIT_SECONDS:.0f} s")
    if child.returncode != 0:
        return _failed(f"ended with {child.returncode}")
    answer: PolicySnapshot | tuple[Problem, ...] = pickle.loads(output)
    return answer


def _failed(how: str) -> tuple[Problem, ...]:
    message = f"the process that checks policies {how}; try `sponson check` by hand"
    return (Problem(file="policy", line=1, column=1, path="", message=message),)


def _here(data: PolicyBytes, instance_index: int | None) -> PolicySnapshot:
    from proxy.policy.load import load_policy

    return load_policy(data, instance_index=instance_index)
