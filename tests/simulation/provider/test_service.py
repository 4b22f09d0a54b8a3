"""The provider over real sockets: answers, keys, seeds, queue."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.simulation.provider import Latency, ProviderSimulator, SimulatorSettings, parse_fault
from proxy.simulation.provider.settings import AnswerStyle
from tests.simulation.provider.wire import CHAT, MESSAGE, STREAM, call, chat, connection, eventually, request


@pytest.fixture
async def sim() -> AsyncIterator[ProviderSimulator]:
    async with ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO)) as running:
        yield running


def faulty(*texts: str, **rest: Any) -> ProviderSimulator:
    return ProviderSimulator(SimulatorSettings(faults=tuple(map(parse_fault, texts)), **rest))


async def test_a_chat_answer_has_openai_shape(sim: ProviderSimulator) -> None:
    answer = await chat(sim.port)
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    choice = answer.json["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "hello brave world", "refusal": None}
    assert choice["finish_reason"] == "stop"
    assert answer.json["usage"]["total_tokens"] == 5 + 3


async def test_a_chat_stream_ends_with_finish_usage_and_done(sim: ProviderSimulator) -> None:
    answer = await chat(sim.port, body={**STREAM, "stream_options": {"include_usage": True}})
    assert answer.whole
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.events[-1] == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in answer.events[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert [delta["content"] for delta in deltas[1:-1]] == ["hello", " brave", " world"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 3


async def test_a_stream_has_usage_only_when_asked(sim: ProviderSimulator) -> None:
    answer = await chat(sim.port, body=STREAM)
    assert "usage" not in answer.body.decode()
    assert len(answer.events) == 1 + 3 + 1 + 1


async def test_max_tokens_ends_an_answer_early(sim: ProviderSimulator) -> None:
    answer = await chat(sim.port, body={**CHAT, "max_tokens": 2})
    assert answer.json["choices"][0]["message"]["content"] == "hello brave"
    assert answer.json["choices"][0]["finish_reason"] == "length"


async def test_completions_answer_each_prompt_n_times(sim: ProviderSimulator) -> None:
    answer = await call(sim.port, "/v1/completions", {"model": "m", "prompt": ["a", "b"], "n": 2})
    assert [(c["index"], c["text"]) for c in answer.json["choices"]] == [
        (0, "a"),
        (1, "a"),
        (2, "b"),
        (3, "b"),
    ]


async def test_embeddings_depend_on_the_input_alone_and_keep_their_order(sim: ProviderSimulator) -> None:
    both = await call(sim.port, "/v1/embeddings", {"model": "e", "input": ["x", "y"]})
    alone = await call(sim.port, "/v1/embeddings", {"model": "e", "input": "y", "encoding_format": "base64"})
    short = await call(sim.port, "/v1/embeddings", {"model": "e", "input": [1, 2], "dimensions": 8})
    second = both.json["data"][1]
    packed = base64.b64decode(alone.json["data"][0]["embedding"])
    assert second["index"] == 1
    assert list(struct.unpack("<64f", packed)) == second["embedding"]
    assert sum(value * value for value in second["embedding"]) == pytest.approx(1, rel=1e-5)
    assert len(short.json["data"][0]["embedding"]) == 8
    assert short.json["usage"] == {"prompt_tokens": 2, "total_tokens": 2}


async def test_a_message_stream_has_anthropic_shape(sim: ProviderSimulator) -> None:
    answer = await call(sim.port, "/v1/messages", {**MESSAGE, "stream": True})
    names = [event.split("\n")[0].removeprefix("event: ") for event in answer.events]
    assert names == [
        "message_start", "content_block_start", "ping", *["content_block_delta"] * 3,
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    start, ended = (json.loads(answer.events[index].split("data: ")[1]) for index in (0, -2))
    assert start["message"]["usage"]["input_tokens"] == 5
    assert ended["usage"] == {"output_tokens": 3}
    assert ended["delta"]["stop_reason"] == "end_turn"


async def test_a_message_and_its_count(sim: ProviderSimulator) -> None:
    message = await call(sim.port, "/v1/messages", MESSAGE)
    count = await call(sim.port, "/v1/messages/count_tokens", CHAT)
    assert message.json["content"] == [{"type": "text", "text": "hello brave world"}]
    assert message.headers["request-id"].startswith("req_")
    assert count.json == {"input_tokens": 5}


async def test_models_are_listed_in_both_shapes(sim: ProviderSimulator) -> None:
    openai = await call(sim.port, "/v1/models")
    anthropic = await call(sim.port, "/v1/models", headers=[("anthropic-version", "2023-06-01")])
    assert [model["id"] for model in openai.json["data"]] == ["sim-chat", "sim-embed"]
    assert anthropic.json["data"][0]["type"] == "model"


async def test_a_large_or_compressed_body_is_read(sim: ProviderSimulator) -> None:
    text = "x" * (3 << 20)
    large = {"model": "m", "messages": [{"role": "user", "content": text}]}
    assert (await chat(sim.port, body=large)).json["usage"]["prompt_tokens"] == len(text) // 4
    packed = gzip.compress(json.dumps(CHAT).encode())
    answer = await call(sim.port, "/v1/chat/completions", packed, [("Content-Encoding", "gzip")])
    assert answer.status == 200
    assert sim.requests[-1].body_bytes == len(packed)


@pytest.mark.parametrize(
    ("target", "body", "method", "status"),
    [
        ("/v1/chat/completions", b"{", None, 400),
        ("/v1/chat/completions", {"model": "m"}, None, 400),
        ("/v1/chat/completions", None, "GET", 405),
        ("/v1/nothing", CHAT, None, 404),
    ],
)
async def test_a_wrong_request_gets_an_error_of_its_dialect(
    sim: ProviderSimulator, target: str, body: Any, method: str | None, status: int
) -> None:
    answer = await call(sim.port, target, body, method=method)
    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    messages = await call(sim.port, "/v1/messages", {"model": "m"})
    assert messages.json["error"]["type"] == "invalid_request_error"


async def test_unknown_keys_are_refused_in_the_dialect() -> None:
    async with ProviderSimulator(SimulatorSettings(api_keys=("k1", "k2"))) as sim:
        for header in (("Authorization", "Bearer k1"), ("x-api-key", "k2"), ("api-key", "k1")):
            assert (await call(sim.port, "/v1/chat/completions", CHAT, [header])).status == 200
        refused = await call(sim.port, "/v1/chat/completions", CHAT, [("Authorization", "Bearer k3")])
        assert (refused.status, refused.json["error"]["code"]) == (401, "invalid_api_key")
        anthropic = await call(sim.port, "/v1/messages", MESSAGE)
        assert (anthropic.status, anthropic.json["error"]["type"]) == (401, "authentication_error")


async def test_equal_seeds_give_equal_answers_and_faults() -> None:
    async def run(seed: int) -> list[tuple[int, bytes]]:
        async with faulty("status=500,rate=0.5", seed=seed) as sim:
            return [((answer := await chat(sim.port)).status, answer.body) for _ in range(20)]

    first = await run(7)
    assert {status for status, _ in first} == {200, 500}
    assert first == await run(7)
    assert first != await run(8)


async def test_a_client_that_leaves_a_stream_frees_its_place() -> None:
    settings = SimulatorSettings(tokens_per_second=10, output_tokens=1000, concurrency=1)
    async with ProviderSimulator(settings) as sim:
        async with connection(sim.port) as (reader, writer):
            writer.write(request("/v1/chat/completions", STREAM))
            await reader.readuntil(b"data: ")
        answer = await asyncio.wait_for(chat(sim.port, body={**CHAT, "max_tokens": 1}), 5)
        assert answer.status == 200
        assert sim.requests[0].ended == "client_closed"


async def test_streams_are_paced_by_tokens_per_second() -> None:
    loop = asyncio.get_running_loop()
    async with ProviderSimulator(SimulatorSettings(tokens_per_second=50, output_tokens=20)) as sim:
        begin = loop.time()
        await chat(sim.port, body=STREAM)
        assert 0.38 < loop.time() - begin < 2


async def test_latency_and_slow_faults_add_up() -> None:
    loop = asyncio.get_running_loop()
    async with faulty("slow=100ms", latency=Latency(low=0.1)) as sim:
        begin = loop.time()
        assert (await chat(sim.port)).status == 200
        assert loop.time() - begin >= 0.19
        assert sim.stats().by_fault == {"slow": 1}


async def test_the_queue_is_first_in_first_out_and_bounded() -> None:
    settings = SimulatorSettings(concurrency=1, queue=2, queue_full_status=429, latency=Latency(low=0.5))
    async with ProviderSimulator(settings) as sim:
        done: list[int] = []

        async def one(number: int) -> int:
            status = (await chat(sim.port)).status
            done.append(number)
            return status

        async with asyncio.TaskGroup() as group:
            tasks = []
            for number in range(4):
                tasks.append(group.create_task(one(number)))
                await eventually(lambda: len(sim.requests) == len(tasks))
        assert [task.result() for task in tasks] == [200, 200, 200, 429]
        assert done == [3, 0, 1, 2]
        stats = sim.stats()
        assert (stats.peak_in_flight, stats.peak_queued, stats.in_flight, stats.queued) == (1, 2, 0, 0)
        assert stats.by_status == {"200": 3, "429": 1}
