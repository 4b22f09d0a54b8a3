"""What is kept of calls that several made together: each one's own part, of whole and good answers, for nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.embedders import ENV, KEYED, Model, all_of, texts
from tests.integration.harness import Lab, route
from tests.integration.messages import answers
from tests.integration.scripted import Exchange, Script

WAIT = 30.0
KEPT = {"merge": {"window": "200ms", "max": 3}, "cache": {"ttl": "1h"}, "retry": {"attempts": 1}}
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {"from": [{"header": "x-who"}]},
    "providers": {"alpha": KEYED, "beta": KEYED},
    "routes": [
        route("m", "alpha", **KEPT),
        route("tiers", "alpha", "beta", **KEPT),
        route("wide", "alpha", **{**KEPT, "cache": {"ttl": "1h", "scope": "route"}}),
    ],
}


def used(answer: Answer) -> str | None:
    """Returns what part the cache had."""
    return answer.header("x-sponson-cache")


async def again(model: Model, *values: Any, **rest: Any) -> list[tuple[str | None, list[Any]]]:
    """Asks once more, one after the other."""
    found = [await model.ask(value, **rest) for value in values]
    return [(used(answer), texts(answer)) for answer in found]


async def test_each_ones_own_part_is_kept() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        found = await model.together(["a", "b"], "c")
        assert [(used(answer), texts(answer)) for answer in found] == [("miss", ["a", "b"]), ("miss", ["c"])]
        calls = len(model.calls)
        assert await again(model, ["a", "b"], "c") == [("hit", ["a", "b"]), ("hit", ["c"])]
        assert len(model.calls) == calls
        hit = await model.ask(["a", "b"])
        line = await lab.proxy.line_of(hit)
        assert (line.get("input_tokens"), line["saved_input_tokens"]) == (None, 14)
        assert await again(model, ["b", "a"], "a") == [("miss", ["b", "a"]), ("miss", ["a"])]
        assert await again(model, "c", headers=[("x-who", "other")]) == [("miss", ["c"])]
        await model.over()


async def test_equal_ones_are_one_among_those_who_travel() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        tasks = [model.ask(text) for text in ("a", "a", "b", "a")]
        await lab.proxy.until(lambda status: status["single_flight"]["joined"] == 2, within=WAIT)
        await model.gathered(2)
        model.first.set()
        found = await all_of(tasks)
        assert [texts(answer) for answer in found] == [["a"], ["a"], ["b"], ["a"]]
        assert sorted(str(used(answer)) for answer in found) == ["miss", "miss", "shared", "shared"]
        assert sorted(model.calls[2]) == ["a", "b"]
        await model.over()


async def test_what_one_is_refused_is_not_kept_and_the_others_parts_are() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        good, bad, other = await model.together("a", "poison", "c")
        assert (texts(good), bad.status, texts(other)) == (["a"], 400, ["c"])
        assert await again(model, "a", "c") == [("hit", ["a"]), ("hit", ["c"])]
        refused = await model.ask("poison")
        assert (refused.status, used(refused)) == (400, "miss")
        await model.over()


def row(index: Any, text: str) -> dict[str, Any]:
    """Returns one result."""
    return {"object": "embedding", "index": index, "embedding": text}


Dealt = Callable[[list[str]], list[dict[str, Any]]]
DEALT: dict[str, Dealt] = {
    "one too few": lambda told: [row(i, text) for i, text in enumerate(told)][1:],
    "one too many": lambda told: [row(i, text) for i, text in enumerate([*told, "x"])],
    "one twice": lambda told: [row(0, text) for text in told],
    "from one": lambda told: [row(i + 1, text) for i, text in enumerate(told)],
    "one index missing": lambda told: [row(i or None, text) for i, text in enumerate(told)],
    "a number as a text": lambda told: [row(str(i), text) for i, text in enumerate(told)],
    "true for one": lambda told: [row(bool(i) if i < 2 else i, text) for i, text in enumerate(told)],
    "none": lambda told: [],
}


@pytest.mark.parametrize("name", DEALT)
async def test_what_cannot_be_dealt_is_nobodys_and_each_ones_own_is_kept(name: str) -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)

        async def script(exchange: Exchange) -> None:
            asked = exchange.request.json()["input"]
            if isinstance(asked, list) and len(asked) == 3:
                model.calls.append(asked)
                await exchange.reply(200, {"object": "list", "data": DEALT[name](asked), "usage": {"prompt_tokens": 3}})
            else:
                await model.embeds(exchange)

        model.provider.script = script
        await model.busy()
        found = await model.together("a", "b", "c")
        assert [texts(answer) for answer in found] == [["a"], ["b"], ["c"]]
        assert await again(model, "a", "b", "c") == [("hit", ["a"]), ("hit", ["b"]), ("hit", ["c"])]
        await model.over()


BAD: dict[str, Script] = {
    "503": answers(503),
    "error in a 200": answers(200, {"error": {"message": "worn out", "type": "server_error"}}),
    "half a document": answers(200, b'{"data":[', headers=[("content-type", "application/json")]),
    "a page": answers(200, b"<html>", headers=[("content-type", "text/html")]),
    "created": answers(201, {"data": []}),
}


@pytest.mark.parametrize("name", BAD)
async def test_nothing_of_a_merged_call_that_went_wrong_is_kept(name: str) -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model, bad = Model(lab), True

        async def script(exchange: Exchange) -> None:
            if bad and exchange.request.json()["input"] not in ("blocker", "first"):
                await BAD[name](exchange)
            else:
                await model.embeds(exchange)

        model.provider.script = script
        await model.busy()
        told = await model.together("a", "b", "c")
        assert {used(answer) for answer in told} == {"miss"}
        bad = False
        assert await again(model, "a", "b", "c") == [("miss", ["a"]), ("miss", ["b"]), ("miss", ["c"])]
        await model.over()


async def test_a_later_tiers_parts_are_not_kept() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        meant, instead = Model(lab, model="tiers"), Model(lab, "beta", model="tiers")
        instead.first.set()

        async def script(exchange: Exchange) -> None:
            asked = exchange.request.json()["input"]
            await (answers(503) if isinstance(asked, list) else meant.embeds)(exchange)

        meant.provider.script = script
        await meant.busy()
        told = await meant.together("a", "b", "c")
        assert [(texts(answer), answer.tier) for answer in told] == [(["a"], 2), (["b"], 2), (["c"], 2)]
        assert await again(meant, "a", "b") == [("miss", ["a"]), ("miss", ["b"])]
        await meant.over()


LONG = "x" * 130
STRANGERS = {"two names": ("one", "other"), "none": ("one", ""), "that begin alike": (LONG + "1", LONG + "2")}


@pytest.mark.parametrize("model", ["m", "wide"])
@pytest.mark.parametrize("name", STRANGERS)
async def test_strangers_do_not_travel_together(name: str, model: str) -> None:
    """Though they may share what is kept."""
    async with Lab(POLICY, env=ENV) as lab:
        embeds = Model(lab, model=model)
        whos = [[("x-who", who)] for who in STRANGERS[name]]
        embeds.before.append(embeds.ask("blocker", user="blocker"))
        await embeds.provider.has_seen(1, within=WAIT)
        tasks = [embeds.ask(f"a {who}", headers=who) for who in whos]
        await embeds.queued(2)
        tasks += [embeds.ask(f"{text} {who}", headers=who) for who in whos for text in "bc"]
        await embeds.gathered(4)
        embeds.first.set()
        assert [texts(answer)[0][0] for answer in await all_of(tasks)] == list("aabcbc")
        merged = [{text.partition(" ")[2] for text in call} for call in embeds.calls if isinstance(call, list)]
        assert [len(whose) for whose in merged] == [1, 1], merged
        await embeds.over()
