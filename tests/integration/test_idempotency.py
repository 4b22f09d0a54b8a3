"""The same key is the same answer: one call, whoever asks and whenever."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest

from tests.integration.harness import Lab, route
from tests.integration.keyed import OWN, SECRETS, conflict, key, request
from tests.integration.messages import (
    CHAT,
    CHAT_STREAM,
    DONE,
    answers,
    event,
    hangs,
    in_two_parts,
    said,
    says,
    streams,
    when,
)
from tests.integration.scripted import Exchange

AGENT = {"from": ["x-agent-id", "x-task-id", "x-operation"]}
POLICY = {
    "version": 1,
    "providers": {"alpha": OWN, "open": {"breaker": "off"}, "other": OWN},
    "routes": [
        route("chat", "alpha"),
        route("again", "alpha"),
        route("write", "alpha", repeatable=False),
        route("tiers", "alpha", "other", repeatable=False, retry={"attempts": 2, "base": "10ms"}),
        route("parts", "alpha", idempotency=AGENT),
        route("open", "open"),
        route("short", "alpha", idempotency={"header": "idempotency-key", "keep": "300ms"}),
    ],
}
ENV = SECRETS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]


async def test_one_key_is_one_call_in_flight_and_afterwards(lab: Lab) -> None:
    lab["alpha"].script = says("hi", after=0.3)
    asked = await asyncio.gather(*(lab.chat("chat", headers=key("one")) for _ in range(5)))
    again = await lab.chat("chat", headers=key("one"))
    assert len(lab["alpha"].seen) == 1
    assert {answer.status for answer in (*asked, again)} == {200}
    assert {answer.body for answer in (*asked, again)} == {asked[0].body}
    assert [answer.attempts for answer in (*asked, again)] == [1, 0, 0, 0, 0, 0]
    assert {answer.provider for answer in (*asked, again)} == {"alpha"}
    assert {answer.tier for answer in (*asked, again)} == {1}
    ids = {answer.header("x-sponson-request-id") for answer in (*asked, again)}
    assert len(ids) == 6
    line = await lab.proxy.line_of(again)
    assert (line["outcome"], line["attempts"], line.get("input_tokens")) == ("ok", 0, None)


LINES = [
    (b"Set-Cookie", b"a=1; Expires=Thu, 01 Jan 2027 00:00:00 GMT"),
    (b"x-note", b"caf\xe9 \xff"),
    (b"Link", b"<a>"),
    (b"set-cookie", b"b=2"),
    (b"Content-Encoding", b"gzip"),
    (b"Link", b"<b>"),
    (b"Set-Cookie", b"a=1"),
]


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "length"])
@pytest.mark.parametrize("status", [200, 404])
async def test_whoever_is_given_an_answer_gets_its_lines_and_its_packed_bytes(
    lab: Lab, status: int, chunked: bool
) -> None:
    data = gzip.compress(json.dumps(said("packed")).encode())
    framing, body = b"content-length: %d" % len(data), data
    if chunked:
        framing, body = b"transfer-encoding: chunked", b"%x\r\n%b\r\n0\r\nx-sum: 1\r\n\r\n" % (len(data), data)
    head = b"".join(b"%b: %b\r\n" % line for line in LINES)

    async def script(exchange: Exchange) -> None:
        if exchange.number == 0:
            await lab.proxy.until(lambda status: status["in_flight"] == 3)
        await exchange.send(b"HTTP/1.1 %d Said\r\n%b%b\r\n\r\n%b" % (status, head, framing, body))

    lab["alpha"].script = script
    name = f"lines {status} {chunked}"
    asked = await asyncio.gather(*(lab.chat("chat", headers=key(name)) for _ in range(3)))
    for answer in (*asked, await lab.chat("chat", headers=key(name))):
        assert (answer.status, answer.phrase, answer.complete, answer.body) == (status, "Said", True, data)
        names = {name.lower() for name, _ in LINES}
        assert [line for line in answer.headers if line[0].lower() in names] == LINES
        assert len(answer.all("content-length")) + len(answer.all("transfer-encoding")) == 1
        assert answer.header("x-sum") is None
    # What failed is not kept.
    assert len(lab["alpha"].seen) == (1 if status == 200 else 2)


async def test_another_key_and_no_key_are_calls_of_their_own(lab: Lab) -> None:
    for headers in (key("two"), key("three"), (), ()):
        assert (await lab.chat("chat", headers=headers)).status == 200
    assert len(lab["alpha"].seen) == 4


async def test_another_body_is_a_conflict_in_flight_and_afterwards(lab: Lab) -> None:
    lab["alpha"].script = says("hi", after=0.3)
    running = asyncio.ensure_future(lab.chat("chat", headers=key("body")))
    await lab["alpha"].has_seen(1)
    other = {**CHAT, "model": "chat", "max_tokens": 11}
    assert "another request" in conflict(await lab.call(body=other, headers=key("body")))
    assert (await running).status == 200
    assert "another request" in conflict(await lab.call(body=other, headers=key("body")))
    stream = {**CHAT_STREAM, "model": "chat"}
    assert "another request" in conflict(await lab.call(body=stream, headers=key("body")))
    assert len(lab["alpha"].seen) == 1


async def test_a_conflict_speaks_the_caller_s_dialect(lab: Lab) -> None:
    await lab.call("/alpha/v1/messages", {**CHAT, "max_tokens": 1}, headers=key("dialect"))
    answer = await lab.call("/alpha/v1/messages", {**CHAT, "max_tokens": 2}, headers=key("dialect"))
    assert answer.json()["type"] == "error"
    conflict(answer)


async def test_a_stream_is_joined_from_its_beginning_and_given_again(lab: Lab) -> None:
    more = asyncio.Event()
    lab["alpha"].script = in_two_parts(more)
    async with lab.wire() as leader:
        await leader.send(request(stream=True, value="stream"))
        await leader.reader.readuntil(b"one ")
        joined = asyncio.ensure_future(lab.chat("chat", stream=True, headers=key("stream")))
        await lab.proxy.until(lambda status: status["idempotency"]["joined"] > 0)
        more.set()
        await leader.reader.readuntil(DONE)
    found = await joined
    again = await lab.chat("chat", stream=True, headers=key("stream"))
    assert len(lab["alpha"].seen) == 1
    assert found.body == again.body == event("one ") + event("two") + DONE
    assert found.complete
    assert again.complete


async def test_whoever_leaves_hurts_nobody_while_somebody_stays(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["alpha"].script = when(gate, says("hi"))
    leader = asyncio.ensure_future(lab.chat("write", headers=key("stay")))
    await lab["alpha"].has_seen(1)
    stays = asyncio.ensure_future(lab.chat("write", headers=key("stay")))
    await lab.proxy.until(lambda status: status["in_flight"] == 2)
    leader.cancel()
    await lab.proxy.until(lambda status: status["in_flight"] == 1)
    gate.set()
    assert (await stays).status == 200
    assert len(lab["alpha"].seen) == 1
    assert not lab["alpha"].left_at
    line = await lab.proxy.line_of(await stays)
    assert (line["attempts"], line["input_tokens"]) == (1, 5)


async def test_the_caller_s_own_header_reaches_every_provider_as_it_came(lab: Lab) -> None:
    lab["alpha"].script = answers(503)
    answer = await lab.chat("tiers", headers=key('"q/1"'))
    assert answer.status == 200
    assert lab["other"].only.all("idempotency-key") == [b'"q/1"']


async def test_a_key_of_several_headers_needs_them_all(lab: Lab) -> None:
    whole = [("x-agent-id", "a"), ("x-task-id", "t"), ("x-operation", "1")]
    for missing in range(3):
        answer = await lab.chat("parts", headers=[pair for i, pair in enumerate(whole) if i != missing])
        assert (answer.status, answer.reason) == (400, "bad_request")
        assert f"missing: {whole[missing][0]}" in answer.json()["error"]["message"]
    assert (await lab.chat("parts")).status == 400
    assert not lab["alpha"].seen
    for headers in (whole, whole, [*whole[:2], ("x-operation", "2")]):
        assert (await lab.chat("parts", headers=headers)).status == 200
    assert len(lab["alpha"].seen) == 2


async def test_an_empty_or_repeated_key_is_refused(lab: Lab) -> None:
    for headers in ([("idempotency-key", "")], [("idempotency-key", "1"), ("Idempotency-Key", "2")]):
        answer = await lab.chat("chat", headers=headers)
        assert (answer.status, answer.reason) == (400, "bad_request")
    assert not lab["alpha"].seen


async def test_nobody_is_given_what_another_credential_was_answered(lab: Lab) -> None:
    lab["open"].script = says("secret")
    for token in ("one", "two", "one"):
        answer = await lab.chat("open", headers=key("mine", ("authorization", f"Bearer {token}")))
        assert answer.status == 200
    assert [request.header("authorization") for request in lab["open"].seen] == ["Bearer one", "Bearer two"]


async def test_a_key_holds_within_its_route(lab: Lab) -> None:
    for model in ("chat", "again"):
        assert (await lab.chat(model, headers=key("route"))).status == 200
    assert len(lab["alpha"].seen) == 2


async def test_a_key_is_forgotten_when_its_time_is_over(lab: Lab) -> None:
    before = (await lab.proxy.status())["idempotency"]["answers"]
    assert (await lab.chat("short", headers=key("time"))).status == 200
    async with asyncio.timeout(10):
        while (await lab.chat("short", headers=key("time"))).attempts == 0:
            await asyncio.sleep(0.05)
    assert len(lab["alpha"].seen) == 2
    await lab.proxy.until(lambda status: status["idempotency"]["answers"] == before)


async def test_a_get_is_given_again_and_a_head_is_another_request(lab: Lab) -> None:
    lab["alpha"].script = answers(200, said("hi"), headers=[("x-up", "1")])
    for method in ("GET", "HEAD"):
        found = [await lab.call("/alpha/v1/models", method=method, headers=key("get")) for _ in range(2)]
        if method == "HEAD":
            assert [answer.status for answer in found] == [409, 409]
        else:
            assert [(answer.status, answer.header("x-up")) for answer in found] == [(200, "1"), (200, "1")]
            assert found[0].body == found[1].body


async def test_a_body_that_is_passed_on_unread_is_sent_once(lab: Lab) -> None:
    lab["alpha"].reads_bodies = False

    async def script(exchange: Exchange) -> None:
        await exchange.read_body()
        await exchange.reply(200, {"text": "heard"})

    lab["alpha"].script = script
    head = [("content-type", "multipart/form-data; boundary=b"), *key("upload")]
    upload = b"u" * 400_000
    answer = await lab.call("/alpha/v1/audio/transcriptions", upload, headers=head)
    assert answer.status == 200
    answer = await lab.call("/alpha/v1/audio/transcriptions", upload, headers=head)
    assert "cannot be compared" in conflict(answer)
    assert len(lab["alpha"].seen[0].body) == 400_000


async def test_the_caller_who_closes_after_the_last_event_has_made_the_answer_whole(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("all"))
        await exchange.chunk(DONE)
        await hangs(exchange)

    lab["alpha"].script = script
    async with lab.wire() as wire:
        await wire.send(request(stream=True, value="done", model="write"))
        await wire.reader.readuntil(DONE)
    await lab["alpha"].was_left()
    await lab.proxy.until(lambda status: status["in_flight"] == 0)
    assert lab.proxy.request_lines()[-1]["outcome"] == "ok"
    again = await lab.chat("write", stream=True, headers=key("done"))
    assert (again.body, again.complete) == (event("all") + DONE, True)
    assert len(lab["alpha"].seen) == 1


async def test_status_tells_how_many_and_no_key(lab: Lab) -> None:
    lab["alpha"].script = streams(event("x"), DONE)
    before = (await lab.proxy.status())["idempotency"]
    for _ in range(2):
        await lab.chat("chat", stream=True, headers=key("never-shown"))
        await lab.idle()
    status = await lab.proxy.status()
    after = status["idempotency"]
    assert after["replayed"] == before["replayed"] + 1
    assert after["answers"] == before["answers"] + 1
    assert (after["running"], after["bytes"] > before["bytes"]) == (0, True)
    assert "never-shown" not in json.dumps(status) + lab.proxy.log()
