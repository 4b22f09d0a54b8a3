"""Bodies as no library writes them: they pass byte for byte or are refused clearly, and nothing of ours breaks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.caller import Wire, request_bytes
from tests.integration.harness import Lab, route

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"alpha": {"breaker": "off"}, "counted": {"breaker": "off", "limits": {"tpm": 100_000_000}}},
    "routes": [
        route("set", {"provider": "alpha", "set": {"max_tokens": 5}}, match={"path": "/set/*"}),
        route("renamed", {"provider": "counted", "model": "other"}, match={"path": "/renamed/*"}),
        route("named", "alpha", match={"path": "/named/*", "model": "m*"}),
        route(
            "grown",
            {"provider": "alpha", "set": {"stop": "s" * 3000}},
            match={"path": "/grown/*"},
            body={"max": "2KiB"},
        ),
    ],
    "tenants": {"from": [{"header": "x-who"}], "default": {"context_tokens": 1_000_000}},
}
CHAT = "/v1/chat/completions"
JSON = ("content-type", "application/json")
ODD: dict[str, bytes] = {
    "deep lists": b'{"model":"m","messages":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep objects": b'{"model":"m","x":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    "never closed": b'{"model":"m","x":' + b"[" * 100_000,
    "large number": b'{"model":"m","seed":' + b"9" * 5_000 + b"}",
    "beyond any float": b'{"model":"m","temperature":1e400,"max_tokens":1e308,"n":-0}',
    "many tokens": b'{"model":"m","max_tokens":99999999999999999999999,"n":18446744073709551616}',
    "no numbers": b'{"model":"m","temperature":NaN,"top_p":-Infinity}',
    "repeated keys": b'{"model":"m","model":"mm","stream":false,"stream":true,"max_tokens":1,"max_tokens":2}',
    "half a pair": b'{"model":"m","user":"\\ud83d","x":"\\udc00\\ud800"}',
    "half a pair in the model": b'{"model":"m\\ud800","messages":[]}',
    "no text": b'{"model":"m","user":"\xff\xfe\xc3"}',
    "overlong": b'{"model":"m","user":"\xc0\xaf\xed\xa0\x80"}',
    "a mark before it": b"\xef\xbb\xbf" + b'{"model":"m"}',
    "two bytes a letter": '{"model":"m","messages":[]}'.encode("utf-16"),
    "four bytes a letter": '{"model":"m"}'.encode("utf-32-le"),
    "zeros": b'{"model":"m","user":"a\x00b"}\x00\x00',
    "escaped zeros": b'{"model":"m\\u0000","us\\u0000er":"\\u0000"}',
    "control characters": b'{"model":"m","user":"\x01\x1f\r\n\x7f"}',
    "two documents": b'{"model":"m"}{"model":"mm"}',
    "a comment": b'{"model":"m" /* so */}',
    "a comma too many": b'{"model":"m",}',
    "single quotes": b"{'model':'m'}",
    "only space": b" \r\n\t ",
    "space around": b' \n\t{ "model" : "m" }\r\n ',
    "an escaped key": b'{"mod\\u0065l":"m","\\u0073tream":true}',
    "a model within": b'{"x":{"model":"no"},"model":"m","messages":[{"model":"no","stream":true}]}',
    "no model": b'{"messages":[]}',
    "a model of lines": b'{"model":"m\\r\\nx-evil: 1\\r\\n\\r\\n","messages":[]}',
    "a long model": b'{"model":"m' + b"m" * 200_000 + b'"}',
    "a model of another kind": b'{"model":{"a":["m"]},"stream":"true"}',
    "members of wrong kinds": b'{"model":"m","messages":7,"max_tokens":"9","n":[],"stream":1,"stream_options":[1]}',
    "options of a stream": b'{"model":"m","stream":true,"stream_options":{"include_usage":"yes","x":null}}',
    "names of attributes": b'{"model":"m","__proto__":{"a":1},"constructor":null,"__class__":"x","":""}',
    "empty object": b"{}",
    "letters outside the plane": '{"model":"m","user":"🜚\u2028\u202e中"}'.encode(),
}


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_body_passes_as_it_is_where_nothing_of_it_must_change(lab: Lab, name: str) -> None:
    body = ODD[name]
    for headers in ([JSON], [("content-type", "text/plain")], []):
        answer = await lab.call("/alpha" + CHAT, body, headers=headers)
        assert answer.status == 200
        assert (await lab.call("/alpha/v1/unknown", body, headers=headers)).status == 200
    assert {request.body for request in lab["alpha"].seen} == {body}


def understood(body: bytes) -> dict[str, Any] | None:
    """What a strict reader makes of a body that is one JSON object in UTF-8; None where it is none."""

    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        document = json.loads(body.decode("utf-8"), parse_constant=refuse)
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and not body.startswith(b"\xef\xbb\xbf") else None


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("path", ["/set", "/renamed", "/named"])
async def test_an_odd_body_is_changed_as_the_policy_says_or_refused_clearly(lab: Lab, name: str, path: str) -> None:
    body = ODD[name]
    answer = await lab.call(path + CHAT, body, headers=[JSON, ("x-who", "somebody")])
    if answer.status != 200:
        assert (answer.status, answer.reason) in ((400, "bad_request"), (404, "no_route"))
        assert answer.json()["error"]["message"]
        return
    sent = lab["alpha" if path != "/renamed" else "counted"].only.body
    document = understood(body)
    assert document is not None
    if path == "/named":
        assert sent == body
    elif path == "/set":
        assert understood(sent) == {**document, "max_tokens": 5}
    else:
        found = understood(sent)
        assert found is not None
        assert found["model"] == "other"
        options = found.pop("stream_options", None)
        assert options == document.get("stream_options") or options["include_usage"] is True
        assert {**found, "model": 0} == {**{k: v for k, v in document.items() if k != "stream_options"}, "model": 0}


@pytest.mark.parametrize("name", ["space around", "an escaped key", "repeated keys", "letters outside the plane"])
async def test_a_body_that_is_only_written_oddly_is_understood(lab: Lab, name: str) -> None:
    for path in ("/set", "/renamed", "/named"):
        assert (await lab.call(path + CHAT, ODD[name], headers=[JSON])).status == 200


async def test_a_body_that_grows_by_the_policys_own_hand_is_the_callers_as_it_came(lab: Lab) -> None:
    """The limit is one for callers: what a tier sets is not held against them."""
    body = json.dumps({"model": "m", "user": "u" * 1900}).encode()
    assert (await lab.call("/grown" + CHAT, body, headers=[JSON])).status == 200
    assert len(lab["alpha"].only.body) > 4096
    assert (await lab.call("/grown" + CHAT, body + b" " * 200, headers=[JSON])).status == 413


async def test_a_large_picture_in_a_chat_passes_with_its_bytes(lab: Lab) -> None:
    url = "data:image/png;base64," + "iVBORw0KGgo+/" * 480_000 + "=="
    part = {"type": "image_url", "image_url": {"url": url, "detail": "high"}}
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": [part]}]}).encode()
    assert len(body) > 6_000_000
    assert (await lab.call("/alpha" + CHAT, body, headers=[JSON])).status == 200
    assert lab["alpha"].only.body == body
    assert (await lab.call("/renamed" + CHAT, body, headers=[JSON])).status == 200
    assert lab["counted"].only.body == body.replace(b'"m"', b'"other"', 1)


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST", "PUT", "PATCH", "OPTIONS", "QUERY"])
@pytest.mark.parametrize("kind", ["nothing", "length of zero", "no chunk", "a body", "chunks"])
async def test_the_framing_of_a_body_and_of_none_means_the_same_to_the_provider(
    lab: Lab, method: str, kind: str
) -> None:
    framing, data = {
        "nothing": ([], b""),
        "length of zero": ([("content-length", "0")], b""),
        "no chunk": ([("transfer-encoding", "chunked")], b"0\r\n\r\n"),
        "a body": ([("content-length", "4")], b"ab\x00c"),
        "chunks": ([("transfer-encoding", "chunked")], b"1\r\na\r\n03\r\nb\x00c\r\n0\r\n\r\n"),
    }[kind]
    async with lab.wire() as wire:
        for _ in range(2):
            await wire.send(request_bytes(method, "/alpha/v1/things", headers=framing) + data)
            assert (await wire.answer(method=method)).status == 200
    for seen in lab["alpha"].seen:
        assert (seen.method, seen.body) == (method, b"ab\x00c" if kind in ("a body", "chunks") else b"")
        framed = seen.names.count("content-length") + seen.names.count("transfer-encoding")
        assert framed == (0 if kind == "nothing" and method not in ("POST", "PUT", "PATCH") else framed)
        assert framed <= 1
    assert len(lab["alpha"].seen) == 2


async def test_chunk_extensions_and_trailers_end_here_and_every_byte_of_the_body_goes_on(lab: Lab) -> None:
    framed = (
        b'2;name=value;q="a;b\\"c"\r\nfo\r\n1;x\r\nr\r\n0000001\r\nm\r\n0;last\r\nx-checksum: 9\r\nx-more: b\r\n\r\n'
    )
    for kind in ("multipart/form-data; boundary=q", "application/json"):
        headers = [("content-type", kind), ("transfer-encoding", "chunked"), ("trailer", "x-checksum")]
        async with lab.wire() as wire:
            for _ in range(2):
                await wire.send(request_bytes("POST", "/alpha/v1/things", headers=headers) + framed)
                assert (await wire.answer()).status == 200
    assert [request.body for request in lab["alpha"].seen] == [b"form"] * 4
    assert not any("x-checksum" in request.names for request in lab["alpha"].seen)


async def test_a_file_before_the_model_in_single_bytes_and_in_large_pieces(lab: Lab) -> None:
    file = bytes(range(256)) * 8 + b"\r\n--zz\r\n--zzz-\r\n\x00--zzz\r\n--zzzz--\r\n"
    body = (
        b'--zzz\r\ncontent-disposition: form-data; name="file"; filename="\xc3\xa9\x00.wav"\r\n'
        b"content-type: audio/wav\r\n\r\n" + file + b'\r\n--zzz\r\ncontent-disposition: form-data; name="model"'
        b"\r\n\r\nm\r\n--zzz--\r\nand after it"
    )
    kind = 'multipart/form-data; boundary="zzz"; charset=x'
    for size in (1, 65536):
        await pieces(lab.wire(), "/alpha/v1/audio/transcriptions", body, kind=kind, size=size)
    assert [request.body for request in lab["alpha"].seen] == [body] * 2
    assert {request.header("content-type") for request in lab["alpha"].seen} == {kind}


async def pieces(entered: Wire, path: str, body: bytes, *, kind: str, size: int) -> None:
    """Sends a body in pieces of this size, each in a packet of its own as far as the system lets us."""
    async with entered as wire:
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        await wire.send(request_bytes("POST", path, headers=headers))
        for at in range(0, len(body), size):
            await wire.send(body[at : at + size])
            await asyncio.sleep(0)
        assert (await wire.answer()).status == 200
