"""Bytes that are no text, in fields that are looked at: they pass, choose routes, and spoil no export and no log."""

from __future__ import annotations

import asyncio
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.harness import Lab
from tests.integration.messages import CHAT, answers
from tests.integration.test_telemetry import exporting
from tests.otel.sink import Sink, attributes, collector

ODD = [
    b"plain-first",
    b"caf\xe9",
    "\u6807\u9898".encode(),
    b"\xed\xa0\x80",
    b"\xed\xb2\xa9\xff",
    b"\x80\x81\xfe",
    "\U0001f680 \u2028 \u202e".encode(),
    b"a\tb",
    b'"quoted\\ {le="1"} # HELP',
    b"\xc3" * 4000,
    b"plain-last",
]
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"alpha": {"breaker": "off"}, "beta": {"breaker": "off"}},
    "tenants": {"from": [{"header": "x-agent-id"}], "default": {"concurrency": 8}},
    "routes": [
        {"name": "titled", "match": {"header": {"x-title": "\u6807*"}}, "tiers": [{"provider": "beta"}]},
        {"name": "rest", "tiers": [{"provider": "alpha"}]},
    ],
}
TARGETS = [b"/v1/%ff%c3%28?k=%ed%a0%80", b"/v1/%ZZ/%", b"/v1/" + b"%c3" * 3000]
ANSWERED = [(b"x-note", b"\xff\xfe note"), (b"retry-after", b"\xe9"), (b"x-request-id", b"r\xed\xa0\x80")]


async def servers(sink: Sink, count: int) -> list[dict[str, object]]:
    """Waits for so many server spans; returns their attributes."""
    async with asyncio.timeout(10):
        while len(found := [span for span in sink.spans() if span.kind == Span.SPAN_KIND_SERVER]) < count:
            await asyncio.sleep(0.02)
    return [attributes(span.attributes) for span in found]


async def test_no_value_spoils_an_export_a_page_or_a_log() -> None:
    with collector() as sink:
        async with Lab(POLICY, env=exporting(sink.url)) as lab:
            lab["alpha"].script = lab["beta"].script = answers(200, {"ok": True}, headers=ANSWERED)
            for value in ODD:
                lab["alpha"].forget()
                headers = [(b"x-agent-id", value), (b"x-title", value[:40] + b"!"), (b"x-class", value)]
                answer = await lab.call("/v1/chat/completions", CHAT, headers=headers)
                assert answer.status == 200
                assert [field for field in answer.headers if field[0] in dict(ANSWERED)] == ANSWERED
                asked = (lab["beta"] if value.startswith("\u6807".encode()) else lab["alpha"]).only
                assert (asked.all("x-agent-id"), asked.all("x-class")) == ([value], [value])
                line = await lab.proxy.line_of(answer)
                assert line["outcome"] == "ok"
            for target in TARGETS:
                lab["alpha"].forget()
                assert (await lab.call(target, CHAT, headers=[("x-agent-id", "plain-last")])).status == 200
                assert lab["alpha"].only.target == target
            count = len(ODD) + len(TARGETS)
            seen = await servers(sink, count)
            assert len(seen) == count
            assert [span["http.route"] for span in seen].count("titled") == 1
            assert len({span["sponson.tenant"] for span in seen}) == len(ODD)
            shown = (await lab.proxy.get("/metrics")).body.decode("utf-8")
            families = {family.name: family for family in text_string_to_metric_families(shown)}
            counted = families["sponson_requests"].samples
            assert sum(sample.value for sample in counted if sample.name.endswith("_total")) == count
            async with asyncio.timeout(10):
                while not sink.bodies["/v1/metrics"] or "sponson.requests" not in sink.metrics():
                    await asyncio.sleep(0.02)
            assert len(lab.proxy.request_lines()) == count
            assert (await lab.proxy.get("/status")).status == 200
