"""Kept answers: what is given again, for how long, to whom, and what becomes of it when providers fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, answers, event, in_turn, says, streams, when

CACHE = {"ttl": "10m", "stale_while_revalidate": "10m"}
OLD = {"ttl": "1ms", "stale_while_revalidate": "10m"}
STALE = {"stale_cache": {"max_age": "1h"}}
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {"from": [{"header": "x-agent-id"}]},
    "providers": {"alpha": {"breaker": "off"}, "beta": {"breaker": "off"}},
    "routes": [
        route("kept", "alpha", cache=CACHE),
        route("old", "alpha", cache=OLD),
        route("plain", "alpha"),
        route("last", "alpha", STALE, cache={"ttl": "1ms"}, retry={"attempts": 1}),
        route("tiers", "alpha", "beta", cache=CACHE, retry={"attempts": 1}),
        route("write", "alpha", cache=CACHE, repeatable=False),
        route("loose", "alpha", cache={**CACHE, "ignore": ["user"], "normalize": ["space", "case"]}),
    ],
}

JSON = ("content-type", "application/json")

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]


async def ask(lab: Lab, model: str, tenant: str = "t", **fields: Any) -> Answer:
    body = {**CHAT, "model": model, **fields}
    return await lab.call(body=body, headers=[("x-agent-id", tenant)])


def used(answer: Answer) -> str | None:
    return answer.header("x-sponson-cache")


async def aged() -> None:
    """Lets what is fresh for a millisecond become old."""
    await asyncio.sleep(0.01)


async def test_an_equal_request_is_answered_without_a_call_whatever_the_order_of_its_keys(lab: Lab) -> None:
    lab["alpha"].script = says("one")
    first = await ask(lab, "kept", seed=1)
    body = dict(reversed({**CHAT, "model": "kept", "seed": 1}.items()))
    again = await lab.call(body=json.dumps(body, indent=3).encode(), headers=[("x-agent-id", "t"), JSON])
    assert (used(first), used(again), len(lab["alpha"].seen)) == ("miss", "hit", 1)
    assert (again.status, again.body, again.attempts) == (200, first.body, 0)
    assert (again.provider, again.tier) == ("alpha", 1)
    assert int(again.header("age") or -1) >= 0
    assert again.header("x-sponson-request-id") != first.header("x-sponson-request-id")


async def test_a_route_without_a_cache_says_nothing_of_one(lab: Lab) -> None:
    lab["alpha"].script = says("one")
    assert [used(await ask(lab, "plain")) for _ in range(2)] == [None, None]
    assert len(lab["alpha"].seen) == 2


async def test_tokens_of_a_hit_are_saved_and_the_log_says_so(lab: Lab) -> None:
    lab["alpha"].script = says("one")
    first, hit = await ask(lab, "kept", seed=2), await ask(lab, "kept", seed=2)
    spent, saved = await lab.proxy.line_of(first), await lab.proxy.line_of(hit)
    assert (spent["input_tokens"], spent["output_tokens"], spent["cache"]) == (5, 3, "miss")
    assert (saved.get("input_tokens"), saved["cache"]) == (None, "hit")
    assert (saved["saved_input_tokens"], saved["saved_output_tokens"]) == (5, 3)


async def test_a_stream_is_given_again_with_its_events_intact(lab: Lab) -> None:
    events = [event(None), event("a"), event("b"), DONE]
    lab["alpha"].script = streams(*events)
    body = {**CHAT_STREAM, "model": "kept"}
    first, again = await lab.call(body=body), await lab.call(body=body)
    assert (used(first), used(again), len(lab["alpha"].seen)) == ("miss", "hit", 1)
    assert again.body == first.body == b"".join(events)
    assert again.header("content-type") == "text/event-stream"


async def test_an_old_answer_is_given_at_once_while_one_call_fetches_a_new_one(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["alpha"].script = in_turn(says("one"), when(gate, says("two")))
    first = await ask(lab, "old")
    await aged()
    given = await asyncio.gather(*(ask(lab, "old") for _ in range(5)))
    assert {(used(answer), answer.body) for answer in given} == {("stale", first.body)}
    await lab["alpha"].has_seen(2)
    gate.set()
    async with asyncio.timeout(20):
        while (await ask(lab, "old")).body == first.body:
            pass


async def test_a_kept_answer_is_given_when_every_tier_before_has_failed(lab: Lab) -> None:
    lab["alpha"].script = in_turn(says("one"), answers(503))
    first = await ask(lab, "last")
    await aged()
    again = await ask(lab, "last")
    assert (again.status, used(again), again.tier, again.provider) == (200, "stale", 2, "alpha")
    assert (again.body, len(lab["alpha"].seen)) == (first.body, 2)
    other = await ask(lab, "last", tenant="other")
    assert (other.status, used(other)) == (503, "miss")
    assert b"this is 503" in other.body


async def test_a_later_tiers_answer_is_not_kept(lab: Lab) -> None:
    lab["alpha"].script = in_turn(answers(503), says("meant"))
    lab["beta"].script = says("instead")
    answers_ = [await ask(lab, "tiers") for _ in range(3)]
    assert [answer.tier for answer in answers_] == [2, 1, 1]
    assert [used(answer) for answer in answers_] == ["miss", "miss", "hit"]


async def test_what_must_not_be_repeated_is_not_kept(lab: Lab) -> None:
    lab["alpha"].script = says("one")
    assert [used(await ask(lab, "write")) for _ in range(2)] == [None, None]
    assert len(lab["alpha"].seen) == 2


@pytest.mark.parametrize("header", [("cache-control", "no-store"), ("x-sponson-cache", "bypass")], ids=lambda h: h[1])
async def test_who_wants_no_cache_gets_none(lab: Lab, header: tuple[str, str]) -> None:
    lab["alpha"].script = says("one")
    body = {**CHAT, "model": "kept", "seed": header[1]}
    for _ in range(2):
        assert used(await lab.call(body=body, headers=[header])) is None
    assert used(await lab.call(body=body)) == "miss", "neither was kept"


@pytest.mark.parametrize("header", [("cache-control", "no-cache"), ("x-sponson-cache", "refresh")], ids=lambda h: h[1])
async def test_who_wants_a_new_answer_gets_it_and_it_is_kept(lab: Lab, header: tuple[str, str]) -> None:
    lab["alpha"].script = in_turn(says("one"), says("two"))
    body = {**CHAT, "model": "kept", "seed": header[1]}
    await lab.call(body=body)
    fresh = await lab.call(body=body, headers=[header])
    kept = await lab.call(body=body)
    assert (used(fresh), used(kept), kept.body) == ("miss", "hit", fresh.body)
    assert b"two" in kept.body


async def test_declared_noise_and_declared_spelling_make_no_difference(lab: Lab) -> None:
    lab["alpha"].script = says("one")
    question = [{"role": "user", "content": "  How  MANY? "}]
    await ask(lab, "loose", user="a", messages=question)
    same = await ask(lab, "loose", user="b", messages=[{"role": "user", "content": "how many?"}])
    other = await ask(lab, "loose", user="b", messages=[{"role": "user", "content": "how many?"}], stop="X")
    assert (used(same), used(other)) == ("hit", "miss")


async def test_a_reload_loses_nothing_and_another_scope_begins_empty(lab: Lab) -> None:
    lab["alpha"].script = says("one")
    await ask(lab, "kept", seed="reload")
    routes = [{**one} for one in lab.policy["routes"]]
    for wanted, cache in (("hit", {**CACHE, "max_bytes": "1MiB"}), ("miss", {**CACHE, "scope": "route"})):
        routes[0]["cache"] = cache
        before = json.loads((await lab.proxy.get("/policy")).body)["revision"]
        lab.proxy.rewrite({**lab.policy, "routes": routes})
        async with asyncio.timeout(20):
            while json.loads((await lab.proxy.get("/policy")).body)["revision"] == before:
                await asyncio.sleep(0.05)
        assert used(await ask(lab, "kept", seed="reload")) == wanted
    lab.proxy.rewrite(lab.policy)
