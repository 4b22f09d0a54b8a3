"""A request that comes back to the proxy that sent it ends there; one that only passes several proxies does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import HOST, Answer, call
from tests.integration.harness import Lab, ProxyProcess
from tests.integration.messages import CHAT, CHAT_STREAM, MESSAGES

pytestmark = pytest.mark.asyncio(loop_scope="module")


def towards(port: int, *, path: str = "") -> dict[str, Any]:
    """A policy with one provider, here."""
    return {"version": 1, "providers": {"alpha": {"base_url": f"http://{HOST}:{port}{path}", "breaker": "off"}}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def own() -> AsyncIterator[ProxyProcess]:
    """A proxy whose provider is itself."""
    proxy = ProxyProcess({}, flags=["--linger", "0s"])
    proxy.rewrite(towards(proxy.port))
    async with proxy:
        yield proxy


def descriptors(proxy: ProxyProcess) -> int:
    """Counts what it has open."""
    return len(list(Path(f"/proc/{proxy.process.pid}/fd").iterdir()))


def was_told_at_once(answer: Answer) -> None:
    assert (answer.status, answer.complete, answer.attempts) == (508, True, 1)
    assert answer.all("x-should-retry") == ["false"]
    assert answer.json()["error"]["code"] == "loop_detected"
    assert "address" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/alpha/v1/chat/completions", "/elsewhere"])
async def test_a_proxy_that_is_its_own_provider_answers_at_once_and_dials_once(own: ProxyProcess, path: str) -> None:
    was_told_at_once(await call(own.port, path, CHAT))


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT_STREAM), ("/v1/messages", MESSAGES)])
async def test_a_loop_is_told_in_the_caller_s_dialect(own: ProxyProcess, path: str, body: Any) -> None:
    answer = await call(own.port, path, body)
    was_told_at_once(answer)
    assert answer.json().get("type") == ("error" if path.endswith("messages") else None)


async def test_an_upload_that_comes_back_is_told_of_the_loop(own: ProxyProcess) -> None:
    headers = [("content-type", "application/octet-stream")]
    was_told_at_once(await call(own.port, "/v1/files", bytes(3 << 20), headers=headers))


async def test_a_hundred_loops_leave_the_descriptors_as_they_were(own: ProxyProcess) -> None:
    was_told_at_once(await call(own.port, body=CHAT))
    before = descriptors(own)
    for _ in range(100):
        was_told_at_once(await call(own.port, body=CHAT))
    await own.until(lambda status: status["in_flight"] == 0)
    assert descriptors(own) <= before + 2


async def test_two_proxies_that_send_to_each_other_end_the_loop_in_the_first() -> None:
    first, second = ProxyProcess({}, flags=["--linger", "0s"]), ProxyProcess({}, flags=["--linger", "0s"])
    first.rewrite(towards(second.port))
    second.rewrite(towards(first.port))
    async with first, second:
        was_told_at_once(await call(first.port, body=CHAT))
        await second.until(lambda status: status["in_flight"] == 0)
        assert [line["status"] for line in second.request_lines()] == [508]


async def test_two_proxies_in_a_row_are_no_loop_and_both_are_named() -> None:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab:
        async with ProxyProcess(towards(lab.proxy.port), flags=["--linger", "0s"]) as before:
            answer = await call(before.port, body=CHAT, headers=[("Via", "1.1 edge.test (a cache, and more)")])
        assert answer.status == 200
        edge, first, second = lab["alpha"].only.all("via")
        assert edge == b"1.1 edge.test (a cache, and more)"
        assert first != second
        assert {first[:12], second[:12]} == {b"1.1 sponson-"}


async def test_the_version_that_the_caller_spoke_stands_in_via() -> None:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab, lab.wire() as wire:
        await wire.send(b"GET /alpha/v1/models HTTP/1.0\r\nvia: 1.1 a, 1.0 b\r\n\r\n")
        assert (await wire.answer(method="GET")).status == 200
        theirs, ours = lab["alpha"].only.all("via")
        assert (theirs, ours[:12]) == (b"1.1 a, 1.0 b", b"1.0 sponson-")
