"""Policies understood in a child process: the same snapshot, the same problems, and a way out when no child starts."""

from __future__ import annotations

import sys

import pytest

from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError
from proxy.policy.source import PolicyBytes
from proxy.runtime.compiler import CompilerFailed, PolicyCompiler

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


def test_a_child_that_fails_is_a_problem_that_names_the_cure() -> None:
    compiler = PolicyCompiler(command=(sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(CompilerFailed, match="ended with 3; try `sponson check`"):
        compiler(GOOD)
