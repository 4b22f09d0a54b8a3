"""Keyed calls while the proxy changes: a reload keeps them and what is known of them, a shutdown shows their break."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from tests.integration.harness import Lab, route
from tests.integration.keyed import OWN, SECRETS, key
from tests.integration.messages import event, hangs, says
from tests.integration.scripted import Exchange


def policy(name: str, **rest: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "providers": {"alpha": OWN},
        "routes": [route(name, "alpha", match={"model": "chat"}, repeatable=False, **rest)],
    }


async def test_a_reload_joins_what_runs_and_gives_again_what_has_ended() -> None:
    async with Lab(policy("chat"), env=SECRETS) as lab:
        lab["alpha"].script = says("hi", after=1.0)
        running = asyncio.ensure_future(lab.chat("chat", headers=key("k")))
        await lab["alpha"].has_seen(1)
        renamed = {**policy("talk", was="chat", body={"max": "2MiB"}), "providers": lab.policy["providers"]}
        lab.proxy.rewrite(renamed)
        async with asyncio.timeout(10):
            while (await lab.proxy.get("/policy")).json()["revision"] < 2:
                await asyncio.sleep(0.02)
        joined, again = await lab.chat("chat", headers=key("k")), await lab.chat("chat", headers=key("k"))
        assert (await running).body == joined.body == again.body
        assert len(lab["alpha"].seen) == 1


async def test_a_shutdown_shows_every_caller_of_a_call_its_break() -> None:
    async with Lab(policy("chat"), flags=["--drain", "1s"], env=SECRETS) as lab:

        async def script(exchange: Exchange) -> None:
            await exchange.begin()
            await exchange.chunk(event("half"))
            await hangs(exchange)

        lab["alpha"].script = script
        callers = [asyncio.ensure_future(lab.chat("chat", stream=True, headers=key("k"))) for _ in range(3)]
        await lab.proxy.until(lambda status: status["idempotency"]["joined"] == 2)
        lab.proxy.signal(signal.SIGTERM)
        for answer in await asyncio.gather(*callers):
            assert answer.body.startswith(event("half"))
            assert b"shutting_down" in answer.body
            assert not answer.complete
        assert await lab.proxy.exited(within=10) == 0
        assert len(lab["alpha"].seen) == 1
        assert "Traceback" not in lab.proxy.log()
