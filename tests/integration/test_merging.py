"""Merging, over the wire: one call for several callers, and each one's own part of whatever comes of it."""

from __future__ import annotations

import asyncio
import gzip
import json
from functools import partial
from typing import Any

from tests.integration.caller import Answer, request_bytes
from tests.integration.doors import waiting
from tests.integration.embedders import EMBEDDINGS, ENV, OF_THREE, POLICY, Model, all_of, texts
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, when
from tests.integration.scripted import Exchange


async def test_each_caller_gets_its_own_of_one_call() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        found = await model.together(["a", "b"], "c")
        assert [texts(answer) for answer in found] == [["a", "b"], ["c"]]
        assert [answer.json()["usage"]["prompt_tokens"] for answer in found] == [14, 7]
        assert len(model.calls) == 3
        assert sorted(model.calls[2]) == ["a", "b", "c"]
        assert sorted(answer.header("x-sponson-attempts") or "" for answer in found) == ["0", "1"]
        assert {answer.header("x-sponson-provider") for answer in found} == {"alpha"}
        await model.over()


async def test_a_request_without_company_goes_on_byte_for_byte() -> None:
    body = b'{ "model":"m",\n "input" : "a\\u0062", "n": 1.50 }'
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        model.first.set()
        answer = await lab.call(EMBEDDINGS, body, headers=[("content-type", "application/json")])
        assert texts(answer) == ["ab"]
        assert lab["alpha"].seen[0].body == body


async def test_one_that_is_refused_costs_the_others_nothing() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        good, bad, other = await model.together("a", "poison", "c")
        assert (texts(good), bad.status, texts(other)) == (["a"], 400, ["c"])
        assert b"this is 400" in bad.body
        assert len(model.calls) == 6
        await model.over()


async def test_tenants_never_travel_together_unless_the_policy_says_so() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        one, other = [("x-who", "one")], [("x-who", "other")]
        await model.busy(headers=one)
        await model.busy(headers=other)
        tasks = [model.ask(text, headers=one) for text in "ab"]
        await model.gathered(2)
        tasks += [model.ask(text, headers=other) for text in "cde"]
        await model.queued(3)
        await model.gathered(2)
        tasks.append(model.ask("f", headers=one))
        await model.queued(4)
        model.first.set()
        assert [texts(answer) for answer in await all_of(tasks)] == [[text] for text in "abcdef"]
        merged = [sorted(call) for call in model.calls if isinstance(call, list)]
        assert sorted(merged) == [["a", "b", "f"], ["c", "d", "e"]]
        await model.over()


async def test_several_tenants_may_travel_together_where_it_does() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab, model="together")
        await model.busy()
        tasks = [model.ask(name, headers=[("x-who", name)]) for name in "abc"]
        await model.queued(2)
        model.first.set()
        assert [texts(answer) for answer in await all_of(tasks)] == [["a"], ["b"], ["c"]]
        assert len(model.calls) == 3
        await model.over()


async def test_a_callers_own_credential_keeps_it_apart() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab, "own", model="own")
        mine, theirs = [("authorization", "Bearer mine")], [("authorization", "Bearer theirs")]
        await model.busy(headers=mine)
        tasks = [model.ask(text, headers=mine) for text in "ab"]
        await model.gathered(2)
        tasks.append(model.ask("c", headers=theirs))
        await model.queued(2)
        await model.gathered(2)
        tasks.append(model.ask("d", headers=mine))
        await model.queued(3)
        model.first.set()
        assert [texts(answer) for answer in await all_of(tasks)] == [["a"], ["b"], ["c"], ["d"]]
        sent = {request.header("authorization"): request.json()["input"] for request in lab["own"].seen}
        assert sent["Bearer theirs"] == "c"
        assert sorted(sent["Bearer mine"]) == ["a", "b", "d"]
        await model.over()


async def test_the_answer_is_asked_for_unpacked_whatever_the_callers_take() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        await model.together(*"abc", headers=[("accept-encoding", "gzip, br")])
        assert lab["alpha"].seen[2].header("accept-encoding") == "identity"
        await model.over()


async def test_one_that_comes_packed_all_the_same_is_asked_for_singly() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()

        async def script(exchange: Exchange) -> None:
            asked = exchange.request.json()["input"]
            document = {"data": [{"index": i, "embedding": text} for i, text in enumerate(asked)]}
            packed = gzip.compress(json.dumps(document).encode())
            await exchange.reply(200, packed, headers=[("content-encoding", "gzip")])

        model.provider.script = script
        found = await model.together(["a"], ["b"], ["c"])
        documents = [json.loads(gzip.decompress(answer.body)) for answer in found]
        assert [document["data"][0]["embedding"] for document in documents] == ["a", "b", "c"]
        assert len(model.provider.seen) == 6
        await model.over()


async def test_a_merged_call_falls_back_as_one() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model, other = Model(lab), Model(lab, "beta")
        other.first.set()
        await model.busy()

        async def script(exchange: Exchange) -> None:
            several = isinstance(exchange.request.json()["input"], list)
            await (answers(503) if several else model.embeds)(exchange)

        model.provider.script = script
        found = await model.together(*"abc")
        assert [texts(answer) for answer in found] == [["a"], ["b"], ["c"]]
        assert {answer.header("x-sponson-tier") for answer in found} == {"2"}
        assert [len(one.provider.seen) for one in (model, other)] == [3, 1]
        await model.over()


async def test_a_failure_of_all_is_everybodys() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        lab["beta"].script = answers(503)

        async def script(exchange: Exchange) -> None:
            several = isinstance(exchange.request.json()["input"], list)
            await (answers(503) if several else model.embeds)(exchange)

        model.provider.script = script
        await model.busy()
        found = await model.together(*"abc")
        assert [answer.status for answer in found] == [503] * 3
        assert len({answer.header("x-sponson-request-id") for answer in found}) == 3
        assert [len(lab[name].seen) for name in ("alpha", "beta")] == [3, 1]
        await model.over()


def question(text: str) -> bytes:
    return request_bytes("POST", EMBEDDINGS, body={"model": "m", "input": text})


async def test_who_leaves_while_it_waits_is_not_asked_for() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        async with lab.wire() as leaving:
            await leaving.send(question("leaves"))
            await model.gathered(1)
        await model.gathered(0)
        found = await model.together(*"abc")
        assert [texts(answer) for answer in found] == [["a"], ["b"], ["c"]]
        assert sorted(model.calls[2]) == ["a", "b", "c"]
        await model.over()


async def test_who_leaves_meanwhile_costs_the_others_nothing() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        async with lab.wire() as one, lab.wire() as other:
            async with lab.wire() as leaving:
                for wire, text in ((leaving, "leaves"), (one, "a"), (other, "b")):
                    await wire.send(question(text))
                await model.queued(2)
                model.hold_merged()
                model.first.set()
                await model.provider.has_seen(3)
            await lab.proxy.until(lambda status: status["in_flight"] == 2)
            model.merged.set()
            assert [texts(await wire.answer()) for wire in (one, other)] == [["a"], ["b"]]
        assert not model.provider.left_at
        await model.over()


async def test_the_last_one_who_leaves_ends_the_call() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        async with lab.wire() as one, lab.wire() as two, lab.wire() as three:
            for wire, text in ((one, "a"), (two, "b"), (three, "c")):
                await wire.send(question(text))
            await model.queued(2)
            model.hold_merged()
            model.first.set()
            await model.provider.has_seen(3)
        await model.provider.was_left(1)
        await model.over()


async def test_behind_a_call_that_waits_for_its_permit_they_gather() -> None:
    policy = {**POLICY, "routes": [route("m", "alpha", merge={"window": "1ms", "max": 50})]}
    async with Lab(policy, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        tasks = [model.ask(f"text {number}") for number in range(6)]
        await model.gathered(6)
        await model.over()
        assert [texts(answer) for answer in await all_of(tasks)] == [[f"text {n}"] for n in range(6)]
        assert len(model.calls) == 3


async def test_a_keyed_request_travels_alone() -> None:
    async with Lab(POLICY, env=ENV) as lab:
        model = Model(lab)
        await model.busy()
        tasks = [model.ask("k", headers=[("idempotency-key", "k1")]), *(model.ask(text) for text in "ab")]
        await model.queued(2)
        await model.gathered(2)
        await model.over()
        assert [texts(answer) for answer in await all_of(tasks)] == [["k"], ["a"], ["b"]]
        assert "k" in model.calls


def _queued(count: int, status: Any) -> bool:
    return waiting(status, "own") == count


async def test_endpoints_that_the_policy_declares_are_merged_too() -> None:
    merge = {**OF_THREE, "inputs": "texts", "results": "vectors"}
    declared = {**route("m", "own", merge=merge, repeatable=True), "match": {"path": "/v1/embed"}}

    async def script(exchange: Exchange) -> None:
        asked = exchange.request.json()["texts"]
        await exchange.reply(200, {"vectors": [[text] for text in asked], "meta": 1})

    def embed(lab: Lab, text: str, **rest: Any) -> asyncio.Task[Answer]:
        return asyncio.ensure_future(lab.call("/v1/embed", {"texts": [text], **rest}))

    async with Lab({**POLICY, "routes": [declared]}, env=ENV) as lab:
        gate = asyncio.Event()
        lab["own"].script = when(gate, script)
        tasks = [embed(lab, "blocker", other=1)]
        await lab["own"].has_seen(1)
        for count, words in ((1, ["first"]), (2, ["a", "b", "c"])):
            tasks += [embed(lab, word) for word in words]
            await lab.proxy.until(partial(_queued, count))
        gate.set()
        found = [answer.json() for answer in await all_of(tasks)]
        assert found == [{"vectors": [[text]], "meta": 1} for text in ("blocker", "first", "a", "b", "c")]
        assert len(lab["own"].seen) == 3
