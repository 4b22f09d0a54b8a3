"""The table of reasons (rule 9): how each is provoked, in two dialects, and what the caller then sees."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from proxy.outcome import Reason
from tests.integration.caller import HOST, Answer, Body, Headers
from tests.integration.harness import Lab
from tests.integration.messages import (
    CHAT,
    CHAT_STREAM,
    MESSAGE_START,
    MESSAGE_TEXT,
    MESSAGES,
    MESSAGES_STREAM,
    answers,
    event,
    hangs,
    resets,
)
from tests.integration.scripted import Exchange, Script
from tests.ports import free_port

NOT_BUILT_YET = {
    Reason.FORBIDDEN_TARGET: "the forward proxy",
    Reason.MISDIRECTED: "interception",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a caller asks, and the error types that it expects by status."""

    path: str
    body: dict[str, Any]
    stream: dict[str, Any]
    events: tuple[bytes, ...]
    types: dict[int, str]
    kind: str | None


DIALECTS = {
    "openai": Dialect(
        path="/v1/chat/completions",
        body=CHAT,
        stream=CHAT_STREAM,
        events=(event(None), event("well")),
        types={
            **dict.fromkeys((400, 404, 409, 413), "invalid_request_error"),
            **dict.fromkeys((502, 503, 504, 508), "server_error"),
            429: "rate_limit_error",
        },
        kind=None,
    ),
    "anthropic": Dialect(
        path="/v1/messages",
        body=MESSAGES,
        stream=MESSAGES_STREAM,
        events=(MESSAGE_START, MESSAGE_TEXT),
        types={
            400: "invalid_request_error",
            404: "not_found_error",
            409: "invalid_request_error",
            413: "request_too_large",
            429: "rate_limit_error",
            502: "api_error",
            503: "overloaded_error",
            504: "timeout_error",
            508: "api_error",
        },
        kind="error",
    ),
}


class Caller:
    """A caller of one dialect; each case has a route, and a provider, of its own.

    `headers` and `query` go with all of its requests.
    """

    def __init__(self, lab: Lab, case: str, dialect: Dialect, *, headers: Headers = (), query: str = "") -> None:
        self.lab = lab
        self.dialect = dialect
        self._case = case
        self._headers = headers
        self._query = query

    async def ask(self, body: Body = None, *, script: Script | None = None, headers: Headers = ()) -> Answer:
        """Asks this case's route."""
        if script is not None:
            self.lab[self._case].script = script
        return await self.send(body, headers=[("x-case", self._case), *headers])

    async def send(self, body: Body = None, *, headers: Headers) -> Answer:
        """Sends a request that need not reach the route."""
        fields = [*headers, ("content-type", "application/json"), *self._headers]
        body = self.dialect.body if body is None else body
        return await self.lab.call(self.dialect.path + self._query, body, headers=fields)

    async def ask_while_busy(self, calls: int) -> Answer:
        """Asks while so many calls are under way or wait, and lets those go afterwards."""
        over = asyncio.Event()

        async def script(exchange: Exchange) -> None:
            await over.wait()
            await exchange.reply(200, {})

        self.lab[self._case].script = script
        others = [asyncio.ensure_future(self.ask()) for _ in range(calls)]
        await self.lab.proxy.until(lambda status: status["in_flight"] == calls)
        answer = await self.ask()
        over.set()
        assert {other.status for other in await asyncio.gather(*others)} == {200}
        return answer


async def no_route(caller: Caller) -> Answer:
    return await caller.send(headers=[("x-case", "none of them")])


async def comes_back(caller: Caller) -> Answer:
    """Sends a request as it went to the provider: the provider has sent it back to us."""
    await caller.ask()
    via = caller.lab[case(Reason.LOOP_DETECTED)].seen[-1].all("via")
    return await caller.send(headers=[("via", one) for one in via])


async def stops_reading_between_events(caller: Caller) -> Answer:
    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for piece in caller.dialect.events:
            await exchange.chunk(piece)
        await hangs(exchange)

    return await caller.ask(caller.dialect.stream, script=script)


async def after_a_failure(caller: Caller, status: int, *headers: tuple[str, str]) -> Answer:
    await caller.ask(script=answers(status, headers=headers))
    return await caller.ask()


async def twice(caller: Caller) -> Answer:
    await caller.ask()
    return await caller.ask()


async def with_the_key_of_another_request(caller: Caller) -> Answer:
    key = [("idempotency-key", f"the same, {caller.dialect.path}")]
    await caller.ask(headers=key)
    return await caller.ask({**caller.dialect.body, "n": 2}, headers=key)


async def ends_meanwhile(caller: Caller) -> Answer:
    caller.lab["shutting-down"].script = hangs
    asking = asyncio.ensure_future(caller.ask())
    await caller.lab["shutting-down"].has_seen(1)
    caller.lab.proxy.signal(signal.SIGTERM)
    return await asking


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One reason: how it is provoked, and what the caller sees.

    `attempts` None: no tier was asked, so no provider is named. `comes_back`: Retry-After says when. `again` False:
    the answer says that nothing should be tried again. `event`: it is told inside an answer that has begun.
    """

    status: int
    provoke: Callable[[Caller], Awaitable[Answer]]
    provider: dict[str, Any] | None = None
    route: dict[str, Any] | None = None
    tier: dict[str, Any] | None = None
    attempts: int | None = 0
    comes_back: bool = False
    again: bool = True
    event: bool = False


ROWS: dict[Reason, Row] = {
    Reason.BAD_REQUEST: Row(
        status=400, provoke=lambda c: c.ask(b'{"model": oops'), tier={"set": {"max_tokens": 5}}, attempts=None
    ),
    Reason.NO_ROUTE: Row(status=404, provoke=no_route, attempts=None),
    Reason.BODY_TOO_LARGE: Row(
        status=413, provoke=lambda c: c.ask(b" " * 2000), route={"body": {"max": "1KiB"}}, attempts=None
    ),
    Reason.CONTEXT_TOO_LONG: Row(
        status=413, provoke=lambda c: c.ask(), provider={"models": {"m": {"context_tokens": 1}}}
    ),
    Reason.IDEMPOTENCY_CONFLICT: Row(status=409, provoke=with_the_key_of_another_request, attempts=None, again=False),
    Reason.QUEUE_FULL: Row(
        status=429,
        provoke=lambda c: c.ask_while_busy(2),
        provider={"limits": {"concurrency": 1}, "queue": {"max": 1}},
        comes_back=True,
    ),
    Reason.QUEUE_TIMEOUT: Row(
        status=429,
        provoke=lambda c: c.ask_while_busy(1),
        provider={"limits": {"concurrency": 1}, "timeouts": {"queue": "100ms"}},
        comes_back=True,
    ),
    Reason.QUOTA_EXHAUSTED: Row(
        status=429,
        provoke=twice,
        provider={"limits": {"rpm": 1}, "timeouts": {"quota_wait": "100ms"}},
        comes_back=True,
    ),
    Reason.TENANT_LIMIT: Row(
        status=429, provoke=lambda c: c.ask(headers=[("x-agent-id", "barred")]), attempts=None, again=False
    ),
    Reason.KEYS_RESTING: Row(
        status=429,
        provoke=lambda c: after_a_failure(c, 429, ("retry-after", "40")),
        provider={"keys": [{"id": "k", "env": "KEY"}], "timeouts": {"quota_wait": "100ms"}},
        comes_back=True,
    ),
    Reason.UPSTREAM_UNREACHABLE: Row(
        status=502,
        provoke=lambda c: c.ask(),
        provider={"base_url": f"http://{HOST}:{free_port()}/v1"},
        attempts=1,
    ),
    Reason.KEYS_UNUSABLE: Row(
        status=502,
        provoke=lambda c: after_a_failure(c, 401),
        provider={"keys": [{"id": "k", "env": "KEY"}]},
    ),
    Reason.BREAKER_OPEN: Row(
        status=503,
        provoke=lambda c: after_a_failure(c, 500),
        provider={"breaker": {"consecutive": 1}},
        comes_back=True,
    ),
    Reason.SHUTTING_DOWN: Row(status=503, provoke=ends_meanwhile, attempts=1),
    Reason.CONNECT_TIMEOUT: Row(
        status=504,
        provoke=lambda c: c.ask(),
        provider={"base_url": "a full listener", "timeouts": {"connect": "200ms"}},
        attempts=1,
    ),
    Reason.FIRST_BYTE_TIMEOUT: Row(
        status=504,
        provoke=lambda c: c.ask(c.dialect.stream, script=hangs),
        provider={"timeouts": {"first_byte": "200ms"}},
        attempts=1,
    ),
    Reason.ANSWER_TIMEOUT: Row(
        status=504, provoke=lambda c: c.ask(script=hangs), provider={"timeouts": {"answer": "200ms"}}, attempts=1
    ),
    Reason.IDLE_TIMEOUT: Row(
        status=200,
        provoke=stops_reading_between_events,
        provider={"timeouts": {"idle": "200ms"}},
        attempts=1,
        event=True,
    ),
    Reason.TOTAL_TIMEOUT: Row(
        status=504,
        provoke=lambda c: c.ask(script=hangs),
        provider={"timeouts": {"queue": "10ms", "quota_wait": "10ms"}},
        route={"total": "200ms"},
        attempts=1,
    ),
    Reason.LOOP_DETECTED: Row(status=508, provoke=comes_back, attempts=None, again=False),
    Reason.MAYBE_EXECUTED: Row(
        status=504, provoke=lambda c: c.ask(script=resets), route={"repeatable": False}, attempts=1, again=False
    ),
}


def policy(*reasons: Reason) -> dict[str, Any]:
    """Returns a policy with a route and a provider for each reason."""
    defaults = {"breaker": "off"}
    routes = [
        {
            "name": reason,
            "match": {"header": {"x-case": case(reason)}},
            "tiers": [{"provider": case(reason), **(ROWS[reason].tier or {})}],
            "retry": {"attempts": 1},
            **(ROWS[reason].route or {}),
        }
        for reason in reasons
    ]
    providers = {case(reason): {**defaults, **(ROWS[reason].provider or {})} for reason in reasons}
    tenants = {"from": [{"header": "x-agent-id"}], "overrides": {"barred": {"concurrency": 0}}}
    return {"version": 1, "providers": providers, "routes": routes, "tenants": tenants}


def case(reason: Reason) -> str:
    return reason.replace("_", "-")
