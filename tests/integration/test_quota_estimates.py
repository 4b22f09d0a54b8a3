"""How much is reserved for a call: what it asks for, what tiers change of it, what was learned; and what never fits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, says, when
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

ONCE = {"attempts": 1}
WHOLE: dict[str, Any] = {"breaker": "off", "limits": {"tpm": 1000, "headroom": 1.0}}
"""A thousand tokens a minute: 83 at once."""
LARGE: dict[str, Any] = {"breaker": "off", "limits": {"tpm": 60_000_000, "headroom": 1.0}}
"""Of which a second gives more than any test takes."""
QUICK: dict[str, Any] = {"breaker": "off", "limits": {"tpm": 60_000, "headroom": 1.0, "burst": "1s"}}
"""A thousand tokens at once, and as many a second."""
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "whole": WHOLE,
        "model": {"breaker": "off", "limits": {"headroom": 1.0}, "models": {"model": {"limits": {"tpm": 1000}}}},
        "keys": {
            "breaker": "off",
            "limits": {"headroom": 1.0},
            "keys": [{"id": name, "env": f"KEY_{name.upper()}", "tpm": 1000} for name in "ab"],
        },
        "halved": {"breaker": "off", "limits": {"tpm": 1000}},
        "none": {"breaker": "off", "limits": {"tpm": 0}},
        "debt": QUICK,
        "empty": QUICK,
        "spent": {**QUICK, "timeouts": {"quota_wait": "1ms"}},
        "large": LARGE,
        "short": {**LARGE, "limits": {**LARGE["limits"], "count": {"reserve_output": False}}},
        "learns": LARGE,
        "uploads": LARGE,
        "broke": {**QUICK, "limits": {**QUICK["limits"], "burst": "10s"}},
        "after": {},
    },
    "routes": [
        route("whole", "whole", retry=ONCE),
        route("model", "model", retry=ONCE),
        route("keys", "keys", retry=ONCE),
        route("halved", "halved", retry=ONCE),
        route("none", "none", retry=ONCE),
        route("tiers", "whole", "after", retry=ONCE),
        route("empty", "empty", "after", retry=ONCE),
        route("debt", "debt", retry=ONCE),
        route("large", "large", retry=ONCE),
        route("set", {"provider": "large", "set": {"max_tokens": 7}}, retry=ONCE),
        route("short", "short", retry=ONCE),
        route("learns", "learns", retry=ONCE),
        route("uploads", "uploads", match={"path": "/v1/audio/*"}, retry=ONCE),
        route("broke", "broke", retry=ONCE),
    ],
}
ENV = {"KEY_A": "sk-a", "KEY_B": "sk-b"}


def body(model: str, size: int, **fields: Any) -> bytes:
    """Returns a chat of so many bytes."""
    document = {"model": model, **fields, "messages": [{"role": "user", "content": ""}]}
    document["messages"][0]["content"] = "x" * (size - len(json.dumps(document)))
    return json.dumps(document).encode()


async def ask(lab: Lab, model: str, size: int, **fields: Any) -> Answer:
    """Sends a chat of so many bytes."""
    return await lab.call(body=body(model, size, **fields), headers=[("content-type", "application/json")])


def told(prompt: int, written: int) -> Script:
    """A provider that tells of each call that it took so much."""
    usage = {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
    return answers(200, {"id": "c", "object": "chat.completion", "choices": [], "usage": usage})


async def reserved(lab: Lab, provider: str, model: str, size: int, **fields: Any) -> float:
    """Returns how many tokens are reserved for a call while it runs."""
    gate = asyncio.Event()
    lab[provider].script = when(gate, says("hi"))
    call = asyncio.ensure_future(ask(lab, model, size, **fields))
    await lab[provider].has_seen(1)
    holders = (await lab.proxy.status())["holders"]
    gate.set()
    assert (await call).status == 200
    await lab.idle()
    (holder,) = holders
    assert holder["target"].startswith(f"{provider}/")
    tokens: float = holder["tokens"]
    return tokens


@pytest.mark.parametrize(
    ("name", "limit"), [("whole", "tpm of whole"), ("model", "tpm of model/model"), ("keys", "key")]
)
async def test_what_is_above_a_whole_minute_of_the_fleet_is_refused_at_once(lab: Lab, name: str, limit: str) -> None:
    answer = await ask(lab, name, 6000, max_tokens=5)
    assert (answer.status, answer.reason, answer.header("retry-after")) == (413, "context_too_long", None)
    text = answer.json()["error"]["message"]
    assert "2005 tokens" in text
    assert limit in text
    assert not lab[name].seen
    answer = await ask(lab, name, 300, max_tokens=2_000)
    assert (answer.status, answer.reason) == (413, "context_too_long"), "what it allows counts, too"


async def test_headroom_is_part_of_a_minute(lab: Lab) -> None:
    assert (await ask(lab, "halved", 300, max_tokens=720)).status == 413
    assert (await ask(lab, "halved", 300, max_tokens=690)).status == 200


async def test_where_nothing_is_allowed_that_is_said(lab: Lab) -> None:
    answer = await ask(lab, "none", 300, max_tokens=5)
    assert (answer.status, answer.reason, answer.header("retry-after")) == (429, "quota_exhausted", None)
    assert "no requests or no tokens" in answer.json()["error"]["message"]


async def test_another_tier_may_take_what_is_too_large_for_the_first(lab: Lab) -> None:
    answer = await ask(lab, "tiers", 6000, max_tokens=5)
    assert (answer.status, answer.provider, answer.tier, answer.attempts) == (200, "after", 2, 1)


async def test_another_tier_takes_what_the_first_has_no_quota_for(lab: Lab) -> None:
    lab["empty"].script = told(3000, 0)
    assert (await ask(lab, "empty", 300, max_tokens=5)).provider == "empty"
    answer = await ask(lab, "empty", 300, max_tokens=5)
    assert (answer.provider, answer.seconds < 2) == ("after", True)


async def test_larger_than_the_bucket_it_goes_when_that_is_full_and_leaves_it_in_debt(lab: Lab) -> None:
    lab["debt"].script = told(2000, 0)
    first = await ask(lab, "debt", 5985, max_tokens=5)
    assert first.status == 200
    assert -2000 <= left(await lab.proxy.status(), "debt") < -500
    second = await ask(lab, "debt", 5985, max_tokens=5)
    assert second.status == 200
    one, two = lab["debt"].seen
    assert two.at - one.at > 1.8, "a debt of a thousand, then a thousand for a full one"


def left(status: Any, provider: str) -> float:
    """Returns how many tokens a provider's bucket has left."""
    (found,) = [
        row["left"] for row in status["quotas"] if row["limit"] == f"provider {provider}" and row["unit"] == "tokens"
    ]
    return float(found)


async def test_a_refusal_tells_when_a_call_goes(lab: Lab) -> None:
    lab["spent"].script = told(4000, 0)
    await lab.call("/spent/v1/chat/completions", body("m", 300, max_tokens=5))
    answer = await lab.call("/spent/v1/chat/completions", body("m", 3000, max_tokens=5))
    assert (answer.status, answer.reason) == (429, "quota_exhausted")
    after = int(answer.header("retry-after") or 0)
    assert 3 <= after <= 5, "what is owed, and a full bucket"
    await asyncio.sleep(after)
    lab["spent"].script = says("hi")
    assert (await lab.call("/spent/v1/chat/completions", body("m", 3000, max_tokens=5))).status == 200


async def test_its_prompt_and_all_that_it_allows_is_reserved(lab: Lab) -> None:
    assert await reserved(lab, "large", "large", 900, max_tokens=100) == 400


async def test_a_tier_that_sets_what_is_allowed_reserves_by_that(lab: Lab) -> None:
    assert await reserved(lab, "large", "set", 900, max_tokens=100_000) == 307
    assert lab["large"].only.json()["max_tokens"] == 7


async def test_every_answer_that_is_asked_for_is_reserved(lab: Lab) -> None:
    assert await reserved(lab, "large", "large", 900, max_completion_tokens=100, n=3) == 600


async def test_where_output_is_not_counted_in_advance_only_the_prompt_is_reserved(lab: Lab) -> None:
    assert await reserved(lab, "short", "short", 900, max_tokens=100_000) == 300


async def test_what_models_take_is_learned_and_shown(lab: Lab) -> None:
    assert await reserved(lab, "learns", "learns", 900) == 300 + 512
    lab["learns"].forget()
    lab["learns"].script = told(450, 30)
    for _ in range(20):
        assert (await ask(lab, "learns", 900)).status == 200
    row = await lab.row("estimates", provider="learns", model="learns")
    assert row["reports"] >= 20
    assert row["bytes_per_token"] == pytest.approx(2, rel=0.2)
    assert row["output_tokens"] == 30
    lab["learns"].forget()
    assert await reserved(lab, "learns", "learns", 900) == pytest.approx(480, abs=10)


FORM = b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.wav"\r\n\r\n%b\r\n--b--\r\n' % bytes(300_000)
KIND = [("content-type", "multipart/form-data; boundary=b"), ("content-length", str(len(FORM)))]


async def uploads(lab: Lab, provider: str) -> Answer:
    """Sends a form of which the first half has long come before the rest does."""
    path = f"/{provider}/v1/audio/transcriptions"
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", path, headers=KIND) + FORM[:150_000])
        answer = asyncio.ensure_future(wire.answer())
        await asyncio.wait({answer, asyncio.ensure_future(lab[provider].has_seen(1))}, return_when="FIRST_COMPLETED")
        if not answer.done():
            await wire.send(FORM[150_000:])
        return await answer


async def test_an_upload_is_passed_on_as_it_comes_and_takes_its_place_in_the_quota(lab: Lab) -> None:
    lab["uploads"].reads_bodies = False

    async def transcribes(exchange: Exchange) -> None:
        status = await lab.proxy.status()
        (holder,) = status["holders"]
        assert (holder["target"], holder["tokens"]) == ("uploads/other", 0)
        await exchange.read_body()
        await exchange.reply(200, {"text": "well"})

    lab["uploads"].script = transcribes
    answer = await uploads(lab, "uploads")
    assert (answer.status, answer.json(), lab["uploads"].only.body) == (200, {"text": "well"}, FORM)


async def test_an_upload_waits_not_long_for_a_bucket_in_debt(lab: Lab) -> None:
    lab["broke"].script = told(20_000, 0)
    assert (await ask(lab, "broke", 300, max_tokens=5)).status == 200
    assert left(await lab.proxy.status(), "broke") < -5000
    lab["broke"].forget()
    answer = await uploads(lab, "broke")
    assert (answer.status, answer.reason) == (429, "quota_exhausted")
    assert 5 <= int(answer.header("retry-after") or 0) <= 20
    assert not lab["broke"].seen
