"""Bodies that are sent again: exactly as the policy says, over attempts and tiers, or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest

from tests.integration.caller import HOST, Answer, Headers, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, event, in_turn, says, streams
from tests.integration.scripted import Exchange, Script, ScriptedProvider
from tests.ports import free_port

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

REPLAY = 24 * 1024
BODY = {"replay": "24KiB"}
TWICE = {"attempts": 2, "base": "5ms", "cap": "10ms"}
COUNTED = {"breaker": "off", "limits": {"tpm": 100_000_000, "rpm": 100_000}}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "first": {"breaker": "off"},
        "second": COUNTED,
        "third": {"breaker": "off"},
        "gone": {"breaker": "off", "base_url": f"http://{HOST}:{free_port()}/v1"},
    },
    "routes": [
        route(
            "walk",
            "first",
            {"provider": "second", "model": "another-model"},
            {"provider": "third", "model": "small", "set": {"max_tokens": 64, "seed": None}},
            retry=TWICE,
            body=BODY,
        ),
        route("counted", {"provider": "second", "model": "another-model"}, retry={"attempts": 3, "base": "5ms"}),
        route("far", "gone", "third", match={"path": "/v1/far"}, body=BODY),
        route("again", "first", retry={"attempts": 3, "base": "5ms"}, body=BODY, repeatable=True),
        route("files", "first", "third", match={"path": "/v1/files"}, retry=TWICE, body=BODY, repeatable=True),
    ],
}
JSON = ("content-type", "application/json")
FORM = ("content-type", "multipart/form-data; boundary=zzz")
TAIL = ',"seed":7,"big":90071992547409931, "odd":"\\u00e9\\/" , "messages":[{"role":"user","content":""}]}'


def body_of(model: str, size: int, *, stream: bool = False) -> bytes:
    """Returns a chat of exactly this many bytes, written as no library would write it."""
    frame = f'{{ "model" :"{model}","stream":{json.dumps(stream)}{TAIL}'.encode()
    return frame.replace(b'"content":""', b'"content":"' + b"w" * (size - len(frame)) + b'"')


def sums(provider: ScriptedProvider) -> list[str]:
    """What the provider received, request by request."""
    return [hashlib.sha256(request.body).hexdigest() for request in provider.seen]


def sum_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def chunks_of(body: bytes) -> bytes:
    """Returns the body in chunks whose sizes all differ."""
    parts, at, size = [], 0, 1
    while at < len(body):
        part = body[at : at + size]
        parts.append(b"%x\r\n%b\r\n" % (len(part), part))
        at, size = at + size, size + 7
    return b"".join(parts) + b"0\r\n\r\n"


async def send(lab: Lab, body: bytes, *, chunked: bool, headers: Headers = (JSON,)) -> Answer:
    """Sends a chat, with its length or in chunks."""
    if chunked:
        return await lab.call(body=chunks_of(body), headers=[*headers, ("transfer-encoding", "chunked")])
    return await lab.call(body=body, headers=headers)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", [REPLAY - 1, REPLAY])
async def test_every_attempt_of_a_tier_has_the_same_bytes_and_they_are_what_the_policy_says(
    lab: Lab, size: int, chunked: bool
) -> None:
    for name in ("first", "second"):
        lab[name].script = answers(503)
    body = body_of("walk", size)
    answer = await send(lab, body, chunked=chunked)
    assert (answer.status, answer.tier, answer.attempts) == (200, 3, 4)
    renamed = body.replace(b'"walk"', b'"another-model"')
    changed = body.replace(b'"walk"', b'"small"').replace(b'"seed":7', b'"seed":null')[:-1] + b',"max_tokens":64}'
    found = sums(lab["first"]) + sums(lab["second"]) + sums(lab["third"])
    assert sorted(set(found)) == sorted({sum_of(body), sum_of(renamed), sum_of(changed)})
    assert len(found) == 4
    assert json.loads(lab["third"].only.body)["big"] == 90071992547409931


async def test_usage_is_asked_for_in_the_same_way_at_every_attempt_of_the_tier_that_counts(lab: Lab) -> None:
    lab["second"].script = in_turn(answers(500), answers(503), streams(event("hi"), b"data: [DONE]\n\n"))
    body = body_of("counted", 2000, stream=True)
    answer = await send(lab, body, chunked=False)
    assert (answer.status, answer.attempts) == (200, 3)
    asked = body.replace(b'"counted"', b'"another-model"')[:-1] + b',"stream_options":{"include_usage":true}}'
    assert sums(lab["second"]) == [sum_of(asked)] * 3


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
async def test_one_byte_more_is_sent_once_and_its_failure_is_told(lab: Lab, chunked: bool) -> None:
    lab["first"].script = answers(503)
    body = body_of("walk", REPLAY + 1)
    answer = await send(lab, body, chunked=chunked)
    assert (answer.status, answer.attempts, answer.tier) == (503, 1, 1)
    assert answer.json()["error"]["message"] == "this is 503"
    assert sums(lab["first"]) == [sum_of(body)]
    assert lab["second"].seen == lab["third"].seen == []


def breaks(after: int) -> Script:
    """A provider that is reset when it has read so much of a body."""

    async def script(exchange: Exchange) -> None:
        exchange.request.body = await exchange.ears.readexactly(after)
        exchange.reset()

    return script


async def reads_all(exchange: Exchange) -> None:
    """A provider that answers a body which it reads by itself."""
    await exchange.read_body()
    await says("well")(exchange)


@pytest.mark.parametrize("after", [0, 1, 12_000])
async def test_a_provider_that_breaks_within_the_body_gets_all_of_it_again(lab: Lab, after: int) -> None:
    lab["first"].reads_bodies = False
    lab["first"].script = in_turn(breaks(after), breaks(after), reads_all)
    body = body_of("again", REPLAY)
    answer = await send(lab, body, chunked=True)
    assert (answer.status, answer.attempts) == (200, 3)
    assert [len(request.body) for request in lab["first"].seen] == [after, after, len(body)]
    assert lab["first"].seen[-1].body == body
    assert {request.header("content-length") for request in lab["first"].seen} == {str(len(body))}


@pytest.mark.parametrize("fails", [breaks(10), answers(503), answers(429)], ids=["breaks", "503", "429"])
async def test_a_body_that_is_still_coming_when_its_provider_fails_is_sent_to_nobody_else(
    lab: Lab, fails: Script
) -> None:
    provider = lab["first"]
    provider.reads_bodies = False
    provider.script = fails
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/v1/files", headers=[FORM, ("content-length", "1000")]) + b"n" * 500)
        answer = await wire.answer(within=10)
    assert (answer.status in (429, 502, 503), answer.attempts) == (True, 1)
    assert len(provider.seen) == 1
    assert lab["third"].seen == []


async def test_a_body_that_is_still_coming_waits_for_nobody_before_it_is_whole(lab: Lab) -> None:
    """JSON is read whole first: no provider ever sees a part of it, or none."""
    body = body_of("again", REPLAY)
    async with lab.wire() as wire:
        head = request_bytes("POST", "/v1/chat/completions", headers=[JSON, ("content-length", str(len(body)))])
        await wire.send(head + body[:-1])
        await asyncio.sleep(0.1)
        assert lab["first"].seen == []
        await wire.send(body[-1:])
        assert (await wire.answer()).status == 200
    assert sums(lab["first"]) == [sum_of(body)]


async def test_an_upload_that_nobody_has_taken_goes_to_the_next_tier_whole(lab: Lab) -> None:
    """The first could not be reached, so nothing of it was sent."""
    body = b"\x00file\xff" * 9000
    headers = [FORM, ("transfer-encoding", "chunked")]
    answer = await lab.call("/v1/far", chunks_of(body), headers=headers)
    assert (answer.status, answer.tier) == (200, 2)
    assert lab["third"].only.body == body
