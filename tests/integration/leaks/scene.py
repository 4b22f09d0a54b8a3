"""A proxy with a collector and providers; everything that it puts out while everything happens."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from otel import attributes as names
from proxy.outcome import Reason
from tests.integration.caller import HOST, Answer, Headers
from tests.integration.harness import Lab, route
from tests.integration.leaks.calls import CALLS, CHAT, STATUSES
from tests.integration.leaks.malformed import REQUESTS, halves
from tests.integration.leaks.marks import ENVIRONMENT, HEADERS, PROMPT, QUERY, mark
from tests.integration.leaks.policies import UNREADABLE, mistaken
from tests.integration.messages import hangs
from tests.integration.reasons import DIALECTS, ROWS, Caller, case
from tests.integration.reasons import policy as table_of_reasons
from tests.integration.scripted import ScriptedProvider
from tests.integration.unreachable import full_listener
from tests.otel.sink import Sink, attributes, collector

PAGES = ("/", "/metrics", "/status", "/policy", "/livez", "/readyz", "/startupz", f"/nowhere?token={mark('admin')}")
ANSWER = {"answer": {"status": 200, "json": {"note": "later"}}}
PROVOKED = [reason for reason in ROWS if reason is not Reason.SHUTTING_DOWN]


@dataclass(slots=True, kw_only=True)
class Scene:
    """What went out of the proxy, by whom it was for; `heads` are those that providers got, by provider."""

    lab: Lab
    sink: Sink
    answers: list[tuple[str, bytes]] = field(default_factory=list)
    pages: list[tuple[str, bytes]] = field(default_factory=list)
    heads: dict[str, list[bytes]] = field(default_factory=dict)
    log: str = ""

    async def call(
        self, model: str, *, path: str = CHAT, headers: Headers = (), echoed: bool = False, **body: Any
    ) -> None:
        """Makes a call that is full of secrets; its model chooses its route."""
        fields = [*HEADERS, *headers]
        answer = await self.lab.call(f"{path}{QUERY}", {"model": model, **PROMPT, **body}, headers=fields)
        self.keep(model, answer, echoed=echoed)

    async def send(self, name: str, *pieces: bytes, echoed: bool = False) -> None:
        """Sends bytes, each piece in a read of its own, and then no more."""
        async with self.lab.wire() as wire:
            with suppress(OSError):  # refused before its end
                for piece in pieces:
                    await wire.send(piece)
                    await asyncio.sleep(0.002)
                wire.writer.write_eof()
            self.keep(name, await wire.answer(within=5), echoed=echoed)

    def keep(self, name: str, answer: Answer, *, echoed: bool = False) -> None:
        """Keeps an answer; of one in which the provider itself repeated secrets, what the proxy has added."""
        if echoed and answer.reason is None:
            lines = [b"%b: %b" % pair for pair in answer.headers if pair[0].lower().startswith(b"x-sponson-")]
            self.answers.append((name, b"\n".join(lines)))
        else:
            self.answers.append((name, answer.head + answer.body))

    async def look(self) -> None:
        """Keeps the admin port's pages as they are now."""
        for path in PAGES:
            answer = await self.lab.proxy.get(path)
            self.pages.append((path, answer.head + answer.body))

    def told(self, attribute: str) -> set[str]:
        """Returns the values of an attribute in all spans and their events."""
        spans = self.sink.spans()
        found = [span.attributes for span in spans] + [event.attributes for span in spans for event in span.events]
        return {str(value) for pairs in found if (value := attributes(pairs).get(attribute)) is not None}

    def outcomes(self) -> set[str]:
        """Returns every outcome that a call or an attempt had."""
        return self.told(names.OUTCOME)

    def reasons(self) -> set[str]:
        """Returns every reason that was told, in spans or inside an answer that had begun."""
        inside = {reason for reason in Reason for _, data in self.answers if f'"code":"{reason}"'.encode() in data}
        return self.told(names.REASON) | inside


def policy(folder: Path, *, hole: int, untrusted: int) -> dict[str, Any]:
    """Returns the policy of the table of reasons and more, with secrets wherever it names or holds any."""
    whole = table_of_reasons(*PROVOKED)
    keys = [{"id": "one", "env": "KEY"}]
    more: dict[str, dict[str, Any]] = {
        "keyed": {"keys": [*keys, {"id": "two", "env": "KEY_TWO"}, {"id": "three", "file": str(folder / "key")}]},
        **{f"echo-{status}": {"keys": keys} for status in STATUSES},
        "untrusted": {"keys": keys, "base_url": f"https://{HOST}:{untrusted}/v1"},
        "no-tls": {"keys": keys, "base_url": f"https://{HOST}:{{port}}/v1", "timeouts": {"connect": "200ms"}},
        "short": {"keys": keys, "timeouts": {"stream": "200ms"}},
        "own-name": {"auth": {"header": "X-Account"}},
    }
    providers = whole["providers"] | {name: {"breaker": "off", **provider} for name, provider in more.items()}
    secret_headers = {"x-policy": {"env": "POLICY_SECRET"}, "x-filed": {"file": str(folder / "header")}}
    for provider in providers.values():
        provider |= {"headers": secret_headers, "query": {"code": mark("policy-query")}}
    providers[case(Reason.CONNECT_TIMEOUT)]["base_url"] = f"http://{HOST}:{hole}/v1"
    whole["providers"] = providers | {"next": {}, "second": {}}
    whole["tenants"]["from"] += [{"header": "x-account"}, {"header": "authorization"}, {"credential": True}]
    orders: dict[str, tuple[Any, ...]] = {name: (name,) for name in (*more, "next")}
    orders |= {"tiers": ("echo-503", "second"), "answered": ("echo-503", ANSWER)}
    for name, order in orders.items():
        whole["routes"].append(route(f"to-{name}", *order, match={"model": name}, retry={"attempts": 1}))
    return whole


@asynccontextmanager
async def played(folder: Path, *, log_format: str, debug: bool = False) -> AsyncIterator[Scene]:
    """Plays everything, to the proxy's end, and gives what it put out. `debug`: the event loop tells what it does."""
    (folder / "key").write_text(mark("key-file"))
    (folder / "header").write_text(mark("header-file"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(HOST).configure_cert(tls)
    with collector() as sink, full_listener() as hole:
        async with ScriptedProvider(tls=tls) as untrusted:
            env = ENVIRONMENT | {"SPONSON_LOG_FORMAT": log_format, "OTEL_BSP_SCHEDULE_DELAY": "50"}
            env |= {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "otlp"}
            env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": sink.url} | ({"PYTHONDEVMODE": "1"} if debug else {})
            written = policy(folder, hole=hole, untrusted=untrusted.port)
            async with Lab(written, env=env, flags=["--drain", "2200ms"]) as lab:
                scene = Scene(lab=lab, sink=sink)
                await _everything(scene, folder)
                scene.log = lab.proxy.log()
                scene.heads = {name: [seen.head for seen in one.seen] for name, one in lab.providers.items()}
        yield scene


async def _everything(scene: Scene, folder: Path) -> None:
    for reason in PROVOKED:
        caller = Caller(scene.lab, case(reason), DIALECTS["openai"], headers=HEADERS, query=QUERY)
        scene.keep(reason, await ROWS[reason].provoke(caller))
    for calls in CALLS:
        await calls(scene)
    for name, data in REQUESTS.items():
        await scene.send(name, *halves(data))
    await scene.look()
    await _rejected(scene, folder)
    await scene.look()
    await _ends(scene)


async def _rejected(scene: Scene, folder: Path) -> None:
    """Spoils the policy, and the file of a key."""
    for count, text in enumerate((mistaken(), UNREADABLE["flow"]), 1):
        scene.lab.proxy.rewrite(text)
        await _logged(scene, "policy rejected", count)
        await scene.look()
    (folder / "key").write_bytes(f"{mark('spoiled')}\n{mark('spoiled')}".encode())
    scene.lab.proxy.rewrite(scene.lab.policy)
    await _logged(scene, "its last value stays in use", 1)


async def _logged(scene: Scene, words: str, count: int) -> None:
    async with asyncio.timeout(20):
        while scene.lab.proxy.log().count(words) < count:
            await asyncio.sleep(0.02)


async def _ends(scene: Scene) -> None:
    """Ends the proxy under a call that takes longer."""
    keyed = scene.lab["keyed"]
    keyed.script = hangs
    seen = len(keyed.seen)
    asking = asyncio.ensure_future(scene.call("keyed"))
    await keyed.has_seen(seen + 1, within=20)
    scene.lab.proxy.signal(signal.SIGTERM)
    await asking
    assert await scene.lab.proxy.exited(within=20) == 0
