"""Faults as a client meets them on the wire."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from proxy.simulation.provider import Fault, Latency, ProviderSimulator, SimulatorSettings, parse_fault
from proxy.simulation.provider.settings import AnswerStyle
from tests.simulation.provider.wire import (
    CHAT,
    MESSAGE,
    STREAM,
    call,
    chat,
    connection,
    eventually,
    read_answer,
    request,
)


@pytest.fixture
async def sim() -> AsyncIterator[ProviderSimulator]:
    async with ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO)) as running:
        yield running


def faulty(*texts: str) -> ProviderSimulator:
    return ProviderSimulator(SimulatorSettings(faults=tuple(map(parse_fault, texts))))


async def test_a_status_carries_a_dialect_error_and_the_retry_headers(sim: ProviderSimulator) -> None:
    answer = await chat(sim.port, "status=429;retry-after=2;form=seconds+ms;code=insufficient_quota")
    assert answer.status == 429
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("2", "2000")
    assert answer.json["error"]["code"] == "insufficient_quota"
    overloaded = await call(sim.port, "/v1/messages", MESSAGE, [("x-sim-fault", "status=529")])
    assert (overloaded.status, overloaded.json["error"]["type"]) == (529, "overloaded_error")


async def test_a_status_without_a_body_leaves_the_connection_usable(sim: ProviderSimulator) -> None:
    async with connection(sim.port) as (reader, writer):
        writer.write(request("/v1/chat/completions", CHAT, [("x-sim-fault", "status=204")]))
        assert b" 204 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(request("/v1/chat/completions", CHAT))
        assert (await read_answer(reader)).status == 200


async def test_a_bad_fault_header_is_a_bad_request(sim: ProviderSimulator) -> None:
    answer = await chat(sim.port, "stauts=503")
    assert answer.status == 400
    assert "did you mean" in answer.json["error"]["message"]


async def test_a_reset_comes_before_the_head(sim: ProviderSimulator) -> None:
    with pytest.raises(ConnectionResetError):
        await chat(sim.port, "reset")
    assert sim.requests[-1].ended == "reset"
    assert sim.requests[-1].status is None


@pytest.mark.parametrize("events", [0, 3])
async def test_a_stream_is_cut_after_so_many_events(sim: ProviderSimulator, events: int) -> None:
    answer = await chat(sim.port, f"cut={events}", STREAM)
    assert (answer.status, answer.whole, len(answer.events)) == (200, False, events)
    assert sim.requests[-1].ended == "cut"


async def test_a_stream_can_be_cut_by_a_reset_or_end_as_if_whole(sim: ProviderSimulator) -> None:
    with pytest.raises(ConnectionResetError):
        await chat(sim.port, "cut=2;by=reset", STREAM)
    answer = await chat(sim.port, "cut=2;by=end", STREAM)
    assert answer.whole
    assert len(answer.events) == 2


async def test_a_body_is_truncated(sim: ProviderSimulator) -> None:
    answer = await chat(sim.port, "cut")
    assert not answer.whole
    assert len(answer.body) == int(answer.headers["content-length"]) // 2


async def test_an_error_hides_in_a_200(sim: ProviderSimulator) -> None:
    plain = await chat(sim.port, "error-in-200")
    assert (plain.status, plain.json["error"]["type"]) == (200, "server_error")
    before = await chat(sim.port, "error-in-200", STREAM)
    assert [json.loads(event[6:]).keys() for event in before.events] == [{"error"}]
    after = await chat(sim.port, "error-in-200=after", STREAM)
    assert len(after.events) == 1 + 2 + 1
    assert "error" in after.events[-1]
    headers = [("x-sim-fault", "error-in-200=after")]
    message = await call(sim.port, "/v1/messages", {**MESSAGE, "stream": True}, headers)
    assert message.events[-1].startswith("event: error\ndata: ")


async def test_a_drip_comes_byte_by_byte_and_whole(sim: ProviderSimulator) -> None:
    async with connection(sim.port) as (reader, writer):
        writer.write(request("/v1/chat/completions", STREAM, [("x-sim-fault", "drip=1ms")]))
        await reader.readuntil(b"\r\n\r\n")
        for expected in (b"d", b"a", b"t", b"a"):
            assert await reader.readexactly(6) == b"1\r\n" + expected + b"\r\n"
    assert (await chat(sim.port, "drip=100ms;")).status == 400
    assert (await chat(sim.port, "drip=0.1ms")).json["object"] == "chat.completion"


async def test_silence_lasts_until_the_client_leaves(sim: ProviderSimulator) -> None:
    async with connection(sim.port) as (reader, writer):
        writer.write(request("/v1/chat/completions", CHAT, [("x-sim-fault", "silence")]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        assert sim.stats().in_flight == 1
    await eventually(lambda: sim.requests[-1].ended == "client_closed")
    after = sim.requests[-1].ended_after_seconds
    assert after is not None
    assert after > 0.1
    assert sim.stats().in_flight == 0


async def test_scripted_faults_select_by_count_and_model() -> None:
    async with faulty("status=503,first=2", "status=500,model=b") as sim:
        statuses = [(await chat(sim.port)).status for _ in range(3)]
        other = await chat(sim.port, body={**CHAT, "model": "b"})
        assert (statuses, other.status) == ([503, 503, 200], 500)
        assert sim.stats().by_model == {"m": 3, "b": 1}


async def test_a_header_takes_the_place_of_the_script() -> None:
    async with faulty("status=503") as sim:
        assert (await chat(sim.port, "slow=1ms")).status == 200


async def test_faults_given_at_run_time_are_objects_or_texts(sim: ProviderSimulator) -> None:
    fault: Fault = parse_fault("status=500,first=1")
    sim.set_faults([fault, "status=503"])
    assert [(await chat(sim.port)).status for _ in range(2)] == [500, 503]
    sim.set_faults([])
    assert (await chat(sim.port)).status == 200


def slow(**settings: float) -> ProviderSimulator:
    thinking = Latency(low=settings["thinking"])
    return ProviderSimulator(
        SimulatorSettings(thinking=thinking, heartbeat_seconds=settings["heartbeat"], output_tokens=2)
    )


async def test_a_silent_stream_lives_by_its_heartbeat() -> None:
    async with slow(thinking=0.25, heartbeat=0.02) as sim:
        events = (await chat(sim.port, None, STREAM)).events
        comments = [index for index, event in enumerate(events) if event == ": keep-alive"]
        assert comments == list(range(1, len(comments) + 1)), "after the role, before the first token"
        assert len(comments) >= 2
        assert events[-1] == "data: [DONE]"
        named = (await call(sim.port, "/v1/messages", {**MESSAGE, "stream": True})).events
        pings = [event for event in named if event.startswith("event: ping")]
        assert len(pings) > 2
        assert json.loads(pings[-1].partition("data: ")[2]) == {"type": "ping"}
        assert named[-1].startswith("event: message_stop")


async def test_without_a_heartbeat_a_stream_that_thinks_is_silent() -> None:
    async with slow(thinking=0.05, heartbeat=0.0) as sim:
        events = (await chat(sim.port, None, STREAM)).events
        assert all(event.startswith("data: ") for event in events)


async def test_an_answer_tells_how_long_it_took_to_begin_and_a_stream_when_its_first_token_comes() -> None:
    settings = SimulatorSettings(latency=Latency(low=0.05), thinking=Latency(low=0.02), tokens_per_second=100)
    async with ProviderSimulator(settings) as sim, connection(sim.port) as (reader, writer):
        for body in (CHAT, STREAM):
            writer.write(request("/v1/chat/completions", body))
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
            told = [line.partition(": ")[2].split(";dur=") for line in lines if line.startswith("server-timing: ")]
            durations = {name: float(milliseconds) for name, milliseconds in told}
            assert durations.pop("sim") >= 50.0
            assert durations == ({"token": 30.0} if body is STREAM else {})
            if body is CHAT:
                (length,) = [int(line.split()[1]) for line in lines if line.startswith("content-length")]
                await reader.readexactly(length)
