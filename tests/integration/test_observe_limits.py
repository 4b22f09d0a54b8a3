"""`mode: observe` over the wire for quotas, classes, lanes, adaptive limits and contexts, wherever it is said."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Answer
from tests.integration.doors import Doors, klass, leaves_nothing
from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, answers, says

pytestmark = pytest.mark.asyncio(loop_scope="module")

RARE = {"headroom": 1.0, "burst": "1s"}
ONE_A_MINUTE = {"rpm": 1, **RARE}
TOKENS = {"tpm": 6000, **RARE}
PATIENT = {"queue": "90s", "quota_wait": "90s"}
HASTY = {"queue": "90s", "quota_wait": "1ms"}
PROMPT = {"messages": [{"role": "user", "content": "word " * 400}]}
LONG: dict[str, Any] = {"max_tokens": 1000}
Say = Callable[[Lab, str], Awaitable[list[Answer]]]


async def again(lab: Lab, name: str, **body: Any) -> list[Answer]:
    """One call after another."""
    lab[name].script = says("hi")
    document = {**CHAT, "model": name, **body}
    return [await lab.call(body=document) for _ in range(2)]


async def behind(lab: Lab, name: str, held: int, *calls: tuple[str, dict[str, Any]]) -> list[Answer]:
    """Calls while others are held, all of which go at once."""
    doors = Doors(lab, name)
    for number in range(held):
        await doors.runs(str(number), **LONG)
    for number, (said, body) in enumerate(calls):
        await doors.runs(f"call {number}", headers=klass(said), **body)
    await doors.end_all()
    return [doors.tasks[f"call {number}"].result() for number in range(len(calls))]


async def refused_before(lab: Lab, name: str) -> list[Answer]:
    """The provider refuses one call; then there are more than half of the share."""
    lab[name].script = answers(429)
    assert (await lab.chat(name)).status == 429
    row = await lab.row("adaptive", provider=name)
    assert (row["size"], row["share"], row["lowered"]) == (2, 4, True)
    return await behind(lab, name, 1, ("P1", LONG), ("P1", LONG))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A limit, what is asked of it, and what is then said of each call."""

    provider: dict[str, Any] = field(default_factory=dict)
    route: dict[str, Any] = field(default_factory=dict)
    asks: Say
    would: list[str | None]


def a_model(**limits: Any) -> dict[str, Any]:
    """A provider whose model of every case has limits."""
    return {"models": {"CASE": limits}}


CASES = {
    "requests": Case(provider={"limits": ONE_A_MINUTE}, asks=again, would=[None, "would_wait"]),
    "hasty": Case(
        provider={"limits": ONE_A_MINUTE, "timeouts": HASTY}, asks=again, would=[None, "would_quota_exhausted"]
    ),
    "tokens": Case(
        provider={"limits": TOKENS},
        asks=lambda lab, name: again(lab, name, max_tokens=5000),
        would=[None, "would_wait"],
    ),
    "endless": Case(
        provider={"limits": {**TOKENS, "tpm": 60}},
        asks=lambda lab, name: again(lab, name, max_tokens=5000),
        would=["would_context_too_long"] * 2,
    ),
    "model": Case(provider=a_model(limits={"rpm": 1}), asks=again, would=[None, "would_wait"]),
    "key": Case(provider={"keys": [{"id": "a", "env": "KEY", "rpm": 1}]}, asks=again, would=[None, "would_wait"]),
    "context": Case(
        provider=a_model(context_tokens=20),
        asks=lambda lab, name: again(lab, name, **PROMPT),
        would=["would_context_too_long"] * 2,
    ),
    "idle": Case(
        provider={"limits": {"concurrency": 8}},
        asks=lambda lab, name: behind(lab, name, 2, ("P2", LONG), ("P1", LONG), ("P2", LONG)),
        would=[None, None, "would_wait"],
    ),
    "reserve": Case(
        provider={"limits": {"concurrency": 4}},
        asks=lambda lab, name: behind(lab, name, 2, ("P1", LONG), ("P1", LONG), ("P0", LONG)),
        would=[None, "would_wait", "would_wait"],
    ),
    "lane": Case(
        provider={"limits": {"concurrency": 4}},
        route={"lanes": [{"max_output": 100, "share": 0.5}]},
        asks=lambda lab, name: behind(lab, name, 1, ("P1", LONG), ("P1", {"max_tokens": 9}), ("P0", LONG)),
        would=["would_wait", None, "would_wait"],
    ),
    "adaptive": Case(
        provider={"limits": {"concurrency": 4, "adaptive": {"decrease": 0.5}}},
        route={"retry": {"attempts": 1}},
        asks=refused_before,
        would=[None, "would_wait"],
    ),
}
LEVELS = ("policy", "provider", "route")
ENV = {"KEY": "sk-k"}


def policy(level: str) -> dict[str, Any]:
    """A provider and a route for each case, with the mode at one level."""
    mode = {"mode": "observe"}
    found: dict[str, Any] = {
        "version": 1,
        "classes": {"P0": {"reserved": 0.25}, "P2": {"idle_below": 0.5}},
        "providers": {},
        "routes": [],
    }
    for name, case in CASES.items():
        models = {name: case.provider["models"]["CASE"]} if "models" in case.provider else {}
        own = {"timeouts": PATIENT, **case.provider, **({"models": models} if models else {})}
        found["providers"][name] = {**own, **(mode if level == "provider" else {})}
        found["routes"].append(
            route(name, name, class_from_header=True, **case.route, **(mode if level == "route" else {}))
        )
    return {**found, **(mode if level == "policy" else {})}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LEVELS)
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    async with Lab(policy(request.param), env=ENV) as lab:
        yield lab


async def counted(lab: Lab, provider: str) -> dict[str, float]:
    """What `/metrics` counted for a provider."""
    text = (await lab.proxy.get("/metrics")).body.decode()
    lines = [
        line for line in text.splitlines() if line.startswith("sponson_observed_total{") and f'"{provider}"' in line
    ]
    found: dict[str, float] = {}
    for line in lines:
        would = next(part for part in line.split('"') if part.startswith("would_"))
        found[would] = found.get(would, 0.0) + float(line.rpartition(" ")[2])
    return found


@pytest.mark.parametrize("name", CASES)
async def test_calls_go_at_once_and_what_would_have_been_is_told(lab: Lab, name: str) -> None:
    case = CASES[name]
    done = await case.asks(lab, name)
    assert [answer.status for answer in done] == [200] * len(done)
    told = [(await lab.proxy.line_of(answer)).get("would") for answer in done]
    assert told == [None if would is None else [would] for would in case.would]
    sums = {would: float(case.would.count(would)) for would in case.would if would is not None}
    assert await counted(lab, name) == sums
    row = await lab.row("observed", provider=name)
    assert {would: count for would, count in row.items() if would != "provider" and count} == sums
    await leaves_nothing(lab)
