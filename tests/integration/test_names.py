"""Names of providers that move, are unknown, or are never answered, as the system's own resolver sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer
from tests.integration.harness import Lab, route
from tests.integration.messages import closes
from tests.integration.nameserver import NXDOMAIN, SERVFAIL, NameServer, available
from tests.integration.scripted import Exchange, ScriptedProvider

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        not available(), reason="names of our own need root, mount namespaces, and port 53 of a loopback address"
    ),
]

OLD, NEW = "127.0.0.2", "127.0.0.3"
ONCE = {"attempts": 1}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "moves": {"base_url": "http://moves.lab.test:{port}/v1", "breaker": "off"},
        "pair": {"base_url": ["http://gone.lab.test:{port}/v1", "http://127.0.0.1:{port}/v1"], "breaker": "off"},
        **{
            name: {"base_url": f"http://{name}.lab.test:{{port}}/v1", "breaker": "off"}
            for name in ("unknown", "failing", "empty", "well")
        },
        **{
            f"mute{number}": {
                "base_url": f"http://mute{number}.lab.test:{{port}}/v1",
                "breaker": "off",
                "timeouts": {"connect": "2s"},
            }
            for number in range(8)
        },
    },
    "routes": [
        route("moves", "moves", retry=ONCE),
        route("pair", "pair", retry={"attempts": 2, "base": "10ms"}),
        *(route(name, name, retry={"base": "10ms"}) for name in ("unknown", "failing", "empty", "well")),
        *(route(f"mute{number}", f"mute{number}", retry=ONCE) for number in range(8)),
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def names() -> AsyncIterator[NameServer]:
    async with NameServer() as names:
        yield names


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(names: NameServer) -> AsyncIterator[Lab]:
    async with Lab(POLICY, prefix=names.prefix) as lab:
        yield lab


async def tells_where(exchange: Exchange) -> None:
    """Answers with the address at which the request came."""
    await exchange.reply(200, exchange.writer.get_extra_info("sockname")[0].encode())


@asynccontextmanager
async def at(provider: ScriptedProvider, host: str) -> AsyncIterator[None]:
    """Lets a provider listen at another address too, on its port."""
    provider.script = tells_where
    server = await asyncio.get_running_loop().create_server(provider._protocol, host, provider.port)
    try:
        yield
    finally:
        server.close()


def said(answer: Answer) -> tuple[int, bytes]:
    return answer.status, answer.body


async def test_a_name_that_moved_is_followed_at_once_when_the_old_address_refuses(lab: Lab, names: NameServer) -> None:
    provider = lab["moves"]
    async with at(provider, NEW):
        async with at(provider, OLD):
            names.hosts["moves.lab.test"] = [OLD]
            assert said(await lab.chat("moves")) == (200, OLD.encode())
            names.hosts["moves.lab.test"] = [NEW]
            assert said(await lab.chat("moves")) == (200, OLD.encode())
        provider.script = closes
        assert (await lab.chat("moves")).status == 502
        provider.script = tells_where
        answer = await lab.chat("moves")
        assert (*said(answer), answer.attempts) == (200, NEW.encode(), 1)


@pytest.mark.parametrize(
    ("name", "said_of_it", "attempts"), [("unknown", NXDOMAIN, 1), ("failing", SERVFAIL, 3), ("empty", [], 1)]
)
async def test_a_name_without_an_address_is_a_clear_502_and_recovers_by_itself(
    lab: Lab, names: NameServer, name: str, said_of_it: Any, attempts: int
) -> None:
    names.hosts[f"{name}.lab.test"] = said_of_it
    answer = await lab.chat(name)
    assert (answer.status, answer.reason, answer.attempts) == (502, "upstream_unreachable", attempts)
    assert f"while connecting to http://{name}.lab.test" in (await lab.proxy.line_of(answer))["detail"]
    async with at(lab[name], OLD):
        names.hosts[f"{name}.lab.test"] = [OLD]
        answer = await lab.chat(name)
        assert (*said(answer), answer.attempts) == (200, OLD.encode(), 1)


async def test_where_one_of_two_names_is_unknown_another_attempt_goes_to_the_other(lab: Lab) -> None:
    lab["pair"].script = tells_where
    answers = [await lab.chat("pair") for _ in range(4)]
    assert [said(answer) for answer in answers] == [(200, b"127.0.0.1")] * 4
    assert max(answer.attempts for answer in answers) == 2


async def test_names_that_nobody_answers_for_cost_their_own_callers_the_connect_limit_and_nobody_else_anything(
    lab: Lab, names: NameServer
) -> None:
    mute = [f"mute{number}" for number in range(8)]
    for name in mute:
        names.hosts[f"{name}.lab.test"] = None
    calls = [asyncio.ensure_future(lab.chat(name)) for name in mute for _ in range(3)]
    while len({name for name in names.asked if name.startswith("mute")}) < 8:
        await asyncio.sleep(0.01)
    names.hosts["well.lab.test"] = [OLD]
    async with at(lab["well"], OLD):
        assert said(await lab.chat("well")) == (200, OLD.encode())
    assert not all(call.done() for call in calls)
    answers = await asyncio.gather(*calls)
    assert {(answer.status, answer.reason) for answer in answers} == {(504, "connect_timeout")}
    assert (await lab.proxy.get("/livez")).status == 200
