"""Providers whose tokens are counted, over sockets: each stream tells its usage, callers see what they asked for."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.clock import SystemClock
from proxy.decisions.admission import Admission
from proxy.downstream.listen import bind, parse_address
from proxy.downstream.rescue import rescue
from proxy.downstream.server import DataServer
from proxy.exchange import Usage
from proxy.runtime.assembly import Surroundings, assemble
from proxy.runtime.kept_state import KeptState
from proxy.runtime.secrets import Secrets
from proxy.trace_context import Sampler
from proxy.upstream.pool import Pool
from tests.integration.caller import Answer, call
from tests.integration.messages import CHAT_STREAM, DONE, event, said
from tests.integration.scripted import Exchange, ScriptedProvider
from tests.policy.samples import load
from tests.scripted import ManualObserver

ASKS = {"include_usage": True}
LAST = b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}\n\n'
WORDS = (event(None), event("well"), event("done"))
PLAIN = b"".join(WORDS) + DONE


async def tells_who_asks(exchange: Exchange) -> None:
    """Reports a stream's usage to those who ask, as providers do."""
    body = exchange.request.json()
    if not body.get("stream"):
        await exchange.reply(200, said("hi"))
        return
    asked = (body.get("stream_options") or {}).get("include_usage")
    await exchange.stream([*WORDS, *[LAST] * bool(asked), DONE])


class Desk:
    """A proxy in this process that counts the tokens of `alpha`, not of `beta`."""

    def __init__(self, port: int, providers: dict[str, ScriptedProvider], observer: ManualObserver) -> None:
        self.port = port
        self.providers = providers
        self._observer = observer

    async def asks(self, provider: str, body: dict[str, Any], **headers: str) -> tuple[Answer, Usage | None]:
        """Makes a call; returns the answer and the usage that was recorded."""
        fields = [(name.replace("_", "-"), value) for name, value in headers.items()]
        path = f"/{provider}/v1/chat/completions" if provider else "/v1/chat/completions"
        answer = await call(self.port, path, body, headers=fields)
        return answer, self._observer.exchanges[-1].facts.usage

    def sent(self, provider: str) -> Any:
        """The body of the last request that a provider got."""
        return self.providers[provider].seen[-1].json()


def policy(ports: dict[str, int], **tier: Any) -> str:
    providers: dict[str, Any] = {name: {"base_url": f"http://127.0.0.1:{port}/v1"} for name, port in ports.items()}
    providers["alpha"]["limits"] = {"tpm": 10_000_000}
    tiers = [{"provider": "alpha", **tier}, {"provider": "beta"}]
    routes = [{"name": "both", "match": {"path": "/v1/*"}, "tiers": tiers, "retry": {"attempts": 1}}]
    return json.dumps({"version": 1, "providers": providers, "routes": routes})


@asynccontextmanager
async def counting(**tier: Any) -> AsyncIterator[Desk]:
    """A proxy and its two providers; `tier` is what the route's first tier says besides its provider."""
    kept, observer, clock = KeptState(), ManualObserver(), SystemClock()
    bits = random.Random(7).getrandbits
    around = Surroundings(kept=kept, admission=Admission(), observer=observer, rescue=rescue, clock=clock, bits=bits)
    async with ScriptedProvider() as alpha, ScriptedProvider() as beta:
        providers = {"alpha": alpha, "beta": beta}
        alpha.script = beta.script = tells_who_asks
        snapshot = load(policy({name: one.port for name, one in providers.items()}, **tier))
        runtime = assemble(snapshot, around, Secrets({}))
        runtime.go_live(clock.now())
        server = DataServer(lambda: runtime, sampler=Sampler(ratio=0.0), clock=clock, bits=bits)
        sockets = bind(parse_address("127.0.0.1:0"))
        await server.listen(sockets)
        try:
            yield Desk(sockets[0].getsockname()[1], providers, observer)
        finally:
            await server.close()
            for _, pool, _ in kept.all(Pool):
                await pool.close()


async def test_who_did_not_ask_gets_what_the_provider_would_have_sent_and_it_counts() -> None:
    async with counting() as desk:
        told, usage = await desk.asks("alpha", CHAT_STREAM, accept_encoding="gzip, br")
        assert (told.status, told.complete, told.body, usage) == (200, True, PLAIN, Usage(5, 3, 0))
        assert desk.sent("alpha") == {**CHAT_STREAM, "stream_options": ASKS}
        assert desk.providers["alpha"].seen[-1].all("accept-encoding") == [b"identity"]
        untold, usage = await desk.asks("beta", CHAT_STREAM, accept_encoding="gzip, br")
        assert (untold.body, usage) == (PLAIN, None)
        assert desk.sent("beta") == CHAT_STREAM
        assert desk.providers["beta"].seen[-1].all("accept-encoding") == [b"gzip, br"]


@pytest.mark.parametrize("provider", ["alpha", "beta"])
async def test_who_asked_gets_it_and_it_counts(provider: str) -> None:
    async with counting() as desk:
        body = {**CHAT_STREAM, "stream_options": ASKS}
        answer, usage = await desk.asks(provider, body, accept_encoding="gzip")
        assert (answer.complete, answer.body, usage) == (True, PLAIN.replace(DONE, LAST + DONE), Usage(5, 3, 0))
        assert desk.sent(provider) == body
        assert desk.providers[provider].seen[-1].all("accept-encoding") == [b"gzip"]


async def test_an_answer_in_one_piece_needs_no_asking() -> None:
    async with counting() as desk:
        body = {key: value for key, value in CHAT_STREAM.items() if key != "stream"}
        answer, usage = await desk.asks("alpha", body)
        assert (answer.json(), usage, desk.sent("alpha")) == (said("hi"), Usage(5, 3, 0), body)


async def test_what_the_policy_sets_is_part_of_what_is_asked() -> None:
    async with counting(model="other", set={"max_tokens": 9}) as desk:
        answer, usage = await desk.asks("", CHAT_STREAM)
        assert (answer.body, usage) == (PLAIN, Usage(5, 3, 0))
        assert desk.sent("alpha") == {**CHAT_STREAM, "model": "other", "max_tokens": 9, "stream_options": ASKS}


async def test_what_the_policy_says_of_it_holds() -> None:
    async with counting(set={"stream_options": {"include_usage": False}}) as desk:
        answer, usage = await desk.asks("", CHAT_STREAM)
        assert (answer.body, usage) == (PLAIN, None)


async def test_the_next_tier_is_asked_what_the_caller_asked() -> None:
    async with counting() as desk:

        async def fails(exchange: Exchange) -> None:
            await exchange.reply(503, {"error": {"message": "worn out"}})

        desk.providers["alpha"].script = fails
        answer, usage = await desk.asks("", CHAT_STREAM)
        assert (answer.body, usage, answer.provider) == (PLAIN, None, "beta")
        assert (desk.sent("alpha")["stream_options"], desk.sent("beta")) == (ASKS, CHAT_STREAM)


async def test_a_stream_that_breaks_counts_and_is_told_in_order() -> None:
    async with counting() as desk:

        async def breaks(exchange: Exchange) -> None:
            await exchange.begin()
            for part in (*WORDS, LAST):
                await exchange.chunk(part)
            exchange.close()

        desk.providers["alpha"].script = breaks
        answer, usage = await desk.asks("alpha", CHAT_STREAM)
        assert (answer.complete, usage) == (False, Usage(5, 3, 0))
        assert answer.body.startswith(b"".join(WORDS) + b'data: {"error":')
