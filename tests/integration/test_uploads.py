"""Uploads that stop or come too slowly: their caller is told so, and nobody else pays for them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import answers, hangs

pytestmark = pytest.mark.asyncio(loop_scope="module")

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "alpha": {"breaker": {"consecutive": 2}},
        "beta": {},
        "brief": {"timeouts": {"answer": "700ms"}, "breaker": {"consecutive": 2}, "limits": {"concurrency": 10}},
    },
    "routes": [
        route("files", "alpha", "beta", match={"path": "/v1/files"}),
        route("chat", "alpha", "beta", match={"path": "/v1/chat/completions"}, total="1s"),
    ],
}
MULTIPART = ("content-type", "multipart/form-data; boundary=zzz")
STALLED = (MULTIPART, ("content-length", "50000"))


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def unread(clean: None, lab: Lab) -> None:
    for provider in lab.providers.values():
        provider.reads_bodies = False


def files_of(lab: Lab) -> int:
    """Counts what the proxy has open."""
    return len(list(Path(f"/proc/{lab.proxy.process.pid}/fd").iterdir()))


async def test_early_answer_to_a_stalled_upload_ends_its_connection_and_leaves_nothing_open(lab: Lab) -> None:
    lab["alpha"].script = answers(413)
    before = files_of(lab)
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(lab.wire()) for _ in range(5)]
        for wire in wires:
            await wire.send(request_bytes("POST", "/v1/files", headers=STALLED, body=b"x" * 1000))
        found = [await wire.answer() for wire in wires]
        assert [answer.status for answer in found] == [413] * 5
        assert {answer.header("connection") for answer in found} == {"close"}
        assert await asyncio.gather(*(wire.closed(within=6) for wire in wires)) == [True] * 5
    async with asyncio.timeout(5):
        while files_of(lab) > before:
            await asyncio.sleep(0.05)
    assert "Traceback" not in lab.proxy.log()


async def test_stalled_upload_is_its_callers_error_and_no_failure_of_the_provider(lab: Lab) -> None:
    lab["brief"].script = hangs
    for _ in range(3):
        async with lab.wire() as wire:
            await wire.send(request_bytes("POST", "/brief/v1/files", headers=STALLED, body=b"x" * 1000))
            answer = await wire.answer(within=5)
        assert (answer.status, answer.reason) == (400, "bad_request")
        assert (await lab.proxy.line_of(answer))["outcome"] == "caller_error"
    assert (await lab.row("breakers", provider="brief"))["state"] == "closed"
    await lab.idle()


async def test_body_that_drips_is_bounded_by_its_routes_total(lab: Lab) -> None:
    async with lab.wire() as wire:
        head = request_bytes(
            "POST", "/v1/chat/completions", headers=[("content-type", "application/json"), ("content-length", "100")]
        )
        await wire.send(head)

        async def drip() -> None:
            while True:
                await wire.send(b" ")
                await asyncio.sleep(0.1)

        dripping = asyncio.ensure_future(drip())
        answer = await wire.answer(within=5)
        dripping.cancel()
    assert (answer.status, answer.reason) == (504, "total_timeout")
    assert 0.9 < answer.seconds < 3
    assert lab["alpha"].seen == []


async def test_large_failing_answer_to_an_upload_is_relayed_whole(lab: Lab) -> None:
    text = "x" * 200_000
    for provider in lab.providers.values():
        provider.reads_bodies = True
    lab["alpha"].script = answers(500, {"error": {"message": text}})
    answer = await lab.call("/v1/files", b"0123456789", headers=[MULTIPART])
    assert (answer.status, answer.complete, answer.provider, answer.reason) == (500, True, "alpha", None)
    assert answer.json() == {"error": {"message": text}}
    assert lab["beta"].seen == []
