"""Saved work stays with whom it belongs to: no tenant, account, route or provider is given another one's answer.

The provider numbers its answers: the same number twice is one answer that was given twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer, Headers, call
from tests.integration.harness import Lab, ProxyProcess, route
from tests.integration.messages import CHAT, answers, says, when
from tests.integration.scripted import Exchange, Script
from tests.store.server import RedisServer, executable

WAIT = 30.0
CACHE = {"ttl": "1h"}
OLD = {"ttl": "1ms", "stale_while_revalidate": "1h"}
LAST = {"stale_cache": {"max_age": "1h"}}
ONCE = {"attempts": 1}
TENANTS = {"from": [{"header": "x-agent-id"}, {"credential": True}]}
OURS = {"keys": [{"id": "k", "env": "KEY"}], "breaker": "off"}
ENV = {"KEY": "sk-ours"}


def ways(name: str, *tiers: Any, **rest: Any) -> list[dict[str, Any]]:
    """Returns two routes for one model, between which a header decides."""
    return [
        route(f"{name}-{way}", *tiers, match={"model": name, "header": {"x-way": way}}, retry=ONCE, **rest)
        for way in ("one", "other")
    ]


POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": TENANTS,
    "providers": {"alpha": OURS, "beta": OURS, "open": {"breaker": "off"}},
    "routes": [
        route("hit", "alpha", cache=CACHE, retry=ONCE),
        route("old", "alpha", cache=OLD, retry=ONCE),
        route("last", "alpha", LAST, cache={"ttl": "1ms"}, retry=ONCE),
        route("flight", "alpha", single_flight=True, retry=ONCE),
        route("wide", "alpha", cache={**CACHE, "scope": "route"}, retry=ONCE),
        route("account", "alpha", cache={**CACHE, "scope": "credential"}, retry=ONCE),
        route("own", "open", cache={**CACHE, "scope": "route"}, retry=ONCE),
        route("own-flight", "open", single_flight=True, retry=ONCE),
        *ways("ways", "alpha", cache={**CACHE, "scope": "route"}),
        route("here", "alpha", match={"model": "two", "path": "/v1/chat/*"}, cache={**CACHE, "scope": "route"}),
        route("there", "beta", match={"model": "two", "path": "/other/*"}, cache={**CACHE, "scope": "route"}),
        route("spread", {"spread": [{"provider": "alpha"}, {"provider": "beta"}]}, cache=CACHE, retry=ONCE),
    ],
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean", "numbered")]


@pytest.fixture
def numbered(lab: Lab, clean: None) -> None:
    """Lets every answer be another one."""
    for name, provider in lab.providers.items():
        provider.script = numbers(name)


def numbers(name: str) -> Script:
    """A provider whose answers tell which they are."""

    async def script(exchange: Exchange) -> None:
        await says(f"{name} {exchange.number}")(exchange)

    return script


def agent(name: str | bytes) -> Headers:
    """A caller that says who it is."""
    return [("x-agent-id", name)]


def bearer(secret: str, *more: tuple[str, str]) -> Headers:
    """A caller that brings a credential."""
    return [("authorization", f"Bearer {secret}"), *more]


def used(answer: Answer) -> str | None:
    """Returns what part the cache had."""
    return answer.header("x-sponson-cache")


async def ask(lab: Lab, model: str, case: str, who: Headers, path: str = "/v1/chat/completions") -> Answer:
    """Asks a question of a test's own."""
    return await lab.call(path, {**CHAT, "model": model, "case": case}, headers=who)


async def old_enough() -> None:
    """Lets what is fresh for a millisecond become old."""
    await asyncio.sleep(0.01)


LONG = "arn:aws:iam::123456789012:role/" + "x" * 100
STRANGERS: dict[str, tuple[Headers, Headers]] = {
    "two names": (agent("one"), agent("other")),
    "letter case": (agent("one"), agent("One")),
    "a name and none": (agent("one"), []),
    "two credentials": (bearer("sk-1"), bearer("sk-2")),
    "a credential and none": (bearer("sk-1"), []),
    "a name and a credential": (agent("sk-1"), bearer("sk-1")),
    "credentials that begin alike": (bearer("sk-" + "x" * 500 + "1"), bearer("sk-" + "x" * 500 + "2")),
    "other headers": ([("x-api-key", "sk-1")], [("api-key", "sk-2")]),
    "lengths in names": (agent("1:a"), agent("a")),
    "colons": (agent("a:b"), agent("a")),
    "the scope's name": (agent("tenant"), agent("route")),
    "commas": (agent("a,b"), agent("a")),
    "quotes": (agent("a'"), agent("a")),
    "look-alikes": (agent(b"admin"), agent("\u0430dmin".encode())),
    "bytes": (agent(b"\xff"), agent(b"\xfe")),
    "bytes and their spelling": (agent(b"\xff"), agent("\\udcff")),
    "two names at once": ([*agent("one"), *agent("other")], agent("other")),
    "names that begin alike": (agent(LONG + "1"), agent(LONG + "2")),
}


async def hits(lab: Lab, case: str, one: Headers, other: Headers) -> None:
    """Of a kept answer."""
    first, second = await ask(lab, "hit", case, one), await ask(lab, "hit", case, other)
    assert (used(first), used(second)) == ("miss", "miss")
    assert first.body != second.body
    assert [(await ask(lab, "hit", case, who)).body for who in (one, other)] == [first.body, second.body]


async def joins(lab: Lab, case: str, one: Headers, other: Headers) -> None:
    """Of a call under way."""
    gate = asyncio.Event()
    lab["alpha"].script = when(gate, numbers("alpha"))
    asked = [asyncio.ensure_future(ask(lab, "flight", case, who)) for who in (one, other)]
    await lab["alpha"].has_seen(2, within=WAIT)
    gate.set()
    first, second = await asyncio.gather(*asked)
    assert first.body != second.body
    assert {used(first), used(second)} == {None}


async def old_ones(lab: Lab, case: str, one: Headers, other: Headers) -> None:
    """Of an old answer, and of the call that fetches a new one."""
    first, gate = await ask(lab, "old", case, one), asyncio.Event()
    lab["alpha"].script = when(gate, numbers("alpha"))
    await old_enough()
    assert (await ask(lab, "old", case, one)).body == first.body
    await lab["alpha"].has_seen(2, within=WAIT)
    second = asyncio.ensure_future(ask(lab, "old", case, [*other, ("x-sponson-class", "P2")]))
    await lab["alpha"].has_seen(3, within=WAIT)
    gate.set()
    assert (used(await second), len(lab["alpha"].seen)) == ("miss", 3)
    await lab.proxy.until(lambda status: status["refreshes"]["running"] == 0, within=WAIT)


async def stands_in(lab: Lab, case: str, one: Headers, other: Headers) -> None:
    """Of what stands in for a provider that is out."""
    first = await ask(lab, "last", case, one)
    lab["alpha"].script = answers(503)
    await old_enough()
    again, second = await ask(lab, "last", case, one), await ask(lab, "last", case, other)
    assert (used(again), again.body) == ("stale", first.body)
    assert (second.status, used(second)) == (503, "miss")


Way = Callable[[Lab, str, Headers, Headers], Awaitable[None]]


@pytest.mark.parametrize("name", STRANGERS)
@pytest.mark.parametrize("way", [hits, joins, old_ones, stands_in], ids=lambda way: way.__name__)
async def test_nobody_is_given_what_is_a_strangers(lab: Lab, way: Way, name: str) -> None:
    one, other = STRANGERS[name]
    await way(lab, name, one, other)


async def test_where_the_policy_says_so_tenants_share(lab: Lab) -> None:
    asked = [await ask(lab, "wide", "share", who) for who in (agent("one"), agent("other"), bearer("sk-1"), [])]
    assert [used(answer) for answer in asked] == ["miss", "hit", "hit", "hit"]
    assert {answer.body for answer in asked} == {asked[0].body}


async def test_accounts_are_apart_where_the_policy_says_so(lab: Lab) -> None:
    whos = [
        [*bearer("sk-1"), *agent("one")],
        [*bearer("sk-2"), *agent("one")],
        [("x-api-key", "sk-1"), *agent("one")],
        agent("one"),
        agent("other"),
    ]
    first = [await ask(lab, "account", "apart", who) for who in whos]
    assert {used(answer) for answer in first} == {"miss"}
    assert len({answer.body for answer in first}) == len(whos)
    assert used(await ask(lab, "account", "apart", [*bearer("sk-1"), *agent("other")])) == "hit"


OWN = [bearer("sk-1"), bearer("sk-2"), [("x-api-key", "sk-1")], bearer("sk-1", ("openai-organization", "o")), []]


async def test_a_callers_own_account_at_the_provider_is_its_own(lab: Lab) -> None:
    first = [await ask(lab, "own", "own", [*who, *agent("one")]) for who in OWN]
    assert {used(answer) for answer in first} == {"miss"}
    again = [await ask(lab, "own", "own", [*who, *agent("other")]) for who in OWN]
    assert [(used(answer), answer.body) for answer in again] == [("hit", answer.body) for answer in first]


async def test_a_callers_own_account_is_joined_by_nobody_else(lab: Lab) -> None:
    gate = asyncio.Event()
    lab["open"].script = when(gate, numbers("open"))
    asked = [asyncio.ensure_future(ask(lab, "own-flight", "own", [*who, *agent("one")])) for who in OWN]
    await lab["open"].has_seen(len(OWN), within=WAIT)
    gate.set()
    assert len({answer.body for answer in await asyncio.gather(*asked)}) == len(OWN)


async def test_routes_and_providers_are_apart(lab: Lab) -> None:
    for path in ("/v1/chat/completions", "/other/v1/chat/completions"):
        assert [used(await ask(lab, "two", "apart", [], path)) for _ in range(2)] == ["miss", "hit"]
    for way in ("one", "other"):
        assert [used(await ask(lab, "ways", "apart", [("x-way", way)])) for _ in range(2)] == ["miss", "hit"]
    assert [used(await ask(lab, "two", "apart", [], "/alpha/v1/chat/completions")) for _ in range(2)] == [None, None]


async def test_who_shares_a_tier_shares_its_answers(lab: Lab) -> None:
    asked = [await ask(lab, "spread", "spread", agent("one")) for _ in range(4)]
    assert [used(answer) for answer in asked] == ["miss", "hit", "hit", "hit"]
    assert len({(answer.body, answer.provider) for answer in asked}) == 1
    assert used(await ask(lab, "spread", "spread", agent("other"))) == "miss"


@pytest_asyncio.fixture(loop_scope="module")
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A server for the answers of several proxies."""
    server = RedisServer(executable(), tmp_path)
    try:
        await server.start()
        yield server
    finally:
        server.kill()


async def test_strangers_are_apart_in_a_server_that_proxies_share(lab: Lab, server: RedisServer) -> None:
    routes = [{**one, "cache": {**one["cache"], "store": {"redis": server.url}}} for one in POLICY["routes"][:1]]
    policy = {**lab.policy, "routes": routes}
    body = {**CHAT, "model": "hit", "case": "server"}
    async with ProxyProcess(policy, env=ENV) as here, ProxyProcess(policy, env=ENV) as there:

        async def comes_to_hit(proxy: ProxyProcess, who: Headers) -> Answer:
            async with asyncio.timeout(WAIT):
                while used(answer := await call(proxy.port, body=body, headers=who)) != "hit":
                    await asyncio.sleep(0.02)
            return answer

        given = []
        for name, (one, other) in STRANGERS.items():
            body = {**body, "case": name}
            kept = await comes_to_hit(here, one)
            strangers = [await call(proxy.port, body=body, headers=other) for proxy in (here, there)]
            if kept.body in {answer.body for answer in strangers}:
                given.append(name)
        assert given == []
