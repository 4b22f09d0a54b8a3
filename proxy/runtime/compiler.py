"""Understanding a policy in a child process (`policy/compile.py`), so that requests and memory do not notice it."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from proxy.policy.problem import PolicyError, Problem
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import PolicyBytes

LIMIT_SECONDS = 60.0
TRIES = 3
"""So many children may be lost in a row before a policy is checked in this process."""
ENDED_FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})
CHILD = (sys.executable, "-S", "-P", "-c", "import gc; gc.disable(); from proxy.policy.compile import main; main()")

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})

_log = logging.getLogger("sponson.policy")


class CompilerFailed(Exception):
    """The child did not do its work; nothing is said of the policy, so it is worth another try."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the process that checks policies {how}; try `sponson check` by hand")


class _ChildLost(CompilerFailed):
    """The child was ended from outside or could not run: for nothing that stands in the policy."""


class PolicyCompiler:
    """Turns bytes into a snapshot. Blocking: call it in a thread."""

    __slots__ = ("_command", "_environ", "_instance_index", "_limit_seconds", "_lost", "_warm")

    def __init__(
        self,
        *,
        instance_index: int | None = None,
        command: Sequence[str] = CHILD,
        environ: Mapping[str, str] = NO_ENVIRONMENT,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._command = command
        self._limit_seconds = limit_seconds
        self._environ = _finding_this_package(environ)
        self._instance_index = instance_index
        self._warm: subprocess.Popen[bytes] | None = None
        self._lost = 0

    def warm_up(self) -> None:
        """Starts a child that waits for its policy: it can import while we do."""
        try:
            self._warm = self._start()
        except OSError:
            self._warm = None

    def __call__(self, data: PolicyBytes) -> PolicySnapshot:
        """Returns the snapshot of a policy. Raises `PolicyError`, `CompilerFailed`.

        Where no child can live, the policy is checked in this process; never one that its child crashed or hung on.
        """
        try:
            answer = self._asked(data)
        except OSError as error:
            _log.warning("cannot start a process to check the policy (%s); it is checked in this one", error)
            return _here(data, self._instance_index)
        except _ChildLost as error:
            self._lost += 1
            if self._lost < TRIES:
                raise
            _log.warning("%s; after %d tries it is checked in this one", error, self._lost)
            return _here(data, self._instance_index)
        self._lost = 0
        if isinstance(answer, PolicySnapshot):
            return answer
        raise PolicyError(answer)

    def _asked(self, data: PolicyBytes) -> PolicySnapshot | tuple[Problem, ...]:
        child, self._warm = self._warm, None
        question = pickle.dumps((data, self._instance_index), pickle.HIGHEST_PROTOCOL)
        return _ask(child or self._start(), question, seconds=self._limit_seconds)

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
    """Returns an environment in which the child finds this very package, whatever the working directory holds.

    It starts without `site`: where packages are it is told; and pydantic looks for no plugins.
    """
    home = str(Path(__file__).resolve().parents[2])
    packages = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    given = environ.get("PYTHONPATH", "")
    path = os.pathsep.join(filter(None, (home, given, *packages)))
    return {**environ, "PYTHONPATH": path, "PYDANTIC_DISABLE_PLUGINS": "__all__"}


def _ask(child: subprocess.Popen[bytes], question: bytes, *, seconds: float) -> PolicySnapshot | tuple[Problem, ...]:
    try:
        output, _ = child.communicate(question, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        child.kill()
        child.communicate()
        raise CompilerFailed(f"took longer than {seconds:g} s") from late
    if child.returncode > 0 or child.returncode in ENDED_FROM_OUTSIDE:
        raise _ChildLost(f"ended with {child.returncode}")
    if child.returncode < 0:
        raise CompilerFailed(f"crashed with {child.returncode}")
    try:
        answer: PolicySnapshot | tuple[Problem, ...] = pickle.loads(output)
    except Exception as error:
        raise _ChildLost("gave no answer") from error
    return answer


def _here(data: PolicyBytes, instance_index: int | None) -> PolicySnapshot:
    from proxy.policy.load import load_policy

    return load_policy(data, instance_index=instance_index)
