"""Understanding a policy in a child process (`policy/compile.py`), so that requests and memory do not notice it."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from proxy.policy.problem import PolicyError, Problem
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes

LIMIT_SECONDS = 60.0
CHILD = (sys.executable, "-P", "-c", "import gc; gc.disable(); from proxy.policy.compile import main; main()")

_log = logging.getLogger("sponson.policy")


class CompilerFailed(Exception):
    """The child did not do its work; nothing is said of the policy, so it is worth another try."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the process that checks policies {how}; try `sponson check` by hand")


class PolicyCompiler:
    """Turns bytes into a snapshot. Blocking: call it in a thread."""

    __slots__ = ("_command", "_environ", "_instance_index", "_limit_seconds", "_warm")

    def __init__(
        self,
        *,
        instance_index: int | None = None,
        command: Sequence[str] = CHILD,
        environ: Mapping[str, str] | None = None,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._command = command
        self._limit_seconds = limit_seconds
        self._environ = _finding_this_package(environ) if environ is not None else None
        self._instance_index = instance_index
        self._warm: subprocess.Popen[bytes] | None = None

    def warm_up(self) -> None:
        """Starts a child that waits for its policy: it can import while we do."""
        try:
            self._warm = self._start()
        except OSError:
            self._warm = None

    def __call__(self, data: PolicyBytes) -> PolicySnapshot:
        """Returns the snapshot of a policy. Raises `PolicyError`, `CompilerFailed`."""
        child, self._warm = self._warm, None
        try:
            child = child or self._start()
        except OSError as error:
            _log.warning("cannot start a process to check the policy (%s); it is checked in this one", error)
            return _here(data, self._instance_index)
        question = pickle.dumps((data, self._instance_index), pickle.HIGHEST_PROTOCOL)
        answer = _ask(child, question, seconds=self._limit_seconds)
        if isinstance(answer, PolicySnapshot):
            return answer
        raise PolicyError(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        # Its own session: a Ctrl-C at the terminal is for the proxy, which ends its child by closing the pipe.
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
        )


def _finding_this_package(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which the child finds this very package, whatever the working directory holds."""
    home = str(Path(__file__).resolve().parents[2])
    path = environ.get("PYTHONPATH", "")
    return {**environ, "PYTHONPATH": f"{home}{os.pathsep}{path}" if path else home}


def _ask(child: subprocess.Popen[bytes], question: bytes, *, seconds: float) -> PolicySnapshot | tuple[Problem, ...]:
    try:
        output, _ = child.communicate(question, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        child.kill()
        child.communicate()
        raise CompilerFailed(f"took longer than {seconds:g} s") from late
    if child.returncode != 0:
        raise CompilerFailed(f"ended with {child.returncode}")
    answer: PolicySnapshot | tuple[Problem, ...] = pickle.loads(output)
    return answer


def _here(data: PolicyBytes, instance_index: int | None) -> PolicySnapshot:
    from proxy.policy.load import load_policy

    return load_policy(data, instance_index=instance_index)
