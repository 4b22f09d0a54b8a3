"""Saved work as operators see it: spans that link to each other, metrics, and `/status`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest_asyncio
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, in_turn, says, when
from tests.integration.test_telemetry import exporting
from tests.otel.sink import Sink, attributes, collector

STALE = {"stale_cache": {"max_age": "1h"}}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"alpha": {"breaker": "off"}},
    "routes": [
        route("kept", "alpha", cache={"ttl": "10m"}),
        route("old", "alpha", cache={"ttl": "1ms", "stale_while_revalidate": "10m"}),
        route("both", "alpha", STALE, cache={"ttl": "1ms", "stale_while_revalidate": "10m"}, retry={"attempts": 1}),
        route("words", "alpha", merge={"window": "1s", "max": 3}),
    ],
}


@pytest_asyncio.fixture
async def sink() -> AsyncIterator[Sink]:
    with collector() as sink:
        yield sink


async def ask(lab: Lab, model: str, **fields: Any) -> Answer:
    return await lab.call(body={**CHAT, "model": model, **fields})


async def spans(sink: Sink, count: int, named: Callable[[str], bool]) -> list[Span]:
    """Waits for so many spans with such names."""
    async with asyncio.timeout(20):
        while len(found := [span for span in sink.spans() if named(span.name)]) < count:
            await asyncio.sleep(0.02)
    assert len(found) == count
    return found


async def metrics(lab: Lab, name: str) -> dict[tuple[str, ...], float]:
    """Returns the samples of this name by the values of their labels, in the order of the labels' names."""
    families = text_string_to_metric_families((await lab.proxy.get("/metrics")).body.decode())
    samples = (sample for family in families for sample in family.samples if sample.name == name)
    return {tuple(value for _, value in sorted(sample.labels.items())): sample.value for sample in samples}


async def test_a_follower_links_to_its_leaders_span_and_a_hit_has_no_call(sink: Sink) -> None:
    async with Lab(POLICY, env=exporting(sink.url)) as lab:
        gate = asyncio.Event()
        lab["alpha"].script = when(gate, says("one"))
        leading = asyncio.create_task(ask(lab, "kept"))
        await lab["alpha"].has_seen(1)
        following = asyncio.create_task(ask(lab, "kept"))
        await lab.proxy.until(lambda status: status["single_flight"] == {"running": 1, "joined": 1}, within=20)
        gate.set()
        given = [await leading, await following, await ask(lab, "kept")]
        assert [answer.header("x-sponson-cache") for answer in given] == ["miss", "shared", "hit"]
        by_use = {str(attributes(span.attributes)["sponson.cache"]): span for span in await spans(sink, 3, is_chat)}
        (call,) = await spans(sink, 1, lambda name: name.startswith("chat "))
        leader, follower, hit = (by_use[use] for use in ("miss", "shared", "hit"))
        assert call.parent_span_id == leader.span_id
        assert [(link.trace_id, link.span_id) for link in follower.links] == [(leader.trace_id, leader.span_id)]
        assert not leader.links
        assert not hit.links
        for saved in (follower, hit):
            facts = attributes(saved.attributes)
            assert (facts["sponson.saved.input_tokens"], facts["sponson.saved.output_tokens"]) == (5, 3)
        assert "sponson.saved.input_tokens" not in attributes(leader.attributes)


def is_chat(name: str) -> bool:
    return name == "POST kept"


async def test_saved_calls_and_tokens_are_counted_and_those_spent_only_once() -> None:
    async with Lab(POLICY) as lab:
        lab["alpha"].script = says("one")
        for _ in range(4):
            await ask(lab, "kept")
        assert await metrics(lab, "sponson_saved_calls_total") == {("hit", "kept"): 3}
        saved = await metrics(lab, "sponson_saved_tokens_total")
        assert saved == {("input", "false", "hit", "kept"): 15, ("output", "false", "hit", "kept"): 9}
        assert sum((await metrics(lab, "sponson_tokens_total")).values()) == 8
        assert await metrics(lab, "sponson_cache_requests_total") == {("miss", "kept"): 1, ("hit", "kept"): 3}
        assert await metrics(lab, "sponson_cache_entries") == {("kept",): 1, ("old",): 0, ("both",): 0}
        assert (await metrics(lab, "sponson_cache_offered_total"))["kept", "kept"] == 1


async def test_status_shows_what_a_cache_holds_and_what_became_of_requests() -> None:
    async with Lab(POLICY) as lab:
        lab["alpha"].script = says("one")
        for seed in (1, 1, 2):
            await ask(lab, "kept", seed=seed)
        await lab.call(body={**CHAT, "model": "kept"}, headers=[("x-sponson-cache", "bypass")])
        shown = await lab.proxy.status()
        row = next(row for row in shown["caches"] if row["route"] == "kept")
        assert {name: row[name] for name in ("hits", "misses", "stale", "bypassed", "kept", "refused", "entries")} == {
            "hits": 1, "misses": 2, "stale": 0, "bypassed": 1, "kept": 2, "refused": 0, "entries": 2,
        }  # fmt: skip
        assert 0 < row["bytes"] < row["max"]
        assert shown["cache_servers"] == []
        assert shown["single_flight"]["running"] == shown["refreshes"]["running"] == 0


async def test_a_refresh_is_seen_and_is_nobodys_request(sink: Sink) -> None:
    async with Lab(POLICY, env=exporting(sink.url)) as lab:
        gate = asyncio.Event()
        lab["alpha"].script = in_turn(says("one"), when(gate, says("two")))
        await ask(lab, "old")
        await asyncio.sleep(0.01)
        stale = await ask(lab, "old")
        assert stale.header("x-sponson-cache") == "stale"
        await lab["alpha"].has_seen(2)
        assert (await lab.proxy.status())["refreshes"] == {"running": 1, "started": 1}
        gate.set()
        await lab.proxy.until(lambda status: status["refreshes"]["running"] == 0, within=20)
        (refresh,) = await spans(sink, 1, lambda name: name == "refresh old")
        asked = next(s for s in await spans(sink, 2, lambda name: name == "POST old") if use_of(s) == "stale")
        assert refresh.kind == Span.SPAN_KIND_INTERNAL
        assert (refresh.trace_id, refresh.parent_span_id) == (asked.trace_id, asked.span_id)
        assert [link.span_id for link in refresh.links] == [asked.span_id]
        calls = await spans(sink, 2, lambda name: name.startswith("chat "))
        assert refresh.span_id in {call.parent_span_id for call in calls}
        assert sum((await metrics(lab, "sponson_requests_total")).values()) == 2
        assert sum((await metrics(lab, "sponson_attempts_total")).values()) == 2
        assert await metrics(lab, "sponson_cache_refreshes_total") == {("ok", "old"): 1}
        (line,) = [line for line in lab.proxy.request_lines() if line["msg"] == "refresh"]
        assert (line["cache"], line["class"], line["attempts"]) == ("refresh", "P2", 1)


def use_of(span: Span) -> object:
    return attributes(span.attributes).get("sponson.cache")


EMBEDDED: dict[str, Any] = {
    "object": "list",
    "model": "words",
    "data": [{"object": "embedding", "index": index, "embedding": [float(index)]} for index in range(3)],
    "usage": {"prompt_tokens": 9, "total_tokens": 9},
}
ONE: dict[str, Any] = {**EMBEDDED, "data": EMBEDDED["data"][:1], "usage": {"prompt_tokens": 3, "total_tokens": 3}}


async def test_a_merged_call_links_all_whom_it_was_made_for(sink: Sink) -> None:
    async with Lab(POLICY, env=exporting(sink.url)) as lab:
        gate = asyncio.Event()
        lab["alpha"].script = in_turn(when(gate, answers(200, ONE)), answers(200, EMBEDDED))
        first = asyncio.create_task(embed(lab, "x"))
        await lab["alpha"].has_seen(1)
        three = [asyncio.create_task(embed(lab, word)) for word in "abc"]
        given = await asyncio.gather(*three)
        gate.set()
        assert (await first).status == 200
        assert [answer.status for answer in given] == [200] * 3
        found = await spans(sink, 4, lambda name: name == "POST words")
        merged = [span for span in found if span.events]
        carriers = [span for span in merged if len(span.links) == 2]
        (carrier,), others = carriers, [span for span in merged if span not in carriers]
        assert {link.span_id for link in carrier.links} == {span.span_id for span in others}
        assert [[link.span_id for link in span.links] for span in others] == [[carrier.span_id]] * 2
        calls = await spans(sink, 2, lambda name: name.startswith("embeddings "))
        assert carrier.span_id in {call.parent_span_id for call in calls}
        assert not {span.span_id for span in others} & {call.parent_span_id for call in calls}
        assert await metrics(lab, "sponson_saved_calls_total") == {("merged", "words"): 2}
        assert await metrics(lab, "sponson_merge_callers_sum") == {("words",): 3}
        assert await metrics(lab, "sponson_merge_inputs_count") == {("words",): 1}
        assert sum((await metrics(lab, "sponson_tokens_total")).values()) == 12
        assert (await lab.proxy.status())["merging"]["waiting"] == 0
        lines = [await lab.proxy.line_of(answer) for answer in given]
        assert [line["merged"] for line in lines] == [3] * 3
        assert sum(line["input_tokens"] for line in lines) == 9


async def embed(lab: Lab, word: str) -> Answer:
    return await lab.call("/v1/embeddings", {"model": "words", "input": word})


async def test_a_refresh_that_ends_with_the_kept_answer_is_still_nobodys_request() -> None:
    async with Lab(POLICY) as lab:
        lab["alpha"].script = in_turn(says("one"), answers(503))
        await ask(lab, "both")
        await asyncio.sleep(0.01)
        assert (await ask(lab, "both")).header("x-sponson-cache") == "stale"
        await lab.proxy.until(lambda status: status["refreshes"] == {"running": 0, "started": 1}, within=20)
        assert sum((await metrics(lab, "sponson_requests_total")).values()) == 2
        assert await metrics(lab, "sponson_cache_requests_total") == {("miss", "both"): 1, ("stale", "both"): 1}
        assert (await metrics(lab, "sponson_saved_calls_total")) == {("stale", "both"): 1}
        assert await metrics(lab, "sponson_cache_refreshes_total") == {("upstream_error", "both"): 1}
