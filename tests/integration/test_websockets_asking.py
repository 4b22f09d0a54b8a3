"""Requests for WebSockets: in how many ways one may be spelled, and what is an ordinary request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.caller import Headers, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.talks import Talks, asks, entered
from tests.websocket.encoding import KEY

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {"version": 1, "providers": {"talk": {"breaker": "off"}}, "routes": [route("talk", "talk")]}
OFFER: Headers = [("sec-websocket-protocol", "realtime")]


def variant(method: str = "GET", version: str = "1.1", *, body: bytes | None = None, headers: Headers = ()) -> bytes:
    """A request that looks like a handshake."""
    data = request_bytes(method, "/talk/v1/realtime", headers=[*headers, *OFFER], body=body)
    return data.replace(b" HTTP/1.1\r\n", f" HTTP/{version}\r\n".encode(), 1)


OWN: list[tuple[str, str]] = [("upgrade", "websocket"), ("connection", "upgrade"), ("sec-websocket-key", KEY)]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(variant("POST", headers=OWN, body=b""), id="post"),
        pytest.param(variant(version="1.0", headers=OWN), id="version 1.0"),
        pytest.param(variant(headers=OWN, body=b"four"), id="a body"),
        pytest.param(variant(headers=[*OWN[1:], ("upgrade", "websocket, h2c")]), id="two protocols"),
        pytest.param(variant(headers=[*OWN, ("upgrade", "h2c")]), id="two lines"),
        pytest.param(variant(headers=[*OWN, OWN[2]]), id="two keys"),
        pytest.param(variant(headers=OWN[:2]), id="no key"),
        pytest.param(variant(headers=[OWN[0], OWN[2]]), id="no connection"),
        pytest.param(variant(headers=[("upgrade", "websocket-2"), *OWN[1:]]), id="another protocol"),
    ],
)
async def test_what_is_no_handshake_is_an_ordinary_request_without_an_offer(lab: Lab, data: bytes) -> None:
    async with lab.wire() as wire:
        await wire.send(data)
        answer = await wire.answer(method="GET")
        assert (answer.status, answer.header("upgrade")) == (200, None)
        request = lab["talk"].only
        assert request.target == b"/v1/realtime"
        assert request.body == data.partition(b"\r\n\r\n")[2]
        assert not {"upgrade", "connection", "sec-websocket-protocol"} & set(request.names)
        if answer.header("connection") != "close":
            await wire.send(request_bytes("GET", "/talk/v1/models"))
            assert (await wire.answer(method="GET")).status == 200


@pytest.mark.parametrize("spelled", ["websocket", "WebSocket", "WEBSOCKET"])
async def test_a_handshake_may_be_spelled_in_many_ways(lab: Lab, spelled: str) -> None:
    talks = Talks(lab["talk"])
    headers = [("UPGRADE", spelled + " "), ("connection", "keep-alive,\tUpgrade "), ("SEC-WEBSOCKET-KEY", f"{KEY}\t ")]
    headers.append(("content-length", "0"))
    async with lab.wire() as wire:
        await wire.send(request_bytes("GET", "/v1/realtime?model=talk", headers=headers))
        client = await entered(wire)
        await client.say(b"hi")
        await (await talks.next()).hears(b"hi")


async def test_a_handshake_may_follow_other_requests_and_none_may_follow_it(lab: Lab) -> None:
    talks = Talks(lab["talk"])
    async with lab.wire() as wire:
        await wire.send(request_bytes("GET", "/nowhere") + asks() + request_bytes("GET", "/nowhere"))
        assert (await wire.answer(method="GET")).status == 404
        client, provider = await entered(wire), await talks.next()
        # What follows a handshake is frames; a request is none.
        assert (await provider.told())[0] == 1001
        assert (await client.told())[0] == 1002
