"""Merging, as a stage: who never travels with whom, and who only by the policy's word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes import settle
from tests.stages.merging_world import Caller, Merging


@pytest.mark.parametrize(
    "other",
    [
        {"tenant": "another"},
        {"klass": "P0"},
        {"path": "/v1/embeddings?a=1"},
        {"path": "/v2/embeddings"},
        {"headers": [("openai-organization", "o1")]},
        {"headers": [("anthropic-beta", "b1")]},
        {"headers": [("openai-new-switch", "on")]},
        {"headers": [("prefer", "wait")]},
        {"headers": [("accept-language", "sq")]},
        {"dimensions": 5},
        {"user": "u1"},
        {"encoding_format": "base64"},
        {"model": "m2"},
        {"value": [1, 2]},
        {"unknown": None},
    ],
    ids=str,
)
async def test_whatever_differs_travels_apart(other: dict[str, Any]) -> None:
    world = Merging()
    await world.busy()
    await world.caller("a")
    await world.caller(**{"value": "b", **other})
    await world.caller("c")
    await world.passes()
    assert ["a", "c"] in [asked.inputs for asked in world.asked]
    assert len(world.asked) == 3


async def test_who_begins_with_a_later_tier_travels_apart() -> None:
    world = Merging()
    await world.busy()
    await world.caller("a")
    later = Caller(world, "b")
    later.exchange.first_tier = 2
    await settle()
    assert world.asked[-1].exchange is later.exchange
    await world.passes()
    assert world.sizes() == [1, 1, 1]


@pytest.mark.parametrize(
    ("scope", "differs", "together"),
    [
        ({"whose": "route"}, {"tenant": "another"}, True),
        ({"whose": "tenant", "credentials": ("authorization",)}, {"headers": [("authorization", "k2")]}, False),
        ({"whose": "credential", "credentials": ("authorization",)}, {"headers": [("authorization", "k2")]}, False),
        ({"whose": "tenant"}, {"headers": [("authorization", "k2")]}, True),
        ({"headers": ("X-Team",)}, {"headers": [("x-team", "t2")]}, False),
        ({}, {"headers": [("x-team", "t2")]}, True),
        ({}, {"headers": [("accept-encoding", "gzip")]}, True),
    ],
    ids=str,
)
async def test_who_may_travel_together_is_the_policys_word(
    scope: dict[str, Any], differs: dict[str, Any], together: bool
) -> None:
    world = Merging(**scope)
    await world.busy()
    await world.caller("a")
    await world.caller("b", **differs)
    await world.passes()
    assert (["a", "b"] in [asked.inputs for asked in world.asked]) is together


@pytest.mark.parametrize(
    "alone",
    [
        {"key": "k"},
        {"path": "/v1/completions", "field": "prompt", "stream": True},
        {"path": "/v1/chat/completions"},
        {"body": b'{"model":"m1","input":"a","input":"b"}'},
        {"value": ""},
        {"value": {"text": "a"}},
        {"headers": [("Range", "bytes=0-10")]},
        {"headers": [("if-none-match", "x")]},
    ],
    ids=str,
)
async def test_what_cannot_travel_with_others_goes_at_once(alone: dict[str, Any]) -> None:
    world = Merging()
    for _ in range(3):
        caller = await world.caller(**{"value": "a", **alone})
        assert world.asked[-1].exchange is caller.exchange
    assert len(world.asked) == 3
    assert not world.lanes.lanes


async def test_what_may_not_be_executed_twice_goes_alone() -> None:
    world = Merging()
    for _ in range(2):
        caller = Caller(world)
        caller.exchange.repeatable = False
        await settle()
    assert len(world.asked) == 2
    assert not world.lanes.lanes


async def test_those_who_came_under_another_policy_go_by_that() -> None:
    world = Merging()
    await world.busy()
    for name in "ab":
        await world.caller(name)
    newer = world.new_stage()
    await world.caller("c", stage=newer)
    assert world.sizes() == [1, 2]
    world.asked[1].begins()
    await world.caller("d", stage=newer)
    await world.passes()
    assert world.asked[2].inputs == ["c", "d"]
