"""Secrets stay where they belong: in no log line, metric, page, span, error or header, whatever happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT_STREAM, answers, babbles, event, in_turn, resets, says, streams
from tests.otel.sink import Sink, collector

pytestmark = pytest.mark.asyncio(loop_scope="module")

OURS = ("sk-ours-one", "sk-ours-two", "from-the-policy-secret")
CALLERS = (
    *("sk-caller-bearer", "sk-caller-header", "sk-caller-query", "sk-caller-cookie", "sk-caller-body"),
    *("sk-caller-account", "sk-caller-once"),
)
POLICY: dict[str, Any] = {
    "version": 1,
    "tenants": {
        "from": [{"header": "x-account"}, {"header": "authorization"}, {"credential": True}],
        "default": {"concurrency": 100},
    },
    "providers": {
        "keyed": {
            "keys": [{"id": "one", "env": "KEY_ONE"}, {"id": "two", "env": "KEY_TWO"}],
            "headers": {"x-policy": {"env": "POLICY_SECRET"}},
            "breaker": "off",
        },
        "open": {"breaker": {"consecutive": 1}},
        "next": {},
        "own-name": {"auth": {"header": "X-Account"}},
    },
    "routes": [
        route("alone", "keyed", match={"path": "/alone/*"}, retry={"attempts": 1}),
        route("tiers", "keyed", "next", match={"path": "/v1/*"}, retry={"attempts": 2, "base": "1ms"}),
    ],
}
HEADERS = [
    ("authorization", "Bearer sk-caller-bearer"),
    ("x-api-key", "sk-caller-header"),
    ("cookie", "session=sk-caller-cookie"),
    ("x-sponson-trail", "1"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
]
BODY = {"messages": [{"role": "user", "content": "sk-caller-body"}], "user": "sk-caller-body"}


class Scene:
    """A lab, its collector, and every answer that it gave."""

    def __init__(self, lab: Lab, sink: Sink) -> None:
        self.lab = lab
        self.sink = sink
        self.answers: list[Answer] = []

    async def call(self, path: str, model: str = "tiers", **body: Any) -> Answer:
        """Makes a call full of the caller's secrets."""
        answer = await self.lab.call(f"{path}?key=sk-caller-query", {**BODY, "model": model, **body}, headers=HEADERS)
        self.answers.append(answer)
        return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene() -> AsyncIterator[Scene]:
    env = {"KEY_ONE": OURS[0], "KEY_TWO": OURS[1], "POLICY_SECRET": OURS[2]}
    with collector() as sink:
        env |= {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp"}
        env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
        async with Lab(POLICY, env=env) as lab:
            scene = Scene(lab, sink)
            await everything_happens(scene)
            yield scene


async def everything_happens(scene: Scene) -> None:
    """Lets calls succeed, fail, be refused, be rejected, break and be malformed."""
    lab, chat = scene.lab, "/v1/chat/completions"
    echo = {"error": {"message": "Incorrect API key provided: " + OURS[0], "code": "invalid_api_key"}}
    lab["next"].script = says("hi")
    for script in (says("hi"), answers(503), resets, babbles, answers(429), answers(401, echo)):
        lab["keyed"].script = script
        await scene.call(chat)
        await scene.call(f"/alone{chat}")
    lab["keyed"].script = streams(event("a"), b"data: {broken\n\n")
    await scene.call(chat, stream=True)
    lab["open"].script = in_turn(answers(500), says("hi"))
    for _ in range(2):
        await scene.call(f"/open{chat}")
    await scene.call("/nowhere")
    await repeated(scene)
    await malformed(scene)


async def repeated(scene: Scene) -> None:
    """Sends a request with a key, the same one again, and another one with that key."""
    key = [("idempotency-key", "sk-caller-once"), ("x-account", "sk-caller-account")]
    for body in (BODY, BODY, {**BODY, "n": 2}):
        answer = await scene.lab.call("/next/v1/chat/completions", body, headers=[*HEADERS, *key])
        scene.answers.append(answer)
    assert [answer.status for answer in scene.answers[-3:]] == [200, 200, 409]


async def malformed(scene: Scene) -> None:
    """Sends what is no request, secrets in it."""
    good = request_bytes("POST", "/next/v1/chat/completions?key=sk-caller-query", headers=HEADERS, body=CHAT_STREAM)
    for data in (
        good.replace(b"authorization:", b"authorization"),
        good.replace(b" HTTP/1.1", b" sk-caller-query HTTP/1.1"),
        good.replace(b"content-length: ", b"content-length: sk-caller-header"),
        b"sk-caller-bearer\r\n\r\n",
        good[:-20] + b"\r\n\r\n" + good,
    ):
        async with scene.lab.wire() as wire:
            await wire.send(data)
            scene.answers.append(await wire.answer(within=2))


def without(place: str, text: str, secrets: tuple[str, ...]) -> None:
    """Checks that a text holds none of these."""
    found = [secret for secret in secrets if secret in text]
    assert not found, f"{place} holds {found}"


async def test_log_holds_no_secret(scene: Scene) -> None:
    assert len(scene.lab.proxy.request_lines()) > 10
    without("the log", scene.lab.proxy.log(), (*OURS, *CALLERS))


@pytest.mark.parametrize("path", ["/metrics", "/status", "/policy"])
async def test_admin_pages_hold_no_secret(scene: Scene, path: str) -> None:
    answer = await scene.lab.proxy.get(path)
    assert answer.status == 200
    without(path, answer.body.decode(), (*OURS, *CALLERS))


async def test_answers_hold_no_secret(scene: Scene) -> None:
    assert {answer.status for answer in scene.answers} >= {200, 400, 404, 502, 503}
    for answer in scene.answers:
        without(f"an answer with {answer.status}", (answer.head + answer.body).decode("latin-1"), (*OURS, *CALLERS))


async def test_spans_and_metrics_hold_no_secret(scene: Scene) -> None:
    await scene.lab.proxy.until(lambda status: len(scene.sink.spans()) > 10)
    exported = b"".join(body for bodies in scene.sink.bodies.values() for body in bodies)
    without("an export", exported.decode("latin-1"), (*OURS, *CALLERS))


async def test_provider_without_our_key_never_sees_it(scene: Scene) -> None:
    for name in ("next", "open"):
        for request in scene.lab[name].seen:
            without(name, request.head.decode("latin-1"), OURS)


async def test_policy_page_names_keys_by_id_alone(scene: Scene) -> None:
    keys = (await scene.lab.proxy.status())["keys"]
    assert {row["id"] for row in keys} == {"one", "two"}


async def test_status_tells_tenants_apart_by_fingerprints(scene: Scene) -> None:
    tenants = {row["tenant"] for row in (await scene.lab.proxy.status())["tenants"]}
    assert len(tenants) == 2
    assert all(name.startswith("key-") for name in tenants)
