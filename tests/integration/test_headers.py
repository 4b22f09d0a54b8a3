"""Header hygiene: what passes, what ends at the proxy, and that nothing is invented."""

from __future__ import annotations

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers
from tests.integration.scripted import Exchange

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY = {
    "version": 1,
    "providers": {
        "plain": {"propagate_trace": False},
        "traced": {},
        "dressed": {"headers": {"x-team": "search", "x-from-env": {"env": "TEAM_TOKEN"}}},
        "failing": {"breaker": "off"},
    },
    "routes": [route("failing", "failing", retry={"attempts": 1})],
}
OURS = {"x-sponson-request-id", "x-sponson-provider", "x-sponson-tier", "x-sponson-attempts"}
ENV = {"TEAM_TOKEN": "from the environment"}


async def test_provider_sees_the_callers_fields_and_no_other(lab: Lab) -> None:
    data = b'{"model":"m"}'
    async with lab.wire() as wire:
        await wire.send(
            b"POST /plain/v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Mixed-CASE: 1\r\nauthorization: Bearer mine\r\n"
            b"x-empty:\r\nX-Tag: b\r\nx-other:  spaced  \r\nx-tag: a\r\nContent-Length: 13\r\n\r\n" + data
        )
        assert (await wire.answer()).status == 200
    seen = lab["plain"].only
    (via,) = seen.all("via")
    assert seen.headers == [
        (b"host", f"127.0.0.1:{lab['plain'].port}".encode()),
        (b"X-Mixed-CASE", b"1"),
        (b"authorization", b"Bearer mine"),
        (b"x-empty", b""),
        (b"X-Tag", b"b"),
        (b"x-other", b"spaced"),
        (b"x-tag", b"a"),
        (b"via", via),
        (b"content-length", b"13"),
    ]


async def test_get_without_a_body_gains_no_length(lab: Lab) -> None:
    assert (await lab.call("/plain/v1/models", method="GET")).status == 200
    assert lab["plain"].only.names == ["host", "via"]


async def test_empty_post_keeps_its_length_of_zero(lab: Lab) -> None:
    assert (await lab.call("/plain/v1/files", b"")).status == 200
    assert lab["plain"].only.headers[-1] == (b"content-length", b"0")


async def test_caller_sees_the_providers_fields_and_ours(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(
            b"HTTP/1.1 200 Fine\r\nX-Own-CASE: 1\r\nx-own: 2\r\nx-empty:\r\nContent-Length: 2\r\n\r\nok"
        )

    lab["plain"].script = script
    answer = await lab.call("/plain/v1/x", method="GET")
    theirs = [field for field in answer.headers if field[0].decode() not in OURS]
    assert theirs[:3] == [(b"X-Own-CASE", b"1"), (b"x-own", b"2"), (b"x-empty", b"")]
    assert [name.lower() for name, _ in theirs[3:]] == [b"content-length"]
    assert {name.decode() for name, _ in answer.headers} >= OURS
    assert (answer.phrase, answer.body) == ("Fine", b"ok")


async def test_hop_by_hop_fields_end_at_the_proxy(lab: Lab) -> None:
    headers = [
        ("Connection", "keep-alive, X-Debug, close"),
        ("X-Debug", "1"),
        ("Connection", " x-other"),
        ("X-Other", "1"),
        ("Keep-Alive", "timeout=5"),
        ("TE", "trailers"),
        ("Trailer", "x-sum"),
        ("Proxy-Connection", "keep-alive"),
        ("Proxy-Authorization", "Basic eDp5"),
        ("X-Stays", "1"),
    ]
    assert (await lab.call("/plain/v1/x", CHAT, headers=headers)).status == 200
    assert lab["plain"].only.names == ["host", "x-stays", "content-type", "via", "content-length"]


@pytest.mark.parametrize("name", ["Authorization", "Host", "Content-Length", "Content-Type"])
async def test_connection_cannot_take_away_credentials_or_framing(lab: Lab, name: str) -> None:
    headers = [("Connection", name), ("Authorization", "Bearer mine")]
    assert (await lab.call("/plain/v1/x", CHAT, headers=headers)).status == 200
    seen = lab["plain"].only
    assert {"host", "content-length", "authorization"} <= set(seen.names)
    assert seen.json() == CHAT


async def test_providers_connection_fields_end_at_the_proxy(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        fields = [("Connection", "X-Up, close"), ("X-Up", "1"), ("Keep-Alive", "timeout=1"), ("X-Stays", "1")]
        await exchange.reply(200, b"ok", headers=fields)
        exchange.close()

    lab["plain"].script = script
    async with lab.wire() as wire:
        for _ in range(2):
            await wire.send(b"GET /plain/v1/x HTTP/1.1\r\nhost: x\r\n\r\n")
            answer = await wire.answer(method="GET")
            assert (answer.status, answer.body, answer.header("x-stays")) == (200, b"ok", "1")
            assert {answer.header("connection"), answer.header("x-up"), answer.header("keep-alive")} == {None}


@pytest.mark.parametrize("status", [200, 400, 503])
async def test_repeated_fields_stay_apart_and_in_order(lab: Lab, status: int) -> None:
    fields = [
        ("Set-Cookie", "a=1; Expires=Thu, 01 Jan 2027 00:00:00 GMT"),
        ("Link", "<a>"),
        ("set-cookie", "b=2"),
        ("WWW-Authenticate", "Basic"),
        ("Link", "<b>"),
        ("Set-Cookie", "c=3"),
        ("www-authenticate", "Bearer"),
    ]
    lab["failing"].script = answers(status, headers=fields)
    answer = await lab.chat("failing", headers=[("X-Tag", "2"), ("x-tag", "1"), ("Accept", "a"), ("accept", "b")])
    assert answer.status == status
    assert answer.all("set-cookie") == ["a=1; Expires=Thu, 01 Jan 2027 00:00:00 GMT", "b=2", "c=3"]
    assert answer.all("link") == ["<a>", "<b>"]
    assert answer.all("www-authenticate") == ["Basic", "Bearer"]
    assert lab["failing"].only.all("x-tag") == [b"2", b"1"]
    assert lab["failing"].only.all("accept") == [b"a", b"b"]


HINTS: list[list[tuple[str, str]]] = [
    [("Retry-After", "0.25")],
    [("retry-after", "Sunday, 06-Nov-94 08:49:37 GMT"), ("Retry-After", "-5")],
    [("Retry-After", ""), ("RETRY-AFTER-MS", "abc")],
    [("retry-after-ms", "250"), ("Retry-After", "9")],
    [("x-ratelimit-reset-requests", "1h2m3.5s"), ("X-RateLimit-Reset-Tokens", "20ms"), ("x-ratelimit-reset", "junk")],
    [("anthropic-ratelimit-requests-reset", "2026-11-30T10:00:00Z"), ("anthropic-ratelimit-tokens-remaining", "-1")],
    [("x-should-retry", "Maybe"), ("RateLimit", '"p";r=0;t=5'), ("ratelimit-policy", '"p";q=9;w=60')],
]


@pytest.mark.parametrize("hints", HINTS)
@pytest.mark.parametrize("status", [200, 429, 503])
async def test_what_a_provider_says_of_its_limits_reaches_the_caller_as_it_was_said(
    lab: Lab, status: int, hints: list[tuple[str, str]]
) -> None:
    lab["failing"].script = answers(status, {"said": "so"}, headers=hints)
    answer = await lab.chat("failing")
    assert (answer.status, answer.reason, len(lab["failing"].seen)) == (status, None, 1)
    names = {name.lower() for name, _ in hints}
    told = [(name.decode(), value.decode()) for name, value in answer.headers if name.decode().lower() in names]
    assert told == hints


async def test_non_ascii_bytes_pass_both_ways(lab: Lab) -> None:
    latin, utf = b"caf\xe9", "标题".encode()
    lab["plain"].script = answers(
        200, headers=[(b"x-title", latin), (b"content-disposition", b"attachment; filename=" + utf)]
    )
    answer = await lab.call("/plain/v1/x", CHAT, headers=[(b"x-title", latin), (b"x-title", utf)])
    assert answer.status == 200
    assert lab["plain"].only.all("x-title") == [latin, utf]
    assert (b"x-title", latin) in answer.headers
    assert (b"content-disposition", b"attachment; filename=" + utf) in answer.headers


async def test_policys_fields_take_the_place_of_the_callers(lab: Lab) -> None:
    assert (await lab.call("/dressed/v1/x", CHAT, headers=[("X-Team", "mine"), ("x-more", "1")])).status == 200
    seen = lab["dressed"].only
    assert seen.all("x-team") == [b"search"]
    assert seen.all("x-from-env") == [b"from the environment"]
    assert seen.header("x-more") == "1"


async def test_callers_sponson_fields_stay_here(lab: Lab) -> None:
    headers = [("x-sponson-class", "P1"), ("x-sponson-trail", "1"), ("X-Sponson-Anything", "1")]
    assert (await lab.call("/plain/v1/x", CHAT, headers=headers)).status == 200
    assert not [name for name in lab["plain"].only.names if name.startswith("x-sponson")]


async def test_provider_cannot_forge_our_fields(lab: Lab) -> None:
    forged = [("x-sponson-provider", "elsewhere"), ("X-Sponson-Reason", "no_route"), ("x-sponson-tier", "9")]
    lab["plain"].script = answers(200, headers=forged)
    answer = await lab.call("/plain/v1/x", CHAT)
    assert (answer.all("x-sponson-provider"), answer.all("x-sponson-tier")) == (["plain"], ["1"])
    assert answer.reason is None


async def test_large_header_of_an_answer_passes(lab: Lab) -> None:
    fields = [("set-cookie", "c" * 12_000), *((f"x-{number}", "1") for number in range(150))]
    lab["plain"].script = answers(200, headers=fields)
    answer = await lab.call("/plain/v1/x", CHAT)
    assert (answer.status, answer.header("set-cookie")) == (200, "c" * 12_000)


async def test_too_large_a_header_of_an_answer_is_a_bad_answer(lab: Lab) -> None:
    lab["failing"].script = answers(200, headers=[("x-huge", "h" * 200_000)])
    answer = await lab.chat("failing")
    assert (answer.status, answer.reason) == (502, "upstream_unreachable")


async def test_h2c_offer_is_ignored_and_the_body_arrives(lab: Lab) -> None:
    headers = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA"),
    ]
    body = b"7\r\nwhole b\r\n3\r\nody\r\n0\r\n\r\n"
    for data, framing in ((b"whole body", []), (body, [("transfer-encoding", "chunked")])):
        lab["plain"].forget()
        answer = await lab.call("/plain/v1/x", data, headers=[*headers, *framing])
        assert answer.status == 200
        seen = lab["plain"].only
        assert seen.body == b"whole body"
        assert not {"upgrade", "http2-settings", "connection"} & set(seen.names)


async def test_trace_context_passes_on_once_with_a_new_parent(lab: Lab) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = [("TraceParent", f"00-{trace}-{parent}-00"), ("tracestate", "a=1"), ("tracestate", "b=2")]
    assert (await lab.call("/traced/v1/x", CHAT, headers=headers)).status == 200
    seen = lab["traced"].only
    (line,) = seen.all("traceparent")
    version, trace_id, span_id, flags = line.decode().split("-")
    assert (version, trace_id, flags) == ("00", trace, "00")
    assert span_id not in (parent, "0" * 16)
    assert b",".join(seen.all("tracestate")).replace(b" ", b"") == b"a=1,b=2"


async def test_of_several_trace_contexts_none_is_followed_and_one_passes_on(lab: Lab) -> None:
    one, two = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"
    lines = [("traceparent", f"00-{trace}-b7ad6b7169203331-01") for trace in (one, two)]
    assert (await lab.call("/traced/v1/x", CHAT, headers=[*lines, ("tracestate", "a=1")])).status == 200
    (line,) = lab["traced"].only.all("traceparent")
    assert line.split(b"-")[1] not in (one.encode(), two.encode())
    assert lab["traced"].only.all("tracestate") == []


async def test_no_trace_context_passes_where_the_policy_says_so(lab: Lab) -> None:
    line = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    others = [("Baggage", "order=7"), ("b3", "1-2-1"), ("X-B3-TraceId", "1"), ("uber-trace-id", "1:2:0:1")]
    others += [("X-Amzn-Trace-Id", "Root=1"), ("x-datadog-trace-id", "1"), ("sentry-trace", "1-2-1"), ("newrelic", "e")]
    headers = [("traceparent", line), ("tracestate", "a=1"), *others]
    names = {name.lower() for name, _ in headers}
    assert (await lab.call("/plain/v1/x", CHAT, headers=headers)).status == 200
    assert not names & set(lab["plain"].only.names)
    assert (await lab.call("/traced/v1/x", CHAT, headers=headers)).status == 200
    assert names <= set(lab["traced"].only.names)
