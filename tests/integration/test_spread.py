"""Tiers over equals: who is asked, who stands in, what the caller sees, and whose credential goes where."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, resets, says, when

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

LONG = {"first": "60s", "cap": "60s"}


def over(*members: str | dict[str, Any], **rest: Any) -> dict[str, Any]:
    """Returns a tier over equals."""
    return {"spread": [{"provider": one} if isinstance(one, str) else one for one in members], **rest}


POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "large": {"limits": {"concurrency": 8}},
        "small": {"limits": {"concurrency": 4}},
        "one": {"limits": {"concurrency": 1}, "breaker": "off"},
        "other": {"limits": {"concurrency": 1}, "breaker": "off"},
        "fragile": {"breaker": {"consecutive": 1, "open": LONG}},
        "sound": {"breaker": "off"},
        "keyed": {"breaker": "off", "keys": [{"id": "k1", "env": "KEY_1"}], "key_rest": "60s"},
        "spare": {"breaker": "off", "keys": [{"id": "s1", "env": "KEY_2"}], "key_rest": "60s"},
        "next": {"breaker": "off"},
    },
    "routes": [
        route("sized", over("large", "small")),
        route("weighted", over({"provider": "sound", "weight": 3}, {"provider": "next"}, by="weight")),
        route("models", over({"provider": "sound", "model": "m-sound"}, {"provider": "next", "model": "m-next"})),
        route("narrow", over("one", "other")),
        route("breaks", over("fragile", "sound"), retry={"attempts": 3, "base": "50ms"}),
        route("rests", over("keyed", "spare")),
        route("falls", over("one", "other", by="weight"), "next", retry={"attempts": 3, "base": "50ms"}),
        route("meant", over("sound", "next", by="weight")),
        route("later", "fragile", over("sound", "next", by="weight")),
    ],
}
ENV = {"KEY_1": "secret-1", "KEY_2": "secret-2"}


async def crowd(lab: Lab, model: str, number: int) -> list[Answer]:
    """Makes so many calls at once."""
    return await asyncio.gather(*(lab.chat(model, within=20) for _ in range(number)))


def whom(found: list[Answer]) -> Counter[str | None]:
    assert {answer.status for answer in found} == {200}
    return Counter(answer.provider for answer in found)


async def test_equals_of_different_size_carry_load_in_proportion(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["large"].script = lab["small"].script = when(gate, says("hi"))
    calls = asyncio.ensure_future(crowd(lab, "sized", 12))
    await asyncio.gather(lab["large"].has_seen(8), lab["small"].has_seen(4))
    gate.set()
    assert whom(await calls) == {"large": 8, "small": 4}


async def test_by_weight_each_gets_its_part_in_the_same_order_every_time(lab: Lab) -> None:
    named = [(await lab.chat("weighted")).provider for _ in range(8)]
    assert named == ["sound", "sound", "next", "sound"] * 2


async def test_the_answer_names_the_member_and_its_model_replaces_the_callers(lab: Lab) -> None:
    for _ in range(4):
        answer = await lab.chat("models")
        assert (answer.status, answer.tier, answer.attempts) == (200, 1, 1)
    for name in ("sound", "next"):
        assert {request.json()["model"] for request in lab[name].seen} == {f"m-{name}"}


async def test_one_that_is_full_stands_back_for_one_that_is_not(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["one"].script = lab["other"].script = when(gate, says("hi"))
    calls = asyncio.ensure_future(crowd(lab, "narrow", 2))
    await asyncio.gather(lab["one"].has_seen(1), lab["other"].has_seen(1))
    gate.set()
    assert whom(await calls) == {"one": 1, "other": 1}


async def test_when_all_are_full_who_waits_gets_the_last_of_them(lab: Lab) -> None:
    lab["one"].script = lab["other"].script = says("hi", after=0.7)
    found = await crowd(lab, "narrow", 3)
    assert {answer.status for answer in found} == {200}
    assert lab["one"].peak == lab["other"].peak == 1


async def test_a_failure_goes_to_the_next_equal_at_once_and_an_open_breaker_stands_last(lab: Lab) -> None:
    lab["fragile"].script = answers(503)
    found = [await lab.chat("breaks") for _ in range(6)]
    assert whom(found) == {"sound": 6}
    assert len(lab["fragile"].seen) == 1
    assert sorted(answer.attempts for answer in found) == [1] * 5 + [2]
    assert {answer.tier for answer in found} == {1}


async def test_while_one_is_away_the_other_is_tried_again_as_one_alone_would_be(lab: Lab) -> None:
    lab["fragile"].script = answers(503)
    await lab.chat("breaks")
    lab["sound"].forget()
    lab["sound"].script = resets
    answer = await lab.chat("breaks")
    assert (answer.status, answer.reason) == (502, "upstream_unreachable")
    assert len(lab["sound"].seen) == 3


async def test_keys_that_rest_at_one_leave_the_others_to_answer(lab: Lab) -> None:
    lab["keyed"].script = answers(429, headers=[("retry-after", "60")])
    assert whom([await lab.chat("rests") for _ in range(4)]) == {"spare": 4}
    assert len(lab["keyed"].seen) <= 1
    lab["spare"].script = answers(429, headers=[("retry-after", "30")])
    assert (await lab.chat("rests")).status == 429
    answer = await lab.chat("rests")
    assert (answer.status, answer.reason) == (429, "keys_resting")
    assert 20 < int(answer.header("retry-after") or 0) <= 30, "the first of them to return"
    for name, secret in [("keyed", b"Bearer secret-1"), ("spare", b"Bearer secret-2")]:
        assert {request.all("authorization")[0] for request in lab[name].seen} <= {secret}


async def test_when_all_equals_have_failed_the_next_tier_answers(lab: Lab) -> None:
    lab["one"].script = lab["other"].script = answers(500)
    answer = await lab.chat("falls")
    assert (answer.status, answer.provider, answer.tier) == (200, "next", 2)
    assert len(lab["one"].seen) + len(lab["other"].seen) == 1 + 3
    assert len(lab["next"].seen) == 1


async def test_a_mistake_of_the_caller_is_relayed_by_the_first_that_says_so(lab: Lab) -> None:
    lab["sound"].script = lab["next"].script = answers(400)
    answer = await lab.chat("meant")
    assert (answer.status, answer.attempts) == (400, 1)


async def test_the_callers_own_credential_goes_to_the_first_named_only(lab: Lab) -> None:
    found = [await lab.chat("meant", headers=[("authorization", "Bearer own")]) for _ in range(4)]
    assert whom(found) == {"sound": 2, "next": 2}
    assert {request.header("authorization") for request in lab["sound"].seen} == {"Bearer own"}
    assert {request.header("authorization") for request in lab["next"].seen} == {None}


async def test_in_a_later_tier_it_goes_to_nobody(lab: Lab) -> None:
    lab["fragile"].script = answers(503)
    for _ in range(2):
        assert (await lab.chat("later", headers=[("authorization", "Bearer own")])).tier == 2
    seen = [*lab["sound"].seen, *lab["next"].seen]
    assert [request.header("authorization") for request in seen] == [None, None]
