"""Request bodies in a coding: they pass byte for byte, nobody unpacks them, and whatever must read them says so."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, says
from tests.integration.scripted import Exchange
from tests.integration.test_slow_readers import resident_mib

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": "off"},
        "counted": {"breaker": "off", "limits": {"tpm": 1_000_000}},
        "claude": {"breaker": "off", "dialect": "anthropic"},
    },
    "routes": [
        route("named", "alpha", match={"path": "/named/*", "model": "m*"}),
        route("set", {"provider": "alpha", "set": {"max_tokens": 5}}, match={"path": "/set/*"}),
        route("renamed", {"provider": "claude", "model": "other"}, match={"path": "/v1/messages"}),
        route("counted", "counted", match={"path": "/counted/*"}),
        route("again", "alpha", match={"path": "/again/*"}, retry={"attempts": 2, "base": "5ms"}, repeatable=True),
        route("once", "alpha", match={"path": "/once/*"}, retry={"attempts": 2, "base": "5ms"}),
    ],
}
CHAT = "/v1/chat/completions"
PLAIN = json.dumps({"model": "m", "messages": [{"role": "user", "content": "pack me " * 400}]}).encode()
PACKED = gzip.compress(PLAIN)
BODIES = {
    "gzip": ("gzip", PACKED),
    "deflate": ("deflate", zlib.compress(PLAIN)),
    "cut": ("gzip", PACKED[:-9]),
    "no gzip at all": ("gzip", b"\x1f\x8b this is none \x00\xff"),
    "another coding": ("zstd", b"\x28\xb5\x2f\xfd\x04\x00" + PACKED[9:40]),
    "twice": ("gzip, br", gzip.compress(PACKED)),
    "of nobody": ("x-own;q=1", PACKED[::-1]),
    "two members": ("gzip", PACKED + PACKED),
}


async def send(lab: Lab, path: str, body: bytes, coding: str = "gzip", *, chunked: bool = False, **more: str) -> Answer:
    """Sends a body that is said to be JSON in this coding."""
    headers = [("content-type", "application/json"), ("content-encoding", coding)]
    headers += [(name.replace("_", "-"), value) for name, value in more.items()]
    if not chunked:
        return await lab.call(path, body, headers=headers)
    parts = [body[at : at + 100] for at in range(0, len(body), 100)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    return await lab.call(path, framed, headers=[*headers, ("transfer-encoding", "chunked")])


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("path", ["/alpha" + CHAT, "/alpha/v1/unknown", "/counted" + CHAT])
@pytest.mark.parametrize("name", BODIES)
async def test_a_coded_body_passes_as_it_is(lab: Lab, name: str, path: str, chunked: bool) -> None:
    coding, body = BODIES[name]
    assert (await send(lab, path, body, coding, chunked=chunked)).status == 200
    seen = lab["counted" if "counted" in path else "alpha"].only
    assert seen.body == body
    assert seen.all("content-encoding") == [coding.encode()]
    assert seen.header("content-length") == str(len(body))


@pytest.mark.parametrize("name", BODIES)
async def test_a_route_that_must_change_it_says_that_it_reads_no_packed_body(lab: Lab, name: str) -> None:
    coding, body = BODIES[name]
    for path, kind in (("/set" + CHAT, "invalid_request_error"), ("/v1/messages", "invalid_request_error")):
        answer = await send(lab, path, body, coding)
        assert (answer.status, answer.reason) == (400, "bad_request")
        assert answer.json()["error"]["type"] == kind
        assert "content-encoding" in answer.json()["error"]["message"]
    assert lab["alpha"].seen == lab["claude"].seen == []


async def test_a_model_in_a_packed_body_chooses_no_route_and_the_caller_is_told_why(lab: Lab) -> None:
    answer = await send(lab, "/named" + CHAT, PACKED)
    assert (answer.status, answer.reason) == (404, "no_route")
    assert "content-encoding" in answer.json()["error"]["message"]
    plain = await lab.call("/named" + CHAT, {"model": "q"})
    assert (plain.status, "content-encoding" in plain.json()["error"]["message"]) == (404, False)


async def test_a_body_that_only_says_that_it_is_packed_is_read_as_what_it_is(lab: Lab) -> None:
    assert (await send(lab, "/named" + CHAT, PLAIN, "identity")).status == 200
    assert lab["alpha"].only.body == PLAIN


async def test_what_it_asks_is_not_known_so_it_is_sent_again_only_where_the_route_says_so(lab: Lab) -> None:
    lab["alpha"].script = answers(503)
    assert (await send(lab, "/once" + CHAT, PACKED)).attempts == 2
    lab["alpha"].script = resets_after_reading
    assert (await send(lab, "/once" + CHAT, PACKED)).attempts == 1
    assert (await send(lab, "/again" + CHAT, PACKED)).attempts == 2
    assert {request.body for request in lab["alpha"].seen} == {PACKED}


async def resets_after_reading(exchange: Exchange) -> None:
    """A provider of which nobody knows whether it has executed what it read."""
    exchange.reset()


async def test_its_idempotency_key_holds_for_its_bytes(lab: Lab) -> None:
    lab["alpha"].script = says("once")
    first = await send(lab, "/once" + CHAT, PACKED, idempotency_key="k-1")
    same = await send(lab, "/once" + CHAT, PACKED, idempotency_key="k-1")
    assert (first.status, same.status, same.body, same.attempts) == (200, 200, first.body, 0)
    # The same text, packed in another way, is another request: nobody looks inside.
    other = await send(lab, "/once" + CHAT, gzip.compress(PLAIN, 1), idempotency_key="k-1")
    assert (other.status, other.reason) == (409, "idempotency_conflict")
    assert len(lab["alpha"].seen) == 1


async def test_a_small_body_that_would_unpack_to_very_much_is_not_unpacked(lab: Lab) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(1 << 24)
    body = b"".join(packer.compress(zeros) for _ in range(8)) + packer.flush()
    assert len(body) < 1 << 20
    before = resident_mib(lab.proxy.process.pid)
    for path in ("/alpha" + CHAT, "/counted" + CHAT, "/set" + CHAT, "/named" + CHAT, "/alpha/v1/unknown"):
        assert (await send(lab, path, body)).status in (200, 400, 404)
    assert resident_mib(lab.proxy.process.pid) - before < 30
