"""The admin port: probes, what the policy is, what goes on, metrics; and one log line a request."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.caller import call, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, CHAT_STREAM, DONE, EMBED, answers, event, hangs, said, says, streams

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "fleet": {"size": {"static": 10}},
    "providers": {
        "alpha": {
            "keys": [{"id": "a1", "env": "KEY", "concurrency": 20}],
            "limits": {"concurrency": 20},
            "models": {"known": {"limits": {"concurrency": 10}}},
        },
        "beta": {},
        "open": {"breaker": {"consecutive": 1}},
    },
    "routes": [
        route("tiers", "alpha", "beta", retry={"attempts": 2, "base": "1ms"}),
        route("embed", "beta", match={"path": "/v1/embeddings"}),
    ],
}
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}\n\n'
ENV = {"KEY": "sk-a1"}


async def metrics(lab: Lab) -> dict[tuple[str, ...], float]:
    """Returns the samples by name and label values, those without a value left out."""
    answer = await lab.proxy.get("/metrics")
    assert answer.status == 200
    assert (answer.header("content-type") or "").startswith("text/plain")
    families = text_string_to_metric_families(answer.body.decode())
    return {
        (sample.name, *sorted(value for value in sample.labels.values() if value)): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/startupz"])
async def test_probes_are_good(lab: Lab, path: str) -> None:
    assert (await lab.proxy.get(path)).status == 200


async def test_admin_port_has_an_index_and_nothing_else(lab: Lab) -> None:
    index = (await lab.proxy.get("/")).body.decode()
    for path in ("/livez", "/readyz", "/startupz", "/metrics", "/policy", "/status"):
        assert path in index
    assert (await lab.proxy.get("/nothing")).status == 404
    assert (await call(lab.proxy.admin, "/status", CHAT)).status == 405
    assert (await call(lab.proxy.admin, "/v1/chat/completions", CHAT)).status == 404


async def test_admin_paths_are_not_on_the_data_port(lab: Lab) -> None:
    for path in ("/livez", "/metrics", "/status", "/policy"):
        assert (await lab.call(path, method="GET")).reason == "no_route"


async def test_policy_page_tells_what_is_in_force(lab: Lab) -> None:
    page = (await lab.proxy.get("/policy")).json()
    assert (page["revision"], page["problems"]) == (1, [])
    assert re.fullmatch("[0-9a-f]{64}", page["hash"])
    assert page["hash"] == page["hash_seen"]
    assert page["age_seconds"] >= 0


async def test_status_shows_permits_and_queues(lab: Lab) -> None:
    lab["alpha"].script = hangs
    calls = [asyncio.ensure_future(lab.call("/alpha/v1/chat/completions", CHAT)) for _ in range(3)]
    await lab["alpha"].has_seen(2)
    status = await lab.proxy.until(lambda status: status["queues"][0]["waiting"] == 1)
    permits = {row["limit"]: (row["in_use"], row["size"]) for row in status["permits"]}
    assert permits["provider alpha"] == (2, 2)
    assert (status["phase"], status["in_flight"]) == ("ready", 3)
    keys = [row for row in status["keys"] if row["provider"] == "alpha"]
    assert [(row["id"], row["in_use"]) for row in keys] == [("a1", 2)]
    found = await metrics(lab)
    assert found["sponson_permits_used", "alpha", "provider"] == 2
    assert found["sponson_queue_waiting", "P1", "alpha", "other"] == 1
    assert found["sponson_attempts_active", "alpha"] == 2
    for pending in calls:
        pending.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    await lab.idle()


async def test_metrics_count_requests_attempts_retries_fallbacks_and_refusals(lab: Lab) -> None:
    before = await metrics(lab)
    lab["alpha"].script = answers(503)
    assert (await lab.chat("tiers")).attempts == 3
    assert (await lab.call("/nowhere", CHAT)).status == 404
    after = await metrics(lab)

    def grown(*labels: str) -> float:
        return sum(after[key] - before.get(key, 0) for key in after if set(labels) <= set(key))

    assert grown("sponson_requests_total", "tiers", "ok") == 1
    assert grown("sponson_attempts_total", "alpha", "a1", "upstream_error") == 2
    assert grown("sponson_attempts_total", "beta", "ok") == 1
    assert grown("sponson_retries_total", "alpha") == 1
    assert grown("sponson_fallbacks_total", "tiers") == 1
    assert grown("sponson_refusals_total", "no_route") == 1
    assert grown("sponson_tokens_total", "beta", "input") == 5
    assert grown("http_server_request_duration_seconds_count", "tiers", "200") == 1


async def test_breaker_changes_are_counted_logged_and_shown(lab: Lab) -> None:
    lab["open"].script = answers(500, headers=[("x-should-retry", "false")])
    assert (await lab.call("/open/v1/chat/completions", CHAT)).status == 500
    found = await metrics(lab)
    assert (
        sum(value for key, value in found.items() if key[0] == "sponson_breaker_changes_total" and "open" in key) >= 1
    )
    assert (await lab.row("breakers", provider="open", state="open"))["consecutive"] >= 0
    assert '"breaker open"' in lab.proxy.log()


ODD_METHODS = ["POST", "PUT", "PURGE", "PROPFIND", "SEARCH", "JABBER"]
ODD_PATHS = ["/v1/chat/completions", "/beta/v1/embeddings", "/{}/v1/messages", "/beta/v1/{}", "/v1/files/{}?q={}"]


async def ask_oddly(lab: Lab, name: str) -> Counter[int]:
    """Calls in every odd way, with a name of its own in all that a caller may choose; returns what was answered."""
    own = [(header, name) for header in ("x-agent-id", "user-agent", "x-sponson-class")]
    body = {**CHAT, "model": name, "user": name, "metadata": {"user_id": name}}
    statuses: Counter[int] = Counter()
    for method in ODD_METHODS:
        for path in ODD_PATHS:
            async with lab.wire() as wire:
                request = request_bytes(method, path.format(name, name), headers=own, body=body)
                await wire.send(request.replace(b"proxy.test", f"{name}.test".encode()))
                statuses[(await wire.answer(method=method)).status] += 1
    return statuses


async def test_callers_cannot_make_series_without_end(lab: Lab) -> None:
    for number in range(4):
        assert await ask_oddly(lab, f"invented{number}") == {200: 10, 400: 5, 404: 15}
    before = await metrics(lab)
    for number in range(20):
        await ask_oddly(lab, f"invented{number + 4}")
    now = await metrics(lab)
    assert not [series for series in now if "invented" in str(series) or "PURGE" in str(series)]
    assert set(now) == set(before)


@pytest.mark.parametrize(
    ("path", "body", "script", "tokens"),
    [
        ("/v1/chat/completions", {**CHAT, "model": "tiers"}, says("hi"), (5, 3)),
        ("/v1/chat/completions", {**CHAT_STREAM, "model": "tiers"}, streams(event("a"), USAGE, DONE), (11, 7)),
        ("/v1/embeddings", EMBED, answers(200, {"data": [], "usage": {"prompt_tokens": 9, "total_tokens": 9}}), (9, 0)),
        ("/v1/chat/completions", {**CHAT_STREAM, "model": "tiers"}, streams(event("a"), DONE), (0, 0)),
    ],
    ids=["chat", "stream", "embeddings", "without usage"],
)
async def test_usage_is_read_and_logged(lab: Lab, path: str, body: Any, script: Any, tokens: tuple[int, int]) -> None:
    lab["alpha"].script = lab["beta"].script = script
    answer = await lab.call(path, body)
    assert answer.complete
    line = await lab.proxy.line_of(answer)
    assert (line.get("input_tokens") or 0, line.get("output_tokens") or 0) == tokens


async def test_log_line_tells_what_happened(lab: Lab) -> None:
    lab["alpha"].script = answers(503, said("no"))
    answer = await lab.chat("tiers")
    line = await lab.proxy.line_of(answer)
    assert {
        name: line.get(name) for name in ("route", "method", "status", "outcome", "provider", "tier", "attempts")
    } == {
        "route": "tiers",
        "method": "POST",
        "status": 200,
        "outcome": "ok",
        "provider": "beta",
        "tier": 2,
        "attempts": answer.attempts,
    }
    line = await lab.proxy.line_of(await lab.call("/nowhere", CHAT))
    assert (line["status"], line["outcome"], line["reason"]) == (404, "refused", "no_route")
