"""Policies understood in a child process: the same snapshot, the same problems, and a way out when no child starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError
from proxy.policy.source import PolicyBytes
from proxy.runtime.compiler import TRIES, CompilerFailed, PolicyCompiler

ROOT = Path(__file__).resolve().parents[2]
GOOD = PolicyBytes(
    files=(("p.yaml", b"version: 1\nproviders: {a: {base_url: 'http://x/v1'}}\nfleet: {size: {static: 4}}\n"),)
)
BAD = PolicyBytes(files=(("p.yaml", b"version: 1\nproviders: {a: {base_ulr: x}}\nroutes: [{name: r, tiers: []}]\n"),))


def test_the_child_understands_what_this_process_would() -> None:
    assert PolicyCompiler(instance_index=2)(GOOD) == load_policy(GOOD, instance_index=2)


def test_the_childs_problems_are_this_processs() -> None:
    with pytest.raises(PolicyError) as here:
        load_policy(BAD)
    with pytest.raises(PolicyError) as child:
        PolicyCompiler()(BAD)
    assert child.value.problems == here.value.problems


def test_a_warm_child_serves_once_and_the_next_policy_gets_another() -> None:
    compiler = PolicyCompiler()
    compiler.warm_up()
    assert compiler(GOOD) == compiler(GOOD)


def test_without_a_child_the_policy_is_understood_here() -> None:
    compiler = PolicyCompiler(command=("/nowhere/python", "-m", "proxy.policy.compile"))
    compiler.warm_up()
    assert compiler(GOOD) == load_policy(GOOD)


def test_a_child_that_hangs_is_killed_at_the_limit(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    hangs = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    compiler = PolicyCompiler(command=(sys.executable, "-c", hangs), limit_seconds=0.1)
    compiler.warm_up()
    while not (told.exists() and told.read_text()):
        time.sleep(0.01)
    with pytest.raises(CompilerFailed, match=r"took longer than 0\.1 s; try `sponson check`"):
        compiler(GOOD)
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_after_a_child_that_failed_the_next_policy_gets_another(tmp_path: Path) -> None:
    once = f"import os, sys; os.path.exists({str(tmp_path / 'failed')!r}) or (open({str(tmp_path / 'failed')!r}, 'w'), "
    command = (sys.executable, "-c", once + "sys.exit(1)); from proxy.policy.compile import main; main()")
    compiler = PolicyCompiler(command=command)
    with pytest.raises(CompilerFailed):
        compiler(GOOD)
    assert compiler(GOOD) == load_policy(GOOD)


@pytest.mark.parametrize("found_by", [None, "", "elsewhere"])
def test_the_child_is_of_this_very_package_whatever_the_working_directory_holds(
    tmp_path: Path, found_by: str | None
) -> None:
    for place in (tmp_path, tmp_path / "elsewhere"):
        (place / "proxy").mkdir(parents=True)
        (place / "proxy/__init__.py").write_text("raise SystemExit('another package was run')\n")
    (tmp_path / "pickle.py").write_text("raise SystemExit('another module was run')\n")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    given = environ if found_by is None else {**environ, "PYTHONPATH": found_by and str(tmp_path / found_by)}
    code = f"""
from proxy.policy.source import PolicyBytes
from proxy.runtime.compiler import PolicyCompiler
print(PolicyCompiler(environ={given!r})(PolicyBytes(files={GOOD.files!r})).providers[0].name)
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("a\n", "")


def test_a_child_that_fails_is_a_problem_that_names_the_cure() -> None:
    compiler = PolicyCompiler(command=(sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(CompilerFailed, match="ended with 3; try `sponson check`"):
        compiler(GOOD)


# Children that are lost.


@pytest.mark.parametrize(
    "death", ["os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", "raise ImportError", "print('no answer')"]
)
def test_where_children_are_lost_again_and_again_the_policy_is_understood_here(death: str) -> None:
    compiler = PolicyCompiler(command=(sys.executable, "-c", f"import os; {death}"))
    for _ in range(TRIES - 1):
        with pytest.raises(CompilerFailed):
            compiler(GOOD)
    assert compiler(GOOD) == load_policy(GOOD)
    with pytest.raises(PolicyError):
        compiler(BAD)


@pytest.mark.parametrize("crash", [signal.SIGSEGV, signal.SIGABRT])
def test_a_policy_that_a_child_crashed_on_never_comes_into_this_process(crash: signal.Signals) -> None:
    dies = f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {crash:d})"
    compiler = PolicyCompiler(command=(sys.executable, "-c", dies))
    for _ in range(2 * TRIES):
        with pytest.raises(CompilerFailed, match=f"crashed with -{crash:d}"):
            compiler(GOOD)


def test_a_policy_that_a_child_hung_on_never_comes_into_this_process() -> None:
    compiler = PolicyCompiler(command=("/bin/sleep", "600"), limit_seconds=0.02)
    for _ in range(2 * TRIES):
        with pytest.raises(CompilerFailed, match="took longer"):
            compiler(GOOD)


def test_a_child_that_lives_ends_the_count_of_the_lost(tmp_path: Path) -> None:
    healthy = tmp_path / "healthy"
    code = f"import os, sys; os.path.exists({str(healthy)!r}) or sys.exit(1)"
    compiler = PolicyCompiler(
        command=(sys.executable, "-c", f"{code}; from proxy.policy.compile import main; main()"),
        environ={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    for _ in range(TRIES - 1):
        with pytest.raises(CompilerFailed):
            compiler(GOOD)
    healthy.touch()
    assert compiler(GOOD) == load_policy(GOOD)
    healthy.unlink()
    with pytest.raises(CompilerFailed, match="ended with 1"):
        compiler(GOOD)


def test_a_child_that_is_killed_while_it_works_is_missed_at_once(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    works = (
        f"import os, sys, time; sys.stdin.buffer.read(10); open({str(told)!r}, 'w').write(str(os.getpid())); "
        "time.sleep(600)"
    )
    compiler = PolicyCompiler(command=(sys.executable, "-c", works))
    big = PolicyBytes(files=(*GOOD.files, ("q.yaml", b"# " + b"x" * (1 << 20))))
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(compiler, big)
        while not (told.exists() and told.read_text()):
            time.sleep(0.01)
        os.kill(int(told.read_text()), signal.SIGKILL)
        with pytest.raises(CompilerFailed, match="ended with -9"):
            asked.result(timeout=30)
