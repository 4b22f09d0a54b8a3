"""A proxy whose answers are kept in a real server: shared with another proxy, and never missed when it is away."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

from tests.integration.caller import Answer, call
from tests.integration.harness import Lab, ProxyProcess, route
from tests.integration.messages import CHAT, says
from tests.store.driving import GENEROUS
from tests.store.server import RedisServer

SECRET = "a-secret-of-the-cache"


def policy(server: RedisServer, **credentials: Any) -> dict[str, Any]:
    """Returns a policy with a route whose answers are kept there."""
    store = {"redis": server.url, **credentials}
    return {
        "version": 1,
        "providers": {"alpha": {"breaker": "off"}},
        "routes": [route("kept", "alpha", cache={"ttl": "10m", "store": store})],
    }


async def ask(proxy: ProxyProcess, seed: int) -> Answer:
    """Asks once, which must be answered."""
    answer = await call(proxy.port, "/v1/chat/completions", {**CHAT, "model": "kept", "seed": seed}, within=GENEROUS)
    assert answer.status == 200
    return answer


async def use(proxy: ProxyProcess, seed: int) -> str | None:
    """Asks once; returns what part the cache had."""
    return (await ask(proxy, seed)).header("x-sponson-cache")


async def comes_to_hit(proxy: ProxyProcess, first: int) -> None:
    """Returns once an answer is given a second time; a fresh question at each attempt."""
    async with asyncio.timeout(GENEROUS):
        for seed in count(first):
            await use(proxy, seed)
            if await use(proxy, seed) == "hit":
                return
            await asyncio.sleep(0.05)


async def test_two_proxies_share_what_one_has_asked(server: RedisServer) -> None:
    await server.start()
    async with Lab(policy(server)) as lab, ProxyProcess(lab.policy) as other:
        lab["alpha"].script = says("one")
        await comes_to_hit(lab.proxy, 100)
        await comes_to_hit(other, 200)
        asked = {seed: (await ask(lab.proxy, seed)).body for seed in range(300, 320)}
        lab["alpha"].script = says("two")
        found = {seed: await ask(other, seed) for seed in asked}
        hits = {seed: answer for seed, answer in found.items() if answer.header("x-sponson-cache") == "hit"}
        assert hits
        assert all(answer.body == asked[seed] for seed, answer in hits.items())


async def test_a_server_that_comes_goes_and_stalls_costs_no_answer(server: RedisServer) -> None:
    async with Lab(policy(server)) as lab:
        lab["alpha"].script = says("one")
        assert [await use(lab.proxy, 1) for _ in range(5)] == ["miss"] * 5
        await server.start()
        await comes_to_hit(lab.proxy, 100)
        server.kill()
        assert [await use(lab.proxy, 2) for _ in range(5)][-1] == "miss"
        await server.start()
        await comes_to_hit(lab.proxy, 200)
        server.pause()
        assert {await use(lab.proxy, 3) for _ in range(5)} <= {"miss", "hit"}
        server.resume()
        await comes_to_hit(lab.proxy, 300)
        log = lab.proxy.log()
        assert f"cache {server.url} is out (connection): requests go without it" in log
        assert " is back after " in log


async def test_a_password_is_used_and_never_told(server: RedisServer, tmp_path: Any) -> None:
    (tmp_path / "password").write_text(SECRET + "\n")
    guarded = RedisServer(server._command[0], tmp_path, "--requirepass", SECRET)
    await guarded.start()
    try:
        async with Lab(policy(guarded, password={"file": str(tmp_path / "password")})) as lab:
            lab["alpha"].script = says("one")
            await comes_to_hit(lab.proxy, 0)
            assert SECRET not in lab.proxy.log()
            assert SECRET not in str(await lab.proxy.status())
    finally:
        guarded.kill()
