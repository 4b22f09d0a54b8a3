"""What becomes of answers that come about in odd ways: by another tier, for nobody, under another policy."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, answers, event, in_turn, in_two_parts, said, says, when
from tests.integration.scripted import Exchange

CACHE = {"ttl": "1h"}
OLD = {"ttl": "1ms"}
LAST = {"stale_cache": {"max_age": "1h"}}
ONCE = {"attempts": 1}
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {"from": [{"header": "x-agent-id"}]},
    "providers": {"alpha": {"breaker": "off"}, "beta": {"breaker": "off"}},
    "routes": [
        route("kept", "alpha", cache=CACHE, retry=ONCE),
        route("shared", "alpha", cache={**CACHE, "scope": "route"}, retry=ONCE),
        route("last", "alpha", LAST, cache=OLD, retry=ONCE),
        route("tiers", "alpha", "beta", LAST, cache=OLD, retry=ONCE),
        route("moving", {"provider": "alpha", "model": "a"}, cache=CACHE, retry=ONCE),
        route("old", "alpha", cache={"ttl": "1ms", "stale_while_revalidate": "1h"}, retry=ONCE),
    ],
}
WAIT = 30.0

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]


async def ask(lab: Lab, model: str, case: str, *, tenant: str = "t", **more: Any) -> Answer:
    """Asks a question of a test's own."""
    return await lab.call(body={**CHAT, "model": model, "case": case, **more}, headers=[("x-agent-id", tenant)])


def used(answer: Answer) -> str | None:
    """Returns what part the cache had."""
    return answer.header("x-sponson-cache")


async def counts(lab: Lab, name: str) -> Any:
    """Returns what `/status` shows of a route's cache."""
    return await lab.row("caches", route=name)


async def old_enough() -> None:
    """Lets what is fresh for a millisecond become old."""
    await asyncio.sleep(0.01)


async def applied(lab: Lab, routes: list[dict[str, Any]]) -> None:
    """Puts other routes in place of the present ones."""
    before = json.loads((await lab.proxy.get("/policy")).body)["revision"]
    lab.proxy.rewrite({**lab.policy, "routes": routes})
    async with asyncio.timeout(WAIT):
        while json.loads((await lab.proxy.get("/policy")).body)["revision"] == before:
            await asyncio.sleep(0.05)


async def test_a_kept_answer_that_stands_in_is_not_kept_anew(lab: Lab) -> None:
    lab["alpha"].script = in_turn(says("one"), answers(503))
    first = await ask(lab, "last", "anew")
    before = await counts(lab, "last")
    for _ in range(3):
        await old_enough()
        again = await ask(lab, "last", "anew")
        assert (used(again), again.body) == ("stale", first.body)
    after = await counts(lab, "last")
    assert (after["kept"], after["entries"]) == (before["kept"], before["entries"])
    lab["alpha"].script = says("two")
    assert b"two" in (await ask(lab, "last", "anew")).body


async def test_what_another_tier_gave_does_not_stand_in(lab: Lab) -> None:
    lab["alpha"].script = in_turn(says("meant"), answers(503))
    lab["beta"].script = in_turn(says("instead"), answers(503))
    meant = await ask(lab, "tiers", "instead")
    await old_enough()
    instead = await ask(lab, "tiers", "instead")
    assert (instead.tier, used(instead)) == (2, "miss")
    await old_enough()
    stands_in = await ask(lab, "tiers", "instead")
    assert (stands_in.tier, used(stands_in), stands_in.body) == (3, "stale", meant.body)


async def test_a_failing_refresh_leaves_what_is_kept(lab: Lab) -> None:
    lab["alpha"].script = in_turn(says("one"), answers(503), answers(200, {"error": {"message": "worn out"}}))
    first = await ask(lab, "old", "failing")
    for seen in (2, 3, 4):
        await old_enough()
        assert (await ask(lab, "old", "failing")).body == first.body
        await lab["alpha"].has_seen(seen, within=WAIT)
        await lab.proxy.until(lambda status: status["refreshes"]["running"] == 0, within=WAIT)


async def test_what_tells_of_the_first_time_is_told_once(lab: Lab) -> None:
    lines = [
        ("Set-Cookie", "__cf_bm=secret"),
        ("set-cookie", "b=2"),
        ("x-ratelimit-remaining-requests", "3"),
        ("anthropic-ratelimit-tokens-remaining", "5"),
        ("retry-after", "7"),
        ("Retry-After-Ms", "7"),
        ("age", "999"),
        ("x-sponson-provider", "somebody"),
    ]
    lab["alpha"].script = answers(200, said("one"), headers=[*lines, ("x-request-id", "req-1")])
    first, again = await ask(lab, "shared", "lines"), await ask(lab, "shared", "lines", tenant="other")
    assert (used(first), used(again), first.header("set-cookie")) == ("miss", "hit", "__cf_bm=secret")
    names = {name.decode().lower() for name, _ in again.headers}
    assert not names & {"set-cookie", "retry-after", "retry-after-ms"}
    assert not [name for name in names if "ratelimit" in name]
    assert [int(age) < 999 for age in again.all("age")] == [True]
    assert (again.all("x-sponson-provider"), again.header("x-request-id")) == (["alpha"], "req-1")


async def test_a_first_caller_that_leaves_takes_nothing_of_the_answer_along(lab: Lab) -> None:
    more = asyncio.Event()
    lab["alpha"].script = in_two_parts(more)
    body = {**CHAT_STREAM, "model": "kept", "case": "leader"}
    joined_before = (await lab.proxy.status())["single_flight"]["joined"]
    async with lab.wire() as leader:
        await leader.send(request_bytes("POST", "/v1/chat/completions", body=body))
        await leader.reader.readuntil(b"one ")
        stays = asyncio.ensure_future(lab.call(body=body))
        await lab.proxy.until(lambda status: status["single_flight"]["joined"] == joined_before + 1, within=WAIT)
        leader.leave()
        await lab.proxy.until(lambda status: status["in_flight"] == 1, within=WAIT)
    more.set()
    whole = event("one ") + event("two") + DONE
    told = await stays
    again = await lab.call(body=body)
    assert (told.body, used(told), told.complete) == (whole, "shared", True)
    assert (again.body, used(again), len(lab["alpha"].seen)) == (whole, "hit", 1)


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
async def test_what_its_only_caller_left_is_not_kept(lab: Lab, reset: bool) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.chunk(event("half"))
        await asyncio.sleep(WAIT)

    lab["alpha"].script = script
    body = {**CHAT_STREAM, "model": "kept", "case": f"left {reset}"}
    async with lab.wire() as leader:
        await leader.send(request_bytes("POST", "/v1/chat/completions", body=body))
        await leader.reader.readuntil(b"half")
        leader.leave(reset=reset)
        await lab["alpha"].was_left(within=WAIT)
    await lab.idle()

    async def whole(exchange: Exchange) -> None:
        await exchange.stream([event("whole"), DONE])

    lab["alpha"].script = whole
    again = await lab.call(body=body)
    assert (used(again), again.body) == ("miss", event("whole") + DONE)


CHANGES: dict[str, dict[str, Any]] = {
    "model": {"provider": "alpha", "model": "b"},
    "provider": {"provider": "beta", "model": "a"},
    "field": {"provider": "alpha", "model": "a", "set": {"temperature": 0}},
}


@pytest.mark.parametrize("name", CHANGES)
async def test_an_answer_of_who_was_asked_before_a_reload_is_no_answer_of_who_is_asked_now(lab: Lab, name: str) -> None:
    tier, gate = CHANGES[name], asyncio.Event()
    here = tier["provider"]
    lab["alpha"].script = in_turn(when(gate, says("before")), says("now"))
    lab["beta"].script = says("now")
    before = asyncio.ensure_future(ask(lab, "moving", name))
    await lab["alpha"].has_seen(1, within=WAIT)
    routes = [
        route("moving", tier, cache=CACHE, retry=ONCE) if one["name"] == "moving" else one for one in POLICY["routes"]
    ]
    await applied(lab, routes)
    try:
        now = await ask(lab, "moving", name)
        assert (used(now), b"now" in now.body) == ("miss", True), "it joins no call of another target"
        gate.set()
        assert b"before" in (await before).body
        again = await ask(lab, "moving", name)
        assert (used(again), again.body, len(lab[here].seen)) == ("hit", now.body, 1 if here == "beta" else 2)
    finally:
        gate.set()
        await applied(lab, lab.policy["routes"])
    back = await ask(lab, "moving", name)
    assert (used(back), b"before" in back.body) == ("hit", True), "the old answer is the old target's"
