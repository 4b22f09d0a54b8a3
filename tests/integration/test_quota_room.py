"""One waiting room: permit, quotas and key are taken together or not at all, and a refusal tells when a call goes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from itertools import accumulate
from typing import Any

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import says, when
from tests.integration.scripted import Exchange, ScriptedProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

CALLERS = 300
NAMES = "abcd"
PATIENT = {"queue": "10h", "quota_wait": "10h"}
CONCURRENCY, RPM, TPM = 24, 6_000, 300_000
KEY_CONCURRENCY, KEY_RPM, KEY_TPM = 8, 2_000, 100_000
TOKENS = 60
"""Of each call, all of which are reserved and used: so both rates bind, and the places with them."""
KEYS = [
    {"id": name, "env": f"KEY_{name}", "concurrency": KEY_CONCURRENCY, "rpm": KEY_RPM, "tpm": KEY_TPM} for name in NAMES
]
RATED = {"headroom": 1.0, "burst": "1s"}
ONCE = {"attempts": 1}
POLICY: dict[str, Any] = {
    "version": 1,
    "limits": {"concurrency": 40},
    "providers": {
        "every": {
            "keys": KEYS,
            "limits": {**RATED, "concurrency": CONCURRENCY, "rpm": RPM, "tpm": TPM},
            "queue": {"max": CALLERS},
            "timeouts": PATIENT,
        },
        "starved": {"limits": {**RATED, "rpm": 1}, "queue": {"max": CALLERS}, "timeouts": PATIENT},
        "poor": {
            "keys": [{**key, "rpm": 1} for key in KEYS],
            "limits": {**RATED, "concurrency": CONCURRENCY},
            "queue": {"max": CALLERS},
            "timeouts": PATIENT,
        },
        "brief": {"limits": {**RATED, "rpm": 30}, "timeouts": {"quota_wait": "100ms"}},
        "brief-keys": {
            "keys": [{"id": name, "env": f"KEY_{name}", "rpm": 30} for name in "ab"],
            "limits": RATED,
            "timeouts": {"quota_wait": "100ms"},
        },
        "crowded": {"limits": {**RATED, "rpm": 30}, "queue": {"max": 1}, "timeouts": PATIENT},
        "free": {},
    },
    "routes": [
        route("every", "every", retry=ONCE),
        route("starved", "starved", retry=ONCE),
        route("poor", "poor", retry=ONCE),
        route("brief", "brief", retry=ONCE),
        route("brief-keys", "brief-keys", retry=ONCE),
        route("crowded", "crowded", retry=ONCE),
        route("free", "free", retry=ONCE),
    ],
}
ENV = {f"KEY_{name}": f"sk-{name}" for name in "abcd"}


def body(model: str) -> bytes:
    """Returns a chat that asks for so many tokens, prompt and all."""
    document = {"model": model, "max_tokens": TOKENS - 40, "messages": [{"role": "user", "content": ""}]}
    document["messages"] = [{"role": "user", "content": "x" * (120 - len(json.dumps(document)))}]
    return json.dumps(document).encode()


async def ask(lab: Lab, model: str, *, within: float = 60.0) -> Answer:
    """Sends such a chat."""
    headers = [("content-type", "application/json")]
    return await lab.call(body=body(model), headers=headers, within=within)


class Counting:
    """A provider that counts its calls by key: when each came, and how many at once."""

    def __init__(self, provider: ScriptedProvider, seconds: float) -> None:
        self.seconds = seconds
        self.at: dict[str, list[float]] = defaultdict(list)
        self.now: Counter[str] = Counter()
        self.peak: Counter[str] = Counter()
        provider.script = self.script

    async def script(self, exchange: Exchange) -> None:
        """Answers after a while; every token that was reserved is used."""
        key = (exchange.request.header("authorization") or "").removeprefix("Bearer sk-")
        for scope in (key, "all"):
            self.at[scope].append(exchange.request.at)
            self.now[scope] += 1
            self.peak[scope] = max(self.peak[scope], self.now[scope])
        await asyncio.sleep(self.seconds)
        for scope in (key, "all"):
            self.now[scope] -= 1
        usage = {"prompt_tokens": 40, "completion_tokens": TOKENS - 40, "total_tokens": TOKENS}
        await exchange.reply(200, {"id": "c", "object": "chat.completion", "choices": [], "usage": usage})

    def most(self, scope: str, per_minute: float, each: float = 1.0) -> float:
        """Returns what came beyond an even flow of so much a minute since the first call, at the worst moment."""
        first, rate = self.at[scope][0], per_minute / 60
        came = accumulate([each] * len(self.at[scope]))
        return max(count - rate * (at - first) for count, at in zip(came, self.at[scope], strict=True))


async def test_all_that_binds_holds_at_once_and_everybody_gets_a_turn(lab: Lab) -> None:
    seen = Counting(lab["every"], 0.15)
    results = await asyncio.gather(*(ask(lab, "every") for _ in range(CALLERS)))
    assert {answer.status for answer in results} == {200}
    assert len(lab["every"].seen) == CALLERS
    assert seen.peak["all"] <= CONCURRENCY
    assert all(seen.peak[name] <= KEY_CONCURRENCY for name in NAMES)
    # A bucket holds a second of rate at most.
    assert seen.most("all", RPM) <= RPM / 60
    assert seen.most("all", TPM, TOKENS) <= TPM / 60
    for name in NAMES:
        assert seen.most(name, KEY_RPM) <= KEY_RPM / 60
        assert seen.most(name, KEY_TPM, TOKENS) <= KEY_TPM / 60
        assert len(seen.at[name]) > CALLERS / 8, "all keys are used"


@pytest.mark.parametrize(("provider", "goes"), [("starved", 1), ("poor", len(NAMES))])
async def test_who_lacks_quota_holds_nothing(lab: Lab, provider: str, goes: int) -> None:
    gate = asyncio.Event()
    lab[provider].script = when(gate, says("hi"))
    callers = [asyncio.ensure_future(ask(lab, provider)) for _ in range(50)]
    status = await lab.proxy.until(lambda s: waiting(s, provider) == 50 - goes)
    await lab[provider].has_seen(goes)
    assert status["permits_out"] == len(status["holders"]) == lab[provider].active == goes
    held = {row["limit"]: row["in_use"] for row in status["permits"]}
    assert (held["all providers"], held[f"connections {provider}"]) == (goes, goes)
    if provider == "poor":
        assert {held[f"key poor/{name}"] for name in NAMES} == {1}
    # What all share is there for others, however many wait here.
    lab["free"].script = says("hi")
    others = await asyncio.gather(*(ask(lab, "free") for _ in range(60)))
    assert {answer.status for answer in others} == {200}
    for caller in callers:
        caller.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    gate.set()


def waiting(status: Any, provider: str) -> int:
    """Returns how many wait at a provider."""
    return sum(row["waiting"] for row in status["queues"] if row["provider"] == provider)


@pytest.mark.parametrize(
    ("provider", "reason"),
    [("brief", "quota_exhausted"), ("brief-keys", "quota_exhausted"), ("crowded", "queue_full")],
)
async def test_a_refusal_tells_when_a_call_goes(lab: Lab, provider: str, reason: str) -> None:
    results: list[Answer] = []
    callers = [asyncio.ensure_future(ask(lab, provider)) for _ in range(20)]
    async with asyncio.timeout(10):
        while len(results) < 5:
            await asyncio.sleep(0.02)
            results = [caller.result() for caller in callers if caller.done() and caller.result().status != 200]
    assert {answer.reason for answer in results} == {reason}
    waits = {int(answer.header("retry-after") or 0) for answer in results}
    assert 1 <= min(waits) <= max(waits) <= 5
    await asyncio.gather(*callers)
    await asyncio.sleep(max(waits))
    answer = await ask(lab, provider)
    assert (answer.status, answer.seconds < max(waits) + 4) == (200, True)


async def test_callers_who_leave_take_nothing_with_them(lab: Lab) -> None:
    """Half of those who wait go away, some of them just when their turn has come."""
    lab["every"].script = says("hi", after=0.02)
    headers = [("content-type", "application/json")]

    async def leaves(number: int) -> None:
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", "/v1/chat/completions", headers=headers, body=body("every")))
            await asyncio.sleep(0.01 * (number % 70))
            wire.leave(reset=bool(number % 2))

    results = await asyncio.gather(*(ask(lab, "every") if n % 2 else leaves(n) for n in range(200)))
    assert {answer.status for answer in results if answer is not None} == {200}
    await lab.idle()
    status = await lab.proxy.status()
    assert (status["permits_out"], status["holders"]) == (0, [])
    full = await lab.proxy.until(lambda s: all(row["left"] == row["capacity"] for row in rows(s, "every")), within=10)
    assert all(row["left"] >= 0 for row in rows(full, "every"))


def rows(status: Any, provider: str) -> list[Any]:
    """Returns a provider's buckets, and those of its keys."""
    return [row for row in status["quotas"] if row["limit"].split()[-1].split("/")[0] == provider]
