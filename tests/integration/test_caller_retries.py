"""Callers that retry by themselves get fewer attempts, and are told when it is enough."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Headers
from tests.integration.harness import Lab, route
from tests.integration.messages import answers

pytestmark = pytest.mark.asyncio(loop_scope="module")

SDK, ENVOY = "x-stainless-retry-count", "x-envoy-attempt-count"
CALLS: list[tuple[Headers, int]] = [
    ([], 3),
    ([(SDK, "0")], 3),
    ([(SDK, "1")], 2),
    ([(SDK, "2")], 1),
    ([(SDK, "7")], 1),
    ([(ENVOY, "1")], 3),
    ([(ENVOY, "2")], 2),
    ([(ENVOY, "3")], 1),
    ([(SDK, "0"), (ENVOY, "3")], 1),
    ([(SDK, "1"), (ENVOY, "1")], 2),
    ([(SDK, "many")], 3),
    ([(SDK, "-1")], 3),
    ([(SDK, "")], 3),
    ([(SDK, "\u00b2".encode())], 3),
    ([(ENVOY, b"\xb3")], 3),
]
POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {name: {"breaker": "off"} for name in ("alpha", "beta", "gamma")},
    "routes": [
        # Each has a budget of its own.
        *(route(f"alone-{number}", "alpha", retry={"attempts": 3, "base": "1ms"}) for number in range(len(CALLS))),
        route("tiers", "alpha", "beta", "gamma", retry={"attempts": 3, "base": "1ms"}),
    ],
}


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def failing(clean: None, lab: Lab) -> None:
    for provider in lab.providers.values():
        provider.script = answers(503)


@pytest.mark.parametrize(("number", "headers", "attempts"), [(at, *call) for at, call in enumerate(CALLS)])
async def test_attempts_are_fewer_by_what_the_caller_has_tried(
    lab: Lab, number: int, headers: Headers, attempts: int
) -> None:
    answer = await lab.chat(f"alone-{number}", headers=headers)
    assert (answer.status, answer.attempts, len(lab["alpha"].seen)) == (503, attempts, attempts)
    assert answer.all("x-should-retry") == (["false"] if attempts > 1 else [])


async def test_every_tier_is_asked_once_even_for_a_caller_that_has_tried_often(lab: Lab) -> None:
    answer = await lab.chat("tiers", headers=[(SDK, "9")])
    assert (answer.status, answer.provider, answer.attempts) == (503, "gamma", 3)
    assert [len(provider.seen) for provider in lab.providers.values()] == [1, 1, 1]
