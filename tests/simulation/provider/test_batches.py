"""Calls of several inputs: their cost, their maximum, poison, and results in any order."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.asks import Ask, BadAsk, Endpoint, read_ask
from proxy.simulation.provider.batches import check, work_factor
from proxy.simulation.provider.settings import AnswerStyle
from tests.simulation.provider.wire import Answer, call

ENDPOINTS = [(Endpoint.EMBEDDINGS, "input"), (Endpoint.COMPLETIONS, "prompt"), (Endpoint.MODERATIONS, "input")]


def asked(endpoint: Endpoint, **fields: Any) -> Ask:
    return read_ask(endpoint, json.dumps({"model": "m", **fields}).encode())


def settings(**changes: Any) -> SimulatorSettings:
    return SimulatorSettings(**changes)


async def post(sim: ProviderSimulator, path: str, **fields: Any) -> Answer:
    return await call(sim.port, path, {"model": "m", **fields})


@pytest.mark.parametrize(("endpoint", "field"), ENDPOINTS)
def test_each_further_input_costs_a_little(endpoint: Endpoint, field: str) -> None:
    cheap = settings(input_cost=0.05)
    assert work_factor(asked(endpoint, **{field: "a"}), cheap) == 1
    assert work_factor(asked(endpoint, **{field: ["a"] * 8}), cheap) == pytest.approx(1.35)
    assert work_factor(asked(endpoint, **{field: ["a"] * 8}), settings()) == 1


@pytest.mark.parametrize(("endpoint", "field"), ENDPOINTS)
def test_more_inputs_than_allowed_are_refused(endpoint: Endpoint, field: str) -> None:
    check(asked(endpoint, **{field: ["a"] * 3}), settings(max_inputs=3))
    with pytest.raises(BadAsk) as caught:
        check(asked(endpoint, **{field: ["a"] * 4}), settings(max_inputs=3))
    assert caught.value.param == field


def test_choices_and_messages_are_no_inputs() -> None:
    one = settings(max_inputs=1, input_cost=1.0)
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    for ask in (asked(Endpoint.COMPLETIONS, prompt="a", n=5), asked(Endpoint.CHAT, messages=messages, n=5)):
        check(ask, one)
        assert work_factor(ask, one) == 1


@pytest.mark.parametrize(("endpoint", "field"), ENDPOINTS)
def test_one_poisoned_input_spoils_the_call_and_is_named(endpoint: Endpoint, field: str) -> None:
    bad = settings(poison="arsenic")
    check(asked(endpoint, **{field: ["a", "b"]}), bad)
    with pytest.raises(BadAsk) as caught:
        check(asked(endpoint, **{field: ["a", "some arsenic"]}), bad)
    assert caught.value.param == f"{field}[1]"


@pytest.mark.parametrize(("endpoint", "field"), ENDPOINTS)
async def test_a_spoilt_call_gets_400_and_no_work_is_done(endpoint: Endpoint, field: str) -> None:
    async with ProviderSimulator(settings(poison="arsenic", max_inputs=2)) as sim:
        for inputs in (["a", "arsenic"], "arsenic", ["a", "b", "c"]):
            answer = await post(sim, endpoint, **{field: inputs})
            assert answer.status == 400
            assert answer.json["error"]["type"] == "invalid_request_error"
        stats = sim.stats()
    assert (stats.received, stats.executions, stats.inputs) == (3, 0, 0)


async def test_inputs_are_counted() -> None:
    async with ProviderSimulator() as sim:
        await post(sim, Endpoint.EMBEDDINGS, input=["a", "b", "c"])
        await post(sim, Endpoint.MODERATIONS, input="a")
        await post(sim, Endpoint.COMPLETIONS, prompt=["a", "b"])
        assert [seen.inputs for seen in sim.requests] == [3, 1, 2]
        assert (sim.stats().inputs, sim.stats().most_inputs) == (6, 3)
        sim.reset_stats()
        assert (sim.stats().inputs, sim.stats().most_inputs) == (0, 0)


async def test_shuffled_vectors_are_found_by_their_index() -> None:
    texts = [f"text {number}" for number in range(12)]
    async with ProviderSimulator() as sim, ProviderSimulator(settings(shuffle=True)) as shuffling:
        plain, mixed = await asyncio.gather(
            *(post(where, Endpoint.EMBEDDINGS, input=texts) for where in (sim, shuffling))
        )
    assert [one["index"] for one in plain.json["data"]] == list(range(12))
    assert [one["index"] for one in mixed.json["data"]] != list(range(12))
    assert sorted(mixed.json["data"], key=lambda one: one["index"]) == plain.json["data"]


async def test_shuffled_choices_are_found_by_their_index() -> None:
    texts = [f"text {number}" for number in range(6)]
    async with ProviderSimulator(settings(shuffle=True, answer=AnswerStyle.ECHO)) as sim:
        choices = (await post(sim, Endpoint.COMPLETIONS, prompt=texts, n=2)).json["choices"]
    assert [one["index"] for one in choices] != list(range(12))
    assert {one["index"]: one["text"] for one in choices} == {at: texts[at // 2] for at in range(12)}


async def test_moderations_keep_their_order_since_nothing_numbers_them() -> None:
    texts = [f"text {number}" for number in range(12)]
    async with ProviderSimulator() as sim, ProviderSimulator(settings(shuffle=True)) as shuffling:
        plain, mixed = [await post(where, Endpoint.MODERATIONS, input=texts) for where in (sim, shuffling)]
    assert mixed.json["results"] == plain.json["results"]


async def test_token_arrays_and_base64_have_the_vector_of_their_input() -> None:
    async with ProviderSimulator() as sim:
        both = (await post(sim, Endpoint.EMBEDDINGS, input=[[1, 2], [3]], dimensions=5)).json
        alone = (await post(sim, Endpoint.EMBEDDINGS, input=[3], dimensions=5)).json
        packed = (await post(sim, Endpoint.EMBEDDINGS, input=[[1, 2], [3]], encoding_format="base64")).json
    assert both["data"][1]["embedding"] == alone["data"][0]["embedding"] != both["data"][0]["embedding"]
    assert both["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    assert len({one["embedding"] for one in packed["data"]}) == 2
