"""Whose credential reaches which provider: rule 4 of the policy."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, MESSAGES, answers, says

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = [{"id": "k", "env": "PROVIDER_KEY"}]
POLICY = {
    "version": 1,
    "providers": {
        "bearer": {"keys": KEY},
        "claude": {"dialect": "anthropic", "keys": KEY},
        "azure": {"auth": {"header": "api-key"}, "keys": KEY},
        "keyless": {},
        "failing": {"breaker": "off"},
        "failing-keyed": {"breaker": "off", "keys": KEY},
        "next-keyless": {},
        "next-keyed": {"keys": [{"id": "n", "env": "NEXT_KEY"}]},
    },
    "routes": [
        route("own", "keyless", retry={"attempts": 1}),
        route("to-keyless", "failing", "next-keyless", retry={"attempts": 1}),
        route("to-keyed", "failing", "next-keyed", retry={"attempts": 1}),
        route("from-keyed", "failing-keyed", "next-keyless", retry={"attempts": 1}),
    ],
}
SECRET = "sk-of-the-caller"
ACCOUNT = [
    ("Authorization", f"Bearer {SECRET}"),
    ("x-api-key", SECRET),
    ("api-key", SECRET),
    ("x-goog-api-key", SECRET),
    ("Cookie", f"session={SECRET}"),
    ("OpenAI-Organization", f"org-{SECRET}"),
    ("OpenAI-Project", f"project-{SECRET}"),
    ("apikey", SECRET),
    ("X-Auth-Token", SECRET),
    ("X-Access-Token", SECRET),
    ("X-Amz-Security-Token", SECRET),
    ("Ocp-Apim-Subscription-Key", SECRET),
    ("cf-aig-authorization", f"Bearer {SECRET}"),
    ("Proxy-Authorization", f"Basic {SECRET}"),
]
ENV = {"PROVIDER_KEY": "sk-ours", "NEXT_KEY": "sk-next"}


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def failing(clean: None, lab: Lab) -> None:
    for name, provider in lab.providers.items():
        if name.startswith("failing"):
            provider.script = answers(503)


@pytest.mark.parametrize(
    ("provider", "path", "line"),
    [
        ("bearer", "/bearer/v1/chat/completions", (b"authorization", b"Bearer sk-ours")),
        ("claude", "/claude/v1/messages", (b"x-api-key", b"sk-ours")),
        ("azure", "/azure/v1/chat/completions", (b"api-key", b"sk-ours")),
    ],
)
async def test_providers_own_key_takes_the_place_of_all_the_callers(
    lab: Lab, provider: str, path: str, line: tuple[bytes, bytes]
) -> None:
    assert (await lab.call(path, MESSAGES, headers=ACCOUNT)).status == 200
    seen = lab[provider].only
    assert SECRET.encode() not in seen.head
    assert [(name.lower(), value) for name, value in seen.headers if b"sk-" in value] == [line]


async def test_provider_without_keys_gets_the_callers_own(lab: Lab) -> None:
    assert (await lab.call("/keyless/v1/chat/completions", CHAT, headers=ACCOUNT)).status == 200
    seen = lab["keyless"].only
    for name, value in ACCOUNT[:-1]:
        assert seen.all(name.lower()) == [value.encode()]


async def test_first_tier_without_keys_gets_the_callers_own(lab: Lab) -> None:
    assert (await lab.chat("to-keyless", headers=ACCOUNT)).provider == "next-keyless"
    assert lab["failing"].only.header("authorization") == f"Bearer {SECRET}"


@pytest.mark.parametrize("model", ["to-keyless", "to-keyed", "from-keyed"])
async def test_nothing_of_the_first_tier_reaches_the_second(lab: Lab, model: str) -> None:
    headers = [*ACCOUNT, ("openai-beta", "assistants=v2"), ("anthropic-beta", "tools"), ("x-mine", "1")]
    answer = await lab.chat(model, headers=headers)
    seen = lab[answer.provider or ""].only
    assert answer.tier == 2
    assert SECRET.encode() not in seen.head
    assert b"sk-ours" not in seen.head
    assert not {"cookie", "openai-organization", "openai-project", "openai-beta", "anthropic-beta"} & set(seen.names)
    assert seen.header("x-mine") == "1"
    assert seen.header("authorization") == ("Bearer sk-next" if model == "to-keyed" else None)


async def test_caller_without_a_credential_gains_none(lab: Lab) -> None:
    assert (await lab.call("/keyless/v1/chat/completions", CHAT)).status == 200
    assert "authorization" not in lab["keyless"].only.names


@pytest.mark.parametrize(("status", "attempts"), [(401, 1), (402, 1), (403, 1)])
async def test_rejection_of_the_callers_own_credential_is_the_callers(lab: Lab, status: int, attempts: int) -> None:
    lab["keyless"].script = answers(status, {"error": {"message": "not yours"}})
    answer = await lab.call("/keyless/v1/chat/completions", CHAT, headers=ACCOUNT)
    assert (answer.status, answer.reason, answer.attempts) == (status, None, attempts)
    assert answer.json()["error"]["message"] == "not yours"


@pytest.mark.parametrize("status", [401, 429])
async def test_rejection_of_one_callers_credential_hinders_no_other(lab: Lab, status: int) -> None:
    lab["keyless"].script = answers(status, headers=[("retry-after", "60")])
    assert (await lab.chat("own", headers=ACCOUNT)).status == status
    lab["keyless"].script = says("hi")
    assert (await lab.chat("own", headers=[("authorization", "Bearer another")])).status == 200


async def test_rejection_of_our_key_is_not_the_callers_fault(lab: Lab) -> None:
    lab["bearer"].script = answers(401, {"error": {"message": "Incorrect API key provided: sk-ours"}})
    answer = await lab.call("/bearer/v1/chat/completions", CHAT, headers=ACCOUNT)
    assert (answer.status, answer.reason) == (502, "keys_unusable")
    assert b"sk-ours" not in answer.head + answer.body


@pytest.mark.parametrize(
    ("model", "first", "then"),
    [
        ("to-keyless", b"?alt=sse&key=sk-of-the-caller", "next-keyless"),
        ("to-keyed", b"?alt=sse&key=sk-of-the-caller", "next-keyed"),
        ("from-keyed", b"?alt=sse", "next-keyless"),
    ],
)
async def test_credential_in_the_query_reaches_only_whom_the_caller_meant(
    lab: Lab, model: str, first: bytes, then: str
) -> None:
    answer = await lab.call(f"/v1/chat/completions?alt=sse&key={SECRET}", {**CHAT, "model": model})
    assert (answer.status, answer.provider) == (200, then)
    failing = "failing-keyed" if model == "from-keyed" else "failing"
    assert lab[failing].only.target == b"/v1/chat/completions" + first
    assert lab[then].only.target == b"/v1/chat/completions?alt=sse"
