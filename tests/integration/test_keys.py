"""Keys of a provider: whose turn it is, who rests after a 429 and for how long, who is parked after a 401."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer, Headers
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, in_turn, says
from tests.integration.scripted import Exchange, Script

pytestmark = pytest.mark.asyncio(loop_scope="module")


def keys(*names: str, **rest: Any) -> dict[str, Any]:
    """Returns a provider with keys of these names, each from the variable KEY_NAME."""
    return {"keys": [{"id": name, "env": f"KEY_{name.upper()}"} for name in names], "breaker": "off", **rest}


RESTS = {f"rest-{number}": keys("one", "two") for number in range(10)}
POLICY = {
    "version": 1,
    "providers": {
        **RESTS,
        "weighted": {"keys": [{"id": "one", "env": "KEY_ONE"}, {"id": "two", "env": "KEY_TWO", "weight": 3}]},
        "other": keys("one", "two", "three"),
        "many": keys("one", "two", "three", "four", "five"),
        "all-rest": keys("one", "two", timeouts={"quota_wait": "200ms"}),
        "short-rest": keys("one", timeouts={"quota_wait": "5s"}),
        "default-rest": keys("one", "two", key_rest="7s"),
        "single": keys("one", timeouts={"quota_wait": "1s"}),
        "parks": keys("one", "two"),
        "all-parked": keys("one", "two"),
        "spent": keys("one", "two"),
        "forbidden": keys("one", "two"),
        "blamed": keys("one", "two"),
        "busy": {"keys": [{"id": name, "env": f"KEY_{name.upper()}", "concurrency": 1} for name in ("one", "two")]},
        "filed": {"keys": [{"id": "f", "file": "{folder}/filed"}], "breaker": "off"},
        "ragged": {"keys": [{"id": "f", "file": "{folder}/ragged"}]},
        "tiered": keys("one"),
        "after": {},
    },
    "routes": [
        route("tiered", "tiered", "after"),
        route("all-rest", "all-rest", retry={"attempts": 1}),
        route("many", "many", retry={"attempts": 1}),
        route("retried", "other", retry={"attempts": 3, "base": "10ms"}),
    ],
}
ENV = {f"KEY_{name.upper()}": f"sk-{name}" for name in ("one", "two", "three", "four", "five")}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "filed").write_text("sk-old\n")
    (folder / "ragged").write_text("  sk-ragged\r\n\n")
    for name in ("filed", "ragged"):
        POLICY["providers"][name]["keys"][0]["file"] = str(folder / name)  # type: ignore[index]
    async with Lab(POLICY, env=ENV) as lab:
        yield lab


async def ask(lab: Lab, provider: str, *, headers: Headers = ()) -> Answer:
    """Asks this provider alone."""
    return await lab.call(f"/{provider}/v1/chat/completions", CHAT, headers=headers)


def used(lab: Lab, provider: str) -> list[str]:
    """Returns the keys that the provider saw, in order."""
    return [(request.header("authorization") or "").removeprefix("Bearer sk-") for request in lab[provider].seen]


def by_key(**scripts: Script) -> Script:
    """A provider that treats each key in its own way."""

    async def script(exchange: Exchange) -> None:
        name = (exchange.request.header("authorization") or "").removeprefix("Bearer sk-")
        await scripts.get(name, says("hi"))(exchange)

    return script


async def test_turns_follow_the_weights(lab: Lab) -> None:
    for _ in range(40):
        assert (await ask(lab, "weighted")).status == 200
    assert Counter(used(lab, "weighted")) == {"one": 10, "two": 30}
    assert max(len(run) for run in "".join(name[1] for name in used(lab, "weighted")).split("n")) <= 3


async def test_other_key_is_taken_at_once_after_a_429(lab: Lab) -> None:
    lab["other"].script = by_key(one=answers(429, headers=[("retry-after", "30")]))
    for _ in range(6):
        answer = await ask(lab, "other")
        assert answer.status == 200
        assert answer.seconds < 1
    assert Counter(used(lab, "other"))["one"] == 1
    assert (await lab.row("keys", provider="other", id="one"))["state"] != (
        await lab.row("keys", provider="other", id="two")
    )["state"]


DATES = {"imf": "%a, %d %b %Y %H:%M:%S GMT", "rfc850": "%A, %d-%b-%y %H:%M:%S GMT", "asctime": "%a %b %e %H:%M:%S %Y"}
FORMS: list[tuple[Headers, float]] = [
    ([("retry-after", "20")], 20),
    ([("retry-after", "1.5"), ("retry-after", "3")], 1.5),
    ([("retry-after", "imf")], 90),
    ([("retry-after", "rfc850")], 90),
    ([("retry-after", "asctime")], 90),
    ([("retry-after-ms", "2500"), ("retry-after", "30")], 2.5),
    ([("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "6m0s")], 360),
    ([("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m2.5s")], 62.5),
    ([("retry-after", "abc")], 60),
    ([("retry-after", "-5")], 60),
]


@pytest.mark.parametrize(("number", "headers", "seconds"), [(at, *form) for at, form in enumerate(FORMS)])
async def test_key_rests_as_long_as_it_is_told(lab: Lab, number: int, headers: Headers, seconds: float) -> None:
    provider = f"rest-{number}"
    began = time.time()
    moment = time.gmtime(began + seconds)
    told = [(name, time.strftime(DATES[str(value)], moment) if value in DATES else value) for name, value in headers]
    lab[provider].script = in_turn(answers(429, headers=told), says("hi"))
    answer = await ask(lab, provider)
    assert (answer.status, answer.attempts) == (200, 2)
    rests = [row["rests_for"] for row in (await lab.proxy.status())["keys"] if row["provider"] == provider]
    assert max(rests) == pytest.approx(seconds, abs=time.time() - began + 1.2)
    assert max(rests) <= seconds + 0.01
    assert min(rests) == 0


async def test_key_rests_for_the_policys_time_when_nothing_is_told(lab: Lab) -> None:
    lab["default-rest"].script = in_turn(answers(429), says("hi"))
    assert (await ask(lab, "default-rest")).status == 200
    rests = [row["rests_for"] for row in (await lab.proxy.status())["keys"] if row["provider"] == "default-rest"]
    assert 5 < max(rests) <= 7


async def test_429_met_on_the_way_is_relayed_when_the_rest_is_longer_than_may_be_waited(lab: Lab) -> None:
    lab["single"].script = answers(429, {"error": {"message": "slow down"}}, headers=[("retry-after", "40")])
    answer = await lab.call("/single/v1/chat/completions", CHAT, within=2)
    assert (answer.status, answer.reason, answer.header("retry-after")) == (429, None, "40")
    assert answer.json()["error"]["message"] == "slow down"
    assert len(lab["single"].seen) == 1


async def test_when_all_keys_rest_the_next_call_is_told_when_to_come_back(lab: Lab) -> None:
    lab["all-rest"].script = by_key(
        one=answers(429, headers=[("retry-after", "40")]), two=answers(429, headers=[("retry-after", "20")])
    )
    first = await lab.chat("all-rest")
    assert (first.status, first.reason) == (429, None)
    assert sorted(used(lab, "all-rest")) == ["one", "two"]
    answer = await lab.chat("all-rest")
    assert (answer.status, answer.reason, answer.attempts) == (429, "keys_resting", 0)
    assert 15 <= int(answer.header("retry-after") or 0) <= 20
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert answer.seconds < 1
    assert len(lab["all-rest"].seen) == 2


async def test_short_rest_is_waited_for(lab: Lab) -> None:
    lab["short-rest"].script = in_turn(answers(429, headers=[("retry-after-ms", "600")]), says("hi"))
    first = await ask(lab, "short-rest")
    second = await ask(lab, "short-rest")
    assert {first.status, second.status} <= {200, 429}
    assert second.status == 200
    gap = lab["short-rest"].seen[1].at - lab["short-rest"].seen[0].at
    assert 0.55 < gap < 3


async def test_resting_keys_send_the_call_to_the_next_tier(lab: Lab) -> None:
    lab["tiered"].script = answers(429, headers=[("retry-after", "30")])
    first, second = await lab.chat("tiered"), await lab.chat("tiered")
    assert [first.provider, second.provider] == ["after", "after"]
    assert (first.attempts, second.attempts) == (2, 1)
    assert len(lab["tiered"].seen) == 1


async def test_at_most_three_other_keys_are_chosen(lab: Lab) -> None:
    lab["many"].script = answers(429, headers=[("retry-after", "30")])
    answer = await lab.chat("many")
    assert answer.status == 429
    assert len(set(used(lab, "many"))) == len(used(lab, "many")) == 4


async def test_401_parks_the_key_and_takes_another(lab: Lab) -> None:
    lab["parks"].script = by_key(one=answers(401))
    for _ in range(5):
        answer = await ask(lab, "parks")
        assert answer.status == 200
    assert Counter(used(lab, "parks"))["one"] == 1
    assert "parked" in (await lab.row("keys", provider="parks", id="one"))["state"]


async def test_when_all_keys_are_parked_the_provider_is_not_asked(lab: Lab) -> None:
    lab["all-parked"].script = answers(401)
    for _ in range(2):
        answer = await ask(lab, "all-parked")
        assert (answer.status, answer.reason) == (502, "keys_unusable")
    assert sorted(used(lab, "all-parked")) == ["one", "two"]


async def test_parked_key_returns_when_its_secret_changes(lab: Lab) -> None:
    lab["filed"].script = by_key(old=answers(401))
    assert (await ask(lab, "filed")).reason == "keys_unusable"
    path = Path(lab.policy["providers"]["filed"]["keys"][0]["file"])
    path.with_suffix(".new").write_text("sk-new\n")
    path.with_suffix(".new").replace(path)
    async with asyncio.timeout(5):
        while (await ask(lab, "filed")).status != 200:
            await asyncio.sleep(0.1)
    assert used(lab, "filed") == ["old", "new"]


async def test_white_space_around_a_secret_is_trimmed(lab: Lab) -> None:
    assert (await ask(lab, "ragged")).status == 200
    assert used(lab, "ragged") == ["ragged"]


async def test_spent_quota_costs_one_call_a_key(lab: Lab) -> None:
    lab["spent"].script = answers(429, {"error": {"message": "spent", "code": "insufficient_quota"}})
    answer = await ask(lab, "spent")
    assert answer.status in (429, 502)
    assert sorted(used(lab, "spent")) == ["one", "two"]


async def test_plain_403_parks_nothing(lab: Lab) -> None:
    lab["forbidden"].script = in_turn(
        answers(403, {"error": {"message": "no such model for you", "code": "model_not_allowed"}}), says("hi")
    )
    assert (await ask(lab, "forbidden")).attempts == 1
    assert {(await ask(lab, "forbidden")).status for _ in range(4)} == {200}
    assert set(used(lab, "forbidden")) == {"one", "two"}


async def test_403_that_blames_the_key_parks_it(lab: Lab) -> None:
    lab["blamed"].script = by_key(
        one=answers(403, {"error": {"message": "bad key", "code": "invalid_api_key", "type": "permission_error"}})
    )
    assert {(await ask(lab, "blamed")).status for _ in range(4)} == {200}
    assert Counter(used(lab, "blamed"))["one"] == 1


async def test_each_key_has_its_own_limit(lab: Lab) -> None:
    lab["busy"].script = says("hi", after=0.2)
    results = await asyncio.gather(*(ask(lab, "busy") for _ in range(4)))
    assert {answer.status for answer in results} == {200}
    assert lab["busy"].peak == 2
    assert set(used(lab, "busy")[:2]) == {"one", "two"}


async def test_retry_takes_another_key_first(lab: Lab) -> None:
    lab["other"].forget()
    lab["other"].script = in_turn(answers(503), says("hi"))
    assert (await lab.chat("retried")).attempts == 2
    assert len(set(used(lab, "other"))) == 2
