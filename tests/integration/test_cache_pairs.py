"""Pairs of requests: those that differ in one thing are never given each other's answer, equal ones are.

The provider answers with a digest of all that it was sent, so that no sharing stays unseen.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import said
from tests.integration.scripted import Exchange

CHAT_PATH = "/v1/chat/completions"
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"alpha": {"breaker": "off"}},
    "routes": [
        route(
            "teams",
            "alpha",
            match={"path": "/v1/*", "header": {"x-team": "*"}},
            cache={"ttl": "1h", "scope": "route"},
            repeatable=True,
        ),
        route("all", "alpha", match={"path": "*"}, cache={"ttl": "1h", "scope": "route"}, repeatable=True),
    ],
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean", "told")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A request; `case` sets those of one test apart from all others."""

    body: bytes | None
    path: str = CHAT_PATH
    query: str = ""
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = field(default=())

    async def send(self, lab: Lab, case: str) -> Answer:
        """Sends it."""
        target = f"{self.path}?case={case}{self.query}".encode()
        headers = list(self.headers)
        if self.body is not None and not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("content-type", "application/json"))
        return await lab.call(target, self.body, method=self.method, headers=headers)


@pytest.fixture
def told(lab: Lab, clean: None) -> None:
    """Lets the provider tell what it was asked."""

    async def script(exchange: Exchange) -> None:
        request = exchange.request
        lines = sorted((name.lower(), value) for name, value in request.headers if name.lower() != b"traceparent")
        asked = repr((request.method, request.target, lines, request.body))
        text = hashlib.sha256(asked.encode()).hexdigest() + f" {exchange.number}"
        if request.method == "HEAD":
            await exchange.send(b"HTTP/1.1 200 Said\r\ncontent-length: 5\r\nx-asked: %b\r\n\r\n" % text.encode())
        elif b'"stream":true' in request.body:
            chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
            await exchange.stream([b"data: " + json.dumps(chunk).encode() + b"\n\n", b"data: [DONE]\n\n"])
        else:
            await exchange.reply(200, said(text))

    lab["alpha"].script = script


def chat(more: str = "") -> Ask:
    """Returns a chat whose body has these members too."""
    rest = f",{more}" if more else ""
    return Ask(body=b'{"model":"m","messages":[{"role":"user","content":"hello"}]' + rest.encode() + b"}")


def with_headers(*headers: tuple[str, str]) -> Ask:
    """Returns a chat with these headers."""
    return replace(chat(), headers=headers)


def used(answer: Answer) -> str | None:
    """Returns what part the cache had."""
    return answer.header("x-sponson-cache")


VALUES = [
    ("1", "1.0"), ("1", '"1"'), ("1", "true"), ("0", "false"), ("0", "-0"), ("0", "null"), ("1", "1e0"), ("1", "10"),
    ("0.1", "0.10"), ("0.1", "0.1000000000000000055511151231257827"), ("1e2", "1E2"), ("1.0", "1.00"),
    ("9007199254740992", "9007199254740993"), ("36893488147419103232", "36893488147419103233"), ("1e999", "1e1000"),
    ("null", '"null"'), ("null", "[]"), ("null", "{}"), ("[]", "{}"), ("[]", '""'), ('""', "null"), ("[[]]", "[]"),
    ("[1,2]", "[2,1]"), ("[1,[2]]", "[[1],2]"), ('["a","b"]', '["ab"]'), ('["a","b"]', '["a,b"]'), ("[1]", "1"),
    ("[12]", "[1,2]"), ("[null]", "[]"), ('["1;"]', "[1]"), ('{"a":1}', '{"a":{"a":1}}'), ('{"a":1}', '[{"a":1}]'),
    ('{"a":"b"}', '["a","b"]'), ('{"a":null}', "{}"), ('{"a":1,"b":2}', '{"a":2,"b":1}'), ('{"":1}', "{}"),
    ('"é"', '"e\\u0301"'), ('"a"', '"\\u0430"'), ('"K"', '"\\u212a"'), ('"ﬁ"', '"fi"'), ('"a"', '"A"'),
    ('"a"', '" a"'), ('"a"', '"a "'), ('"a b"', '"a  b"'), ('"a b"', '"a\\u00a0b"'), ('"a"', '"a\\u200b"'),
    ('"a"', '"a\\u0000"'), ('"\\ud83d"', '"\\ufffd"'), ('"\\n"', '"\\r\\n"'), ('"\\n"', '"\\\\n"'), ('"/"', '"\\\\/"'),
    ('"\\u0041"', '"\\\\u0041"'), ('"true"', "true"), ('"1:a"', '"a"'), ('"[]"', "[]"), ('"{}"', "{}"),
    ('"2026-01-01"', '"2026-01-02"'), ('"' + "x" * 5000 + 'a"', '"' + "x" * 5000 + 'b"'),
    ("[" + "1," * 40 + "1]", "[" + "1," * 40 + "1.0]"), ("[" + "1," * 40 + "1]", "[" + "1," * 41 + "1]"),
]  # fmt: skip
MEMBERS = [
    ('"temperature":0', ""), ('"temperature":0', '"temperature":1'), ('"top_p":1', '"top_k":1'), ('"seed":null', ""),
    ('"n":1', '"N":1'), ('"stop":"a"', '"stop":["a"]'), ('"stop":["a","b"]', '"stop":["b","a"]'), ('"a":1', '"b":1'),
    ('"max_tokens":5', '"max_completion_tokens":5'), ('"user":"a"', '"user":"b"'), ('"metadata":{"a":"1"}', ""),
    ('"stream":true', '"stream":false'), ('"stream":true', ""), ('"stream":false', ""),
    ('"stream":true,"stream_options":{"include_usage":true}', '"stream":true'),
    ('"stream":true,"stream_options":{"include_usage":true}', '"stream":true,"stream_options":{"include_usage":false}'),
    ('"logit_bias":{"50256":-100}', '"logit_bias":{"50256":-99}'), ('"service_tier":"flex"', '"service_tier":"auto"'),
    ('"tool_choice":"auto"', '"tool_choice":"none"'), ('"parallel_tool_calls":true', '"parallel_tool_calls":false'),
    ('"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]',
     '"tools":[{"type":"function","function":{"name":"g","parameters":{"type":"object"}}}]'),
    ('"tools":[{"type":"function","function":{"name":"f","parameters":{"required":["a","b"]}}}]',
     '"tools":[{"type":"function","function":{"name":"f","parameters":{"required":["b","a"]}}}]'),
    ('"tools":[{"type":"function","function":{"name":"f","strict":true}}]',
     '"tools":[{"type":"function","function":{"name":"f","strict":false}}]'),
    ('"response_format":{"type":"json_schema","json_schema":{"schema":{"a":{"type":"string"}}}}',
     '"response_format":{"type":"json_schema","json_schema":{"schema":{"a":{"type":"number"}}}}'),
    ('"x":{"y":[{"z":1}]}', '"x":{"y":[{"z":2}]}'), ('"x":{"y":1},"z":2', '"x":{"y":1,"z":2}'),
    ('"a":"1,","b":"2"', '"a":"1","b":",2"'), ('"ab":"c"', '"a":"bc"'), ('"a\\u0000":1', '"a":1'),
    ('"é":1', '"e\\u0301":1'),
]  # fmt: skip
BODIES = [
    ('{"model":"m","prompt":"a"}', '{"model":"m2","prompt":"a"}'),
    ('{"model":"m","prompt":"a"}', '{"model":"M","prompt":"a"}'),
    ('{"model":"m","prompt":"a"}', '{"prompt":"a"}'),
    ('{"model":"m","prompt":"a"}', '{"model":"m","input":"a"}'),
    ('{"model":"m","prompt":"a"}', '{"model":"m","prompt":["a"]}'),
    ('{"messages":[{"role":"user","content":"a"}]}', '{"messages":[{"role":"system","content":"a"}]}'),
    ('{"messages":[{"role":"user","content":"a"}]}', '{"messages":[{"role":"user","content":"b"}]}'),
    ('{"messages":[{"role":"user","content":"a"}]}', '{"messages":[{"role":"user","content":"a","name":"u"}]}'),
    ('{"messages":[{"role":"user","content":"a"}]}', '{"messages":[{"role":"user","content":["a"]}]}'),
    (
        '{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}',
        '{"messages":[{"role":"user","content":"b"},{"role":"user","content":"a"}]}',
    ),
    (
        '{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}',
        '{"messages":[{"role":"user","content":"ab"}]}',
    ),
    (
        '{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:a","detail":"low"}}]}]}',
        '{"messages":[{"content":[{"type":"image_url","image_url":{"url":"data:a","detail":"high"}}]}]}',
    ),
    ("{}", '{"a":{}}'),
]
TARGETS = [
    (CHAT_PATH, "&a=1", CHAT_PATH, "&a=2"), (CHAT_PATH, "&a=1", CHAT_PATH, ""), (CHAT_PATH, "", CHAT_PATH, "&"),
    (CHAT_PATH, "&a=1&b=2", CHAT_PATH, "&b=2&a=1"), (CHAT_PATH, "&a=%41", CHAT_PATH, "&a=A"),
    (CHAT_PATH, "&a=b%20c", CHAT_PATH, "&a=b+c"), (CHAT_PATH, "", "/v1/completions", ""),
    (CHAT_PATH, "", CHAT_PATH + "/", ""), (CHAT_PATH, "", "/v1/chat%2fcompletions", ""),
    (CHAT_PATH, "", "/V1/chat/completions", ""), (CHAT_PATH, "", "/v1/chat//completions", ""),
    (CHAT_PATH, "", "/v1/./chat/completions", ""), (CHAT_PATH, "", "/chat/completions", ""),
    (CHAT_PATH, "", "/alpha/v1/chat/completions", ""),
    ("/v1/embeddings", "", "/v1/moderations", ""), ("/v1/files/a", "", "/v1/files/b", ""),
]  # fmt: skip
HEADERS = [
    "accept", "accept-encoding", "accept-language", "anthropic-beta", "anthropic-version", "openai-beta",
    "openai-organization", "openai-project", "origin", "prefer", "x-goog-user-project", "anthropic-of-tomorrow",
]  # fmt: skip
UNLIKE: dict[str, tuple[Ask, Ask]] = {
    **{f"{one[:30]} {other[:30]}": (chat(f'"x":{one}'), chat(f'"x":{other}')) for one, other in VALUES},
    **{f"nested {one[:30]} {other[:30]}": (chat(f'"x":[{{"y":{one}}}]'), chat(f'"x":[{{"y":{other}}}]'))
       for one, other in VALUES},
    **{f"{one[:60]} {other[-60:]}": (chat(one), chat(other)) for one, other in MEMBERS},
    **{f"{number} {one[:30]}": (Ask(body=one.encode()), Ask(body=other.encode()))
       for number, (one, other) in enumerate(BODIES)},
    **{f"{path}{query} {other}{rest}":
       (replace(chat(), path=path, query=query), replace(chat(), path=other, query=rest))
       for path, query, other, rest in TARGETS},
    **{f"{name} another": (with_headers((name, "a")), with_headers((name, "b"))) for name in HEADERS},
    **{f"{name} none": (with_headers((name, "a")), chat()) for name in HEADERS},
    **{f"{name} twice": (with_headers((name, "a"), (name, "b")), with_headers((name, "a, b"))) for name in HEADERS},
    "empty header": (with_headers(("accept", "")), chat()),
    "headers that swap values": (
        with_headers(("anthropic-beta", "a"), ("openai-beta", "b")),
        with_headers(("anthropic-beta", "b"), ("openai-beta", "a")),
    ),
    "one header for another": (with_headers(("openai-organization", "a")), with_headers(("openai-project", "a"))),
    "headers in another order of lines": (
        with_headers(("accept", "a"), ("accept", "b")),
        with_headers(("accept", "b"), ("accept", "a")),
    ),
    "a header that routes are chosen by": (with_headers(("x-team", "a")), with_headers(("x-team", "b"))),
    "another route": (with_headers(("x-team", "a")), chat()),
    "content-type": (
        with_headers(("content-type", "application/json")),
        with_headers(("content-type", "text/plain")),
    ),
    "authorization": (with_headers(("authorization", "Bearer a")), with_headers(("authorization", "Bearer b"))),
    "x-api-key": (with_headers(("x-api-key", "a")), with_headers(("x-api-key", "b"))),
    "cookie": (with_headers(("cookie", "a=1")), with_headers(("cookie", "a=2"))),
    "another kind of credential": (with_headers(("x-api-key", "a")), with_headers(("api-key", "a"))),
    "a credential and none": (with_headers(("authorization", "Bearer a")), chat()),
    "HEAD and GET": (Ask(body=None, method="HEAD", path="/v1/models"), Ask(body=None, method="GET", path="/v1/models")),
    "GET and HEAD": (Ask(body=None, method="GET", path="/v1/models"), Ask(body=None, method="HEAD", path="/v1/models")),
    "GET with an empty object": (
        Ask(body=None, method="GET", path="/v1/models"),
        Ask(body=b"{}", method="GET", path="/v1/models"),
    ),
    "POST and PUT": (chat(), replace(chat(), method="PUT")),
    "POST and PATCH": (chat(), replace(chat(), method="PATCH")),
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE)
async def test_what_differs_in_one_thing_gets_no_other_answer(lab: Lab, name: str) -> None:
    case = hashlib.sha256(name.encode()).hexdigest()[:12]
    one, other = UNLIKE[name]
    first, second = await one.send(lab, case), await other.send(lab, case)
    assert (first.status, second.status, used(first), used(second)) == (200, 200, "miss", "miss")
    assert len(lab["alpha"].seen) == 2
    again, other_again = await one.send(lab, case), await other.send(lab, case)
    assert (used(again), used(other_again), len(lab["alpha"].seen)) == ("hit", "hit", 2), "both are kept"
    assert (again.body, again.header("x-asked")) == (first.body, first.header("x-asked"))
    assert (other_again.body, other_again.header("x-asked")) == (second.body, second.header("x-asked"))


ALIKE: dict[str, tuple[Ask, Ask]] = {
    "order of keys": (chat('"a":1,"b":{"c":1,"d":2}'), chat('"b":{"d":2,"c":1},"a":1')),
    "white space": (chat('"a":[1,2],"b":{}'), chat('\r\n\t "a" : [ 1 ,\n2 ] , "b" : { } ')),
    "escapes of letters": (chat('"a":"A/\\u00e9\\n"'), chat('"a":"\\u0041\\/é\\u000a"')),
    "escapes in keys": (chat('"\\u0061":1'), chat('"a":1')),
    "escapes of pairs": (chat('"a":"\\ud83d\\ude00"'), chat('"a":"😀"')),
    "case of hexadecimal digits": (chat('"a":"\\u00E9"'), chat('"a":"\\u00e9"')),
    "case of header names": (with_headers(("OpenAI-Beta", "a")), with_headers(("openai-beta", "a"))),
    "space around header values": (with_headers(("openai-beta", "a")), with_headers(("openai-beta", "  a "))),
    "order of headers": (
        with_headers(("openai-beta", "a"), ("accept", "b")),
        with_headers(("accept", "b"), ("openai-beta", "a")),
    ),
    "who speaks": (with_headers(("user-agent", "a"), ("x-request-id", "1")), with_headers(("user-agent", "b"))),
    "credential": (with_headers(("authorization", "Bearer a")), with_headers(("Authorization", "Bearer a"))),
}


@pytest.mark.parametrize("name", ALIKE)
async def test_what_says_the_same_gets_the_same_answer(lab: Lab, name: str) -> None:
    case = hashlib.sha256(name.encode()).hexdigest()[:12]
    one, other = ALIKE[name]
    first, second = await one.send(lab, case), await other.send(lab, case)
    assert (used(first), used(second), len(lab["alpha"].seen)) == ("miss", "hit", 1)
    assert second.body == first.body


DOUBTFUL: dict[str, Ask] = {
    "a key twice": Ask(body=b'{"model":"m","model":"m"}'),
    "a key twice, escaped": Ask(body=b'{"model":"m","mode\\u006c":"m2"}'),
    "a nested key twice": chat('"x":[{"a":1,"a":1}]'),
    "not a number": chat('"x":NaN'),
    "endless": chat('"x":-Infinity'),
    "bytes that are no text": Ask(body=b'{"model":"m","x":"\xff"}'),
    "half a pair in bytes": Ask(body=b'{"model":"m","x":"\xed\xa0\x80"}'),
    "a mark before": Ask(body=b'\xef\xbb\xbf{"model":"m"}'),
    "two documents": Ask(body=b'{"model":"m"}{"model":"m"}'),
    "an array": Ask(body=b"[1]"),
    "a text": Ask(body=b'"a"'),
    "nothing": Ask(body=b""),
    "half a document": Ask(body=b'{"model":"m"'),
    "a form": replace(chat(), body=b"a=1", headers=(("content-type", "application/x-www-form-urlencoded"),)),
    "absurd depth": chat('"x":' + "[" * 300 + "]" * 300),
    "more than is compared": chat('"x":"' + "x" * (1 << 20) + '"'),
    "a job": chat('"background":true'),
    "a conversation": chat('"conversation":"c1"'),
    "a part": with_headers(("range", "bytes=0-1")),
    "news": with_headers(("if-none-match", '"a"')),
    "no-store": with_headers(("cache-control", "max-age=0, No-Store")),
    "no-store in the second line": with_headers(("cache-control", "max-age=0"), ("cache-control", "no-store")),
    "bypass": with_headers(("x-sponson-cache", "Bypass")),
}


@pytest.mark.parametrize("name", DOUBTFUL)
async def test_what_is_doubtful_shares_nothing(lab: Lab, name: str) -> None:
    case = hashlib.sha256(name.encode()).hexdigest()[:12]
    answers = [await DOUBTFUL[name].send(lab, case) for _ in range(2)]
    assert [(answer.status, used(answer)) for answer in answers] == [(200, None)] * 2
    assert len(lab["alpha"].seen) == 2
