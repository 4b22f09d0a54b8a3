"""Executions are told apart by key and by body, within bounds."""

from __future__ import annotations

from proxy.simulation.provider.executions import REMEMBERED, Executions


def test_a_key_counts_its_executions_whatever_the_body() -> None:
    executions = Executions()
    claim = executions.begin("k", "body", seed=1, number=1)
    assert executions.execute(claim, "body") == 1
    executions.end(claim)
    again = executions.begin("k", "other", seed=2, number=2)
    assert again is claim
    assert (again.seed, again.number, again.fingerprint) == (1, 1, "body")
    assert executions.execute(again, "other") == 2
    assert (executions.total, executions.duplicates, executions.repeated_bodies) == (2, 1, 0)


def test_without_a_key_a_body_counts_its_executions() -> None:
    executions = Executions()
    assert [executions.execute(None, body) for body in "aba"] == [1, 1, 2]
    assert (executions.duplicates, executions.repeated_bodies) == (0, 1)


def test_a_key_under_which_nothing_was_executed_is_free_again() -> None:
    executions = Executions()
    first = executions.begin("k", "body", seed=1, number=1)
    second = executions.begin("k", "body", seed=2, number=2)
    executions.end(first)
    assert executions.find("k") is second
    executions.end(second)
    assert executions.find("k") is None


def test_keys_and_bodies_are_bounded() -> None:
    executions = Executions()
    for number in range(REMEMBERED + 2):
        claim = executions.begin(str(number), "body", seed=0, number=number)
        executions.execute(claim, str(number))
        executions.end(claim)
    assert executions.find("1") is None
    assert executions.find("2") is not None
    assert executions.execute(None, "0") == 1


def test_a_reset_forgets_counts_and_bodies_and_keeps_answers() -> None:
    executions = Executions()
    executions.execute(executions.begin("k", "body", seed=1, number=1), "body")
    executions.reset()
    assert executions.find("k") is not None
    assert executions.execute(None, "body") == 1
    assert executions.total == 1
