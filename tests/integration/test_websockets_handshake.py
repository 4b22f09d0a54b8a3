"""Handshakes of WebSockets: what reaches the provider, what comes back, what is none, and what is no agreement."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.caller import Headers
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, says
from tests.integration.scripted import Exchange, Script
from tests.integration.talks import Talks, agreed, asks, entered, fields, opened, talking
from tests.websocket.encoding import KEY, TEXT, accept_of, encoded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

ENV = {"OWN": "sk-own", "OLD": "sk-old"}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "talk": {"breaker": "off"},
        "keyed": {"breaker": "off", "keys": [{"id": "own", "env": "OWN"}]},
        "rotating": {"breaker": "off", "keys": [{"id": "old", "env": "OLD"}, {"id": "new", "env": "OWN"}]},
        "short": {"breaker": "off", "timeouts": {"first_byte": "300ms"}},
        "second": {"breaker": "off"},
    },
    "routes": [
        route("talk", "talk"),
        route("keyed", "keyed"),
        route("rotating", "rotating"),
        route("short", "short", retry={"attempts": 1}),
        route("tiers", "talk", {"provider": "second", "model": "other voice"}, retry={"attempts": 1}),
    ],
}
SECRET = "openai-insecure-api-key.sk-caller"
OFFER: Headers = [("Sec-WebSocket-Protocol", f"realtime, {SECRET}, openai-organization.org-1, openai-beta.realtime-v1")]
PLAIN = b"realtime, openai-beta.realtime-v1"


async def refusal(lab: Lab, data: bytes) -> Any:
    """Sends a handshake that is not agreed to; returns the answer, after which the connection ends."""
    async with lab.wire() as wire:
        await wire.send(data)
        answer = await wire.answer(method="GET")
        assert answer.header("connection") == "close"
        assert await wire.closed()
    return answer


async def test_the_handshake_reaches_the_provider_and_its_agreement_the_caller(lab: Lab) -> None:
    talks = Talks(lab["talk"], headers=[("x-session", "s-1"), ("set-cookie", "a=1"), ("set-cookie", "b=2")])
    async with opened(lab, "/v1/realtime?intent=%41b&model=talk", headers=[("origin", "https://app.test")]) as client:
        request = (await talks.next()).request
        assert request is not None
        assert request.target == b"/v1/realtime?intent=%41b&model=talk"
        for name, value in {
            "upgrade": b"websocket",
            "connection": b"Upgrade",
            "sec-websocket-key": KEY.encode(),
            "sec-websocket-version": b"13",
            "origin": b"https://app.test",
        }.items():
            assert request.all(name) == [value], name
        assert not request.all("sec-websocket-protocol")
        assert not request.all("content-length")
        told = fields(client.answer)
        assert [value for name, value in told if name == b"set-cookie"] == [b"a=1", b"b=2"]
        assert (b"x-session", b"s-1") in told
        assert (b"x-sponson-provider", b"talk") in told
        names = [name for name, _ in told]
        assert names.count(b"upgrade") == names.count(b"connection") == 1
        assert not {b"content-length", b"transfer-encoding", b"sec-websocket-protocol"} & set(names)


@pytest.mark.parametrize("chosen", ["realtime", "openai-beta.realtime-v1", None])
async def test_the_provider_chooses_among_the_protocols_offered(lab: Lab, chosen: str | None) -> None:
    talks = Talks(lab["talk"], headers=[("Sec-WebSocket-Protocol", chosen)] if chosen else [])
    headers = [("sec-websocket-protocol", "realtime"), ("sec-websocket-protocol", "openai-beta.realtime-v1")]
    async with opened(lab, headers=headers) as client:
        request = (await talks.next()).request
        assert request is not None
        assert b", ".join(request.all("sec-websocket-protocol")) == PLAIN
        told = [value.decode() for name, value in fields(client.answer) if name == b"sec-websocket-protocol"]
        assert told == ([chosen] if chosen else [])


@pytest.mark.parametrize("offer", ["", " ", ",", " , "])
async def test_an_offer_of_nothing_is_not_passed_on(lab: Lab, offer: str) -> None:
    async with talking(lab, headers=[("sec-websocket-protocol", offer)]) as (_, provider):
        assert provider.request is not None
        assert not provider.request.all("sec-websocket-protocol")


async def test_keys_in_the_offer_go_where_the_callers_credential_goes(lab: Lab) -> None:
    async with talking(lab, headers=OFFER) as (_, provider):
        assert provider.request is not None
        assert provider.request.header("sec-websocket-protocol") == dict(OFFER)["Sec-WebSocket-Protocol"]


async def test_keys_in_the_offer_do_not_reach_a_provider_that_has_its_own(lab: Lab) -> None:
    path = "/v1/realtime?model=keyed"
    async with talking(lab, provider="keyed", path=path, headers=OFFER) as (_, provider):
        assert provider.request is not None
        assert provider.request.all("sec-websocket-protocol") == [PLAIN]
        assert provider.request.header("authorization") == "Bearer sk-own"
        assert b"sk-caller" not in provider.request.head


async def test_a_later_tier_gets_its_own_model_and_no_key_of_the_callers(lab: Lab) -> None:
    lab["talk"].script = answers(503)
    path = "/v1/realtime?model=tiers&v=1"
    headers = [*OFFER, ("authorization", "Bearer sk-caller")]
    async with talking(lab, provider="second", path=path, headers=headers) as (client, provider):
        assert provider.request is not None
        assert provider.request.target == b"/v1/realtime?model=other%20voice&v=1"
        assert provider.request.all("sec-websocket-protocol") == [PLAIN]
        assert b"sk-caller" not in provider.request.head
        assert {(b"x-sponson-provider", b"second"), (b"x-sponson-tier", b"2")} <= set(fields(client.answer))
        await provider.say(b"hi")
        await client.hears(b"hi")


@pytest.mark.parametrize("status", [400, 401, 404, 426])
async def test_a_refusal_is_passed_on_as_it_came(lab: Lab, status: int) -> None:
    document = {"error": {"message": "no", "type": "invalid_request_error"}}
    lab["talk"].script = answers(status, document, headers=[("sec-websocket-version", "13")])
    answer = await refusal(lab, asks())
    assert (answer.status, answer.json(), answer.provider) == (status, document, "talk")
    assert answer.header("sec-websocket-version") == "13"


async def test_who_answers_instead_of_switching_has_answered(lab: Lab) -> None:
    lab["talk"].script = says("no socket here")
    answer = await refusal(lab, asks() + b"\x81\x85\0\0\0\0early")
    assert answer.status == 200
    assert "no socket here" in answer.body.decode()


async def test_no_route_is_answered_as_any_request_is(lab: Lab) -> None:
    answer = await refusal(lab, asks("/v1/realtime?model=nobody"))
    assert (answer.status, answer.reason) == (404, "no_route")


async def test_a_query_that_two_readers_could_route_differently_is_refused(lab: Lab) -> None:
    answer = await refusal(lab, asks("/v1/realtime?model=talk&m%6fdel=keyed"))
    assert (answer.status, answer.reason) == (400, "bad_request")
    assert "name one" in answer.body.decode()
    assert lab["talk"].seen == lab["keyed"].seen == []


def lines(*more: bytes, accept: bytes | None = None) -> Script:
    """A provider that switches with these lines, and sends a message."""

    async def script(exchange: Exchange) -> None:
        told = accept_of(exchange.request.header("sec-websocket-key") or "") if accept is None else accept
        head = [b"HTTP/1.1 101 Switching Protocols", *more]
        head += [b"sec-websocket-accept: " + told] if told else []
        await exchange.send(b"\r\n".join(head) + b"\r\n\r\n" + encoded(TEXT, b"hello"))
        await asyncio.Event().wait()

    return script


UPGRADE, CONNECTION = b"upgrade: websocket", b"connection: upgrade"


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(lines(UPGRADE, CONNECTION, accept=b"AAAAAAAAAAAAAAAAAAAAAAAAAAA="), id="another key's answer"),
        pytest.param(lines(UPGRADE, CONNECTION, accept=b""), id="no answer to the key"),
        pytest.param(lines(CONNECTION), id="no upgrade"),
        pytest.param(lines(b"upgrade: h2c", CONNECTION), id="another protocol"),
        pytest.param(lines(UPGRADE), id="no connection"),
        pytest.param(lines(UPGRADE, b"connection: keep-alive"), id="another option of the connection"),
    ],
)
async def test_what_does_not_agree_is_a_bad_answer(lab: Lab, script: Script) -> None:
    lab["talk"].script = script
    answer = await refusal(lab, asks())
    assert (answer.status, answer.reason) == (502, "upstream_unreachable")
    await lab["talk"].was_left()


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([b"Upgrade: WebSocket", b"Connection: keep-alive, Upgrade"], id="case and a list"),
        pytest.param([b"upgrade:websocket  ", b"connection:\tupgrade\t", b"content-length: 0"], id="white space"),
        pytest.param([UPGRADE, CONNECTION, b"content-length: 7"], id="a length, which means nothing here"),
        pytest.param([UPGRADE, CONNECTION, b"transfer-encoding: chunked"], id="a coding, which means nothing here"),
    ],
)
async def test_an_agreement_may_be_spelled_in_many_ways(lab: Lab, more: list[bytes]) -> None:
    lab["talk"].script = lines(*more)
    async with lab.wire() as wire:
        await wire.send(asks())
        client = await entered(wire)
        await client.hears(b"hello")
        assert not {b"content-length", b"transfer-encoding"} & {name for name, _ in fields(client.answer)}


async def test_interim_answers_before_the_agreement_are_passed_over(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n")
        await exchange.send(agreed(exchange) + encoded(TEXT, b"hello"))
        await asyncio.Event().wait()

    lab["talk"].script = script
    async with opened(lab) as client:
        await client.hears(b"hello")


@pytest.mark.parametrize(
    ("method", "told"), [("GET", (502, "upstream_unreachable")), ("POST", (504, "maybe_executed"))]
)
async def test_an_agreement_that_nobody_asked_for_is_a_bad_answer(lab: Lab, method: str, told: tuple[int, str]) -> None:
    lab["talk"].script = lines(UPGRADE, CONNECTION)
    answer = await lab.call("/talk/v1/realtime", method=method, body=b"" if method == "POST" else None)
    assert (answer.status, answer.reason) == told


async def test_a_provider_that_is_slow_to_agree_is_given_up(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    lab["short"].script = script
    answer = await refusal(lab, asks("/v1/realtime?model=short"))
    assert (answer.status, answer.reason) == (504, "first_byte_timeout")
    await lab["short"].was_left()


@pytest.mark.parametrize("reset", [True, False])
async def test_a_caller_that_leaves_during_the_handshake_lets_the_provider_go(lab: Lab, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await asyncio.Event().wait()

    lab["talk"].script = script
    async with lab.wire() as wire:
        await wire.send(asks() + b"\x81\x85\0\0\0\0early")
        await lab["talk"].has_seen(1)
        wire.leave(reset=reset)
    await lab["talk"].was_left()
    await lab.idle()


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_provider_that_goes_during_the_handshake_is_followed_by_another_one(lab: Lab, end: str) -> None:
    async def script(exchange: Exchange) -> None:
        getattr(exchange, end)()

    lab["talk"].script = script
    async with talking(lab, provider="second", path="/v1/realtime?model=tiers") as (client, provider):
        await provider.say(b"hi")
        await client.hears(b"hi")


async def test_a_key_that_is_rejected_is_followed_by_another_one(lab: Lab) -> None:
    talks = Talks(lab["rotating"])
    agrees = lab["rotating"].script

    async def script(exchange: Exchange) -> None:
        if exchange.request.header("authorization") == "Bearer sk-old":
            await exchange.reply(401, {"error": {"message": "revoked"}})
        else:
            await agrees(exchange)

    lab["rotating"].script = script
    for _ in range(3):
        async with opened(lab, "/v1/realtime?model=rotating") as client:
            request = (await talks.next()).request
            assert request is not None
            assert request.header("authorization") == "Bearer sk-own"
            assert (b"x-sponson-provider", b"rotating") in fields(client.answer)


async def test_an_idempotency_key_makes_no_two_conversations_one(lab: Lab) -> None:
    key = [("idempotency-key", "the same")]
    async with talking(lab, headers=key) as (one, _), talking(lab, headers=key) as (two, provider):
        await two.say(b"second")
        await provider.hears(b"second")
        await one.say(b"first")
    assert len(lab["talk"].seen) == 2


async def test_a_provider_may_be_named_by_the_path(lab: Lab) -> None:
    async with talking(lab, provider="second", path="/second/v1/realtime?call_id=7") as (client, provider):
        assert provider.request is not None
        assert provider.request.target == b"/v1/realtime?call_id=7"
        await client.say(b"hi")
        await provider.hears(b"hi")
