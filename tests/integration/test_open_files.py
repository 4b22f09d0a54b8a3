"""A proxy that may open no more files: its own trouble, told as that, and no provider's failure."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.caller import Answer, Wire, request_bytes
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, says

pytestmark = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits another process")

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {
        "far": {"breaker": {"consecutive": 3}},
        "named": {"base_url": "http://localhost:{port}/v1", "breaker": {"consecutive": 3}},
        "near": {},
    },
    "routes": [route("either", "far", "near", retry={"attempts": 3})],
}


@contextmanager
def no_more_files(pid: int) -> Iterator[None]:
    """While it lasts the process has what it has, and opens nothing else."""
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    most = next(number for number in range(len(used) + 1) if number not in used)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


async def asks(wire: Wire, provider: str, *, model: str = "m") -> Answer:
    path = f"/{provider}/v1/chat/completions" if provider else "/v1/chat/completions"
    await wire.send(request_bytes("POST", path, body={**CHAT, "model": model}))
    return await wire.answer()


@pytest.mark.parametrize("provider", ["far", "named"])
async def test_healthy_provider_s_breaker_does_not_open_for_want_of_files(provider: str) -> None:
    async with Lab(POLICY) as lab, lab.wire() as wire:
        lab[provider].script = says("hi")
        assert (await asks(wire, "unknown")).status == 404
        with no_more_files(lab.proxy.process.pid):
            answers = [await asks(wire, provider) for _ in range(6)]
        assert {(answer.status, answer.reason) for answer in answers} == {(502, "upstream_unreachable")}
        assert all("ulimit -n" in answer.json()["error"]["message"] for answer in answers)
        assert (await asks(wire, provider)).status == 200
        assert len(lab[provider].seen) == 1
        row = await lab.row("breakers", provider=provider, model="m")
        assert (row["state"], row["failures"]) == ("closed", 0)


async def test_later_tier_that_needs_no_new_file_answers() -> None:
    async with Lab(POLICY) as lab, lab.wire() as wire:
        lab["near"].script = says("hi")
        assert (await asks(wire, "near")).status == 200
        with no_more_files(lab.proxy.process.pid):
            answer = await asks(wire, "", model="either")
        assert (answer.status, answer.header("x-sponson-provider")) == (200, "near")
        assert lab["far"].seen == []
