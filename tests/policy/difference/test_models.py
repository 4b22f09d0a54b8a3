"""Sections of models; that they are true of a reload is `test_truth.py`'s."""

from __future__ import annotations

from proxy.policy.difference.change import Section, Sign
from proxy.policy.difference.models import models
from tests.policy.difference.policies import difference, reload_of, says, section, told
from tests.policy.samples import GOOD

LIMITED = "{m: {limits: {concurrency: 6}}}"


def policy(written: str, *, more: str = "") -> str:
    """A policy whose provider has these models."""
    return f"{GOOD}    models: {written}\n{more}"


def found(old: str, new: str, *, more: str = "") -> Section:
    """The section of model m."""
    return section(difference(policy(old), policy(new, more=more)), "model a/m")


def test_equal_ones_have_none() -> None:
    step = reload_of(policy(LIMITED), policy(LIMITED))
    assert list(models(step.old.providers[0], step.new.providers[0], step)) == [None]


def test_another_limit() -> None:
    one = found(LIMITED, "{m: {limits: {concurrency: 2}}}")
    assert says(one) == {"limits.concurrency": ("6", "2"), "share of an instance": ("6", "2")}
    assert told(found(LIMITED, "{m: {}}")) == "the model has no limit of its own any more"


def test_one_that_is_named_now() -> None:
    one = found("{}", LIMITED)
    assert (one.sign, says(one)["limits.concurrency"]) == (Sign.ADDED, ("none", "6"))
    assert "its queue and breaker go on, else they are new" in told(one)
    assert "its queue goes on" in told(found("{}", LIMITED, more="    breaker: {scope: provider}\n"))


def test_one_that_is_named_no_more() -> None:
    one = found(LIMITED, "{}")
    assert one.sign is Sign.REMOVED
    assert "when callers ask for it by name within 10 minutes, its queue and breaker go on" in told(one)


def test_at_another_address_nothing_is_said_to_go_on() -> None:
    new = policy("{}").replace("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert "go on" not in told(section(difference(policy(LIMITED), new), "model a/m"))
