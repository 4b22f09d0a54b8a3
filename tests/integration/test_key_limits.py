"""Keys with limits of their own: chosen by what is left of each, stopped by their provider's word, never mixed up."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer, Headers
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, in_turn, said, says
from tests.integration.quotas import goes_live
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

NAMES = "abcdef"
ONCE = {"attempts": 1}


def keys(names: str, **each: Any) -> dict[str, Any]:
    """Returns a provider with keys of these names and limits."""
    of = [{"id": name, "env": f"KEY_{name.upper()}", **each} for name in names]
    return {"keys": of, "limits": {"headroom": 1.0}, "breaker": "off"}


REST_FORMS: dict[str, tuple[Headers, Any, float]] = {
    "anthropic": (
        [("anthropic-ratelimit-tokens-remaining", "0"), ("anthropic-ratelimit-tokens-reset", "rfc3339")],
        None,
        90,
    ),
    "openrouter": ([("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "unix-ms")], None, 90),
    "unix": ([("ratelimit-remaining", "0"), ("ratelimit-reset", "unix")], None, 90),
    "draft": ([("ratelimit", '"default";r=0;t=45')], None, 45),
    "azure": ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "33")], None, 33),
    "go": ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "1m30s")], None, 90),
    "of-two-the-longer": (
        [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "20ms"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "50s"),
        ],
        None,
        50,
    ),
    "only-what-is-used-up": (
        [
            ("x-ratelimit-remaining-requests", "7"),
            ("x-ratelimit-reset-requests", "10m"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "25s"),
        ],
        None,
        25,
    ),
    "google": (
        [],
        {
            "error": {
                "code": 429,
                "status": "RESOURCE_EXHAUSTED",
                "message": "slow down",
                "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}],
            }
        },
        34,
    ),
}
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        **{f"form-{name}": keys("ab") for name in REST_FORMS},
        "fuller": keys("ab"),
        "rated": {**keys("ab", rpm=600, tpm=6_000_000), "timeouts": {"quota_wait": "50ms"}},
        "alone": {**keys("a"), "limits": {"headroom": 1.0, "rpm": 60}, "timeouts": {"quota_wait": "20ms"}},
        "unrated": {**keys("a"), "timeouts": {"quota_wait": "20ms"}},
        "promised": keys("a", tpm=600_000),
        "tokens": {**keys("ab", tpm=600), "timeouts": {"quota_wait": "1ms"}},
        "twenty": {**keys(NAMES), "timeouts": {"quota_wait": "5s"}},
        "soonest": {**keys("ab"), "timeouts": {"quota_wait": "10s"}},
        "late": {**keys("ab"), "timeouts": {"quota_wait": "2s"}},
        "tiered": keys("ab"),
        "kept": keys("ab"),
        "after": {},
    },
    "routes": [
        route("tiered", "tiered", "after", retry=ONCE),
        route("rated", "rated", retry=ONCE),
        route("alone", "alone", retry=ONCE),
        route("unrated", "unrated", retry=ONCE),
        route("tokens", "tokens", retry=ONCE),
        route("twenty", "twenty", retry=ONCE),
        route("soonest", "soonest", retry=ONCE),
        route("late", "late", retry=ONCE),
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with Lab(POLICY, env={f"KEY_{name.upper()}": f"sk-{name}" for name in NAMES}) as lab:
        yield lab


async def ask(lab: Lab, provider: str, **fields: Any) -> Answer:
    """Asks this provider alone."""
    return await lab.call(f"/{provider}/v1/chat/completions", {**CHAT, **fields})


def key_of(exchange: Exchange) -> str:
    """Returns the key of a request."""
    return (exchange.request.header("authorization") or "").removeprefix("Bearer sk-")


def used(lab: Lab, provider: str) -> Counter[str]:
    """Returns how often a provider saw each key."""
    seen = (request.header("authorization") or "" for request in lab[provider].seen)
    return Counter(value.removeprefix("Bearer sk-") for value in seen)


def by_key(**scripts: Script) -> Script:
    """A provider that treats each key in its own way."""

    async def script(exchange: Exchange) -> None:
        await scripts.get(key_of(exchange), says("hi"))(exchange)

    return script


def says_left(requests: int, limit: int = 1000, reset: str = "60s") -> Script:
    """A provider that answers, and tells how many requests are left of a key."""
    headers = [
        ("x-ratelimit-limit-requests", str(limit)),
        ("x-ratelimit-remaining-requests", str(requests)),
        ("x-ratelimit-reset-requests", reset),
    ]
    return answers(200, said("hi"), headers=headers)


async def test_the_fuller_key_gets_more(lab: Lab) -> None:
    lab["fuller"].script = by_key(a=says_left(900), b=says_left(100))
    for _ in range(2):
        await ask(lab, "fuller")
    lab["fuller"].forget()
    for _ in range(50):
        assert (await ask(lab, "fuller")).status == 200
    assert 40 <= used(lab, "fuller")["a"] <= 48
    assert used(lab, "fuller")["b"] >= 2
    rows = [row for row in (await lab.proxy.status())["keys"] if row["provider"] == "fuller"]
    assert {row["id"]: round(row["left"], 1) for row in rows} == {"a": 0.9, "b": 0.1}


async def test_a_key_of_which_nothing_is_left_is_not_used_until_its_bucket_has_more(lab: Lab) -> None:
    await lab.proxy.until(lambda status: min(left(status, "rated")) >= 20)
    lab["rated"].script = by_key(a=says_left(0))
    while not used(lab, "rated")["a"]:
        assert (await ask(lab, "rated")).status == 200
    assert left(await lab.proxy.status(), "rated")[0] < 5


def left(status: Any, provider: str, *, unit: str = "requests") -> list[float]:
    """Returns how many requests or tokens are left of each key."""
    rows = [row for row in status["quotas"] if row["limit"].startswith(f"key {provider}/")]
    return [row["left"] for row in rows if row["unit"] == unit]


async def test_what_comes_back_of_a_call_is_not_more_than_its_provider_says_is_left(lab: Lab) -> None:
    """Each reserves forty thousand and uses eight: what the provider says of its tokens holds all the same."""
    await lab.proxy.until(lambda status: left(status, "promised", unit="tokens") == [50_000])
    headers = [(f"x-ratelimit-{name}-tokens", value) for name, value in [("limit", "600000"), ("remaining", "50")]]
    lab["promised"].script = answers(200, said("hi"), headers=headers)
    results = await asyncio.gather(*(ask(lab, "promised", max_tokens=10_000) for _ in range(4)))
    assert {answer.status for answer in results} == {200}
    # What the head said is the whole truth a moment later; ten thousand tokens a second come back.
    after = max(answer.seconds for answer in results)
    assert left(await lab.proxy.status(), "promised", unit="tokens")[0] < 5_000 + 10_000 * after


async def test_the_word_for_the_only_key_binds_its_provider_s_bucket(lab: Lab) -> None:
    lab["alone"].script = says_left(0)
    assert (await ask(lab, "alone")).status == 200
    answer = await ask(lab, "alone")
    assert (answer.status, answer.reason) == (429, "quota_exhausted")
    assert answer.header("retry-after") == "1"


async def test_the_word_alone_refuses_nothing_where_the_policy_has_no_rate(lab: Lab) -> None:
    lab["unrated"].script = says_left(0)
    for _ in range(3):
        assert (await ask(lab, "unrated")).status == 200


async def test_each_key_has_tokens_of_its_own(lab: Lab) -> None:
    usage = {"prompt_tokens": 300, "completion_tokens": 1, "total_tokens": 301}
    lab["tokens"].script = answers(200, {**said("hi"), "usage": usage})
    results = [await ask(lab, "tokens", max_tokens=1) for _ in range(3)]
    assert [answer.status for answer in results] == [200, 200, 429]
    assert used(lab, "tokens") == {"a": 1, "b": 1}
    assert results[2].reason == "quota_exhausted"
    assert 25 <= int(results[2].header("retry-after") or 0) <= 31, "300 tokens at ten a second"


async def test_no_429_reaches_a_caller_while_another_key_works(lab: Lab) -> None:
    """Each key takes five calls a second, and refuses more; all six together take what comes."""
    times: dict[str, list[float]] = {name: [] for name in NAMES}

    async def script(exchange: Exchange) -> None:
        now, mine = time.monotonic(), times[key_of(exchange)]
        if len([at for at in mine if at > now - 1.0]) >= 5:
            await exchange.reply(429, {"error": {"message": "slow down"}}, headers=[("retry-after-ms", "300")])
            return
        mine.append(now)
        await says("hi")(exchange)

    lab["twenty"].script = script
    refused = 0
    for _ in range(60):
        answer = await lab.chat("twenty")
        refused += answer.status != 200
        await asyncio.sleep(0.04)
    assert refused == 0
    assert len(used(lab, "twenty")) == len(NAMES)


@pytest.mark.parametrize("name", REST_FORMS)
async def test_a_key_rests_as_its_provider_says(lab: Lab, name: str) -> None:
    headers, body, seconds = REST_FORMS[name]
    began = time.time()
    until = began + seconds
    words = {
        "rfc3339": datetime.fromtimestamp(until, UTC).isoformat().replace("+00:00", "Z"),
        "unix": str(round(until)),
        "unix-ms": str(round(until * 1000)),
    }
    told = [(field, words.get(str(value), value)) for field, value in headers]
    provider = f"form-{name}"
    lab[provider].script = in_turn(answers(429, body, headers=told), says("hi"))
    answer = await ask(lab, provider)
    assert (answer.status, answer.attempts) == (200, 2)
    rests = [row["rests_for"] for row in (await lab.proxy.status())["keys"] if row["provider"] == provider]
    assert max(rests) == pytest.approx(seconds, abs=time.time() - began + 1.2)
    assert min(rests) == 0


async def test_when_all_rest_the_soonest_is_waited_for(lab: Lab) -> None:
    lab["soonest"].script = by_key(
        a=answers(429, headers=[("retry-after", "40")]),
        b=in_turn(answers(429, headers=[("retry-after-ms", "700")]), says("hi")),
    )
    first, second = await lab.chat("soonest"), await lab.chat("soonest")
    assert first.status == 429, "met on the way, with one attempt"
    assert second.status == 200
    assert used(lab, "soonest")["a"] == 1


async def test_when_all_rest_for_longer_the_next_call_is_told_the_soonest(lab: Lab) -> None:
    lab["late"].script = by_key(
        a=answers(429, headers=[("retry-after", "9")]), b=answers(429, headers=[("retry-after", "4")])
    )
    assert (await lab.chat("late")).status == 429
    lab["late"].script = says("hi")
    answer = await lab.chat("late")
    assert (answer.status, answer.reason) == (429, "keys_resting")
    after = int(answer.header("retry-after") or 0)
    assert 3 <= after <= 4
    await asyncio.sleep(after)
    assert (await lab.chat("late")).status == 200
    assert lab["late"].seen[-1].header("authorization") == "Bearer sk-b"


async def test_when_all_rest_the_next_tier_is_asked_at_once(lab: Lab) -> None:
    lab["tiered"].script = answers(429, headers=[("retry-after", "30")])
    results = [await lab.chat("tiered") for _ in range(3)]
    assert [answer.provider for answer in results] == ["after"] * 3
    assert used(lab, "tiered") == {"a": 1, "b": 1}


async def test_rests_and_parking_outlive_a_reload(lab: Lab) -> None:
    lab["kept"].script = by_key(a=answers(429, headers=[("retry-after", "50")]), b=answers(401))
    await ask(lab, "kept")
    await goes_live(lab, {**lab.policy, "telemetry": {"log_successes": 0.5}})
    states = {row["id"]: row["state"] for row in (await lab.proxy.status())["keys"] if row["provider"] == "kept"}
    assert states == {"a": "resting", "b": "parked"}
    lab["kept"].forget()
    answer = await ask(lab, "kept")
    assert (answer.status, answer.reason) == (429, "keys_resting")
    assert not lab["kept"].seen
