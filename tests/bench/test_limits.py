"""The tools of the experiments about limits tell the truth; how Sponson does in them, is not tested here."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from io import StringIO
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from proxy.simulation.provider import Latency, ProviderSimulator, SimulatorSettings
from tests.bench import quota_precision, sink
from tests.bench.limits import duplicates, flood, keys, precision, priorities
from tests.bench.limits.callers import LOST, Caller, Request, request, retry_after, session
from tests.bench.limits.finding import Finding
from tests.bench.limits.loads import Loads
from tests.bench.limits.tables import print_limits
from tests.bench.measure import Cores
from tests.bench.quota_provider import Rule
from tests.bench.rows import Surroundings

LIMIT_SECONDS = 30.0
SOON = {"retry-after-ms": "1"}


@asynccontextmanager
async def saying(*answers: tuple[int, dict[str, str]]) -> AsyncIterator[str]:
    """A server that gives these statuses and header fields, one after the other."""
    left = list(answers)

    async def answer(asked: web.Request) -> web.Response:
        await asked.read()
        status, fields = left.pop(0)
        return web.Response(status=status, headers=fields)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def asked(*, prompt: int = 20, max_tokens: int = 5) -> Iterator[Request]:
    return (request(number, prompt=prompt, max_tokens=max_tokens) for number in count())


@pytest.mark.parametrize(
    ("answers", "statuses"),
    [
        ([(200, {})], [200]),
        ([(429, SOON), (200, {})], [429, 200]),
        ([(503, SOON), (409, SOON), (500, SOON)], [503, 409, 500]),
        ([(429, SOON | {"x-should-retry": "false"})], [429]),
        ([(400, SOON | {"x-should-retry": "true"}), (200, {})], [400, 200]),
        ([(400, SOON)], [400]),
    ],
)
async def test_caller_repeats_what_an_sdk_would(answers: list[tuple[int, dict[str, str]]], statuses: list[int]) -> None:
    async with saying(*answers) as url, session() as connections:
        call = await Caller(connections, url, random=Random(1)).call(next(asked()))
    assert call.statuses == statuses
    assert call.answered is (statuses[-1] == 200)
    assert call.ended >= call.began


async def test_lost_answer_is_asked_for_again() -> None:
    async with ProviderSimulator(SimulatorSettings()) as simulator, session() as connections:
        simulator.set_faults(["lost,first=1"])
        call = await Caller(connections, simulator.base_url, random=Random(1)).call(next(asked()))
        assert simulator.stats().repeated_bodies == 1
    assert call.statuses == [LOST, 200]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "61"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 10:01:31 GMT"}, None),
    ],
)
def test_wait_is_what_an_answer_asks_for_up_to_a_minute(fields: dict[str, str], seconds: float | None) -> None:
    assert retry_after(fields) == seconds


@given(number=st.integers(0, 10**7), prompt=st.integers(3, 3000), max_tokens=st.integers(1, 5000))
def test_request_asks_for_what_it_says(number: int, prompt: int, max_tokens: int) -> None:
    document = json.loads(request(number, prompt=prompt, max_tokens=max_tokens).body)
    assert len(document["messages"][0]["content"]) == prompt * 4
    assert document["max_tokens"] == max_tokens
    assert (
        request(number, prompt=prompt, max_tokens=max_tokens).body
        != request(number + 1, prompt=prompt, max_tokens=max_tokens).body
    )


async def test_provider_counts_the_tokens_that_a_request_was_made_with() -> None:
    async with ProviderSimulator(SimulatorSettings()) as simulator, session() as connections:
        await Caller(connections, simulator.base_url, random=Random(1)).call(next(asked(prompt=20, max_tokens=5)))
        assert simulator.stats().counted_tokens == 25


async def test_saturating_callers_are_as_many_as_said_and_end_with_the_requests() -> None:
    settings = SimulatorSettings(latency=Latency(low=0.01))
    async with ProviderSimulator(settings) as simulator, session() as connections, Loads() as loads:
        caller = Caller(connections, simulator.base_url, random=Random(1))
        loads.saturate(caller, (one for one, _ in zip(asked(), range(12), strict=False)), at_once=4)
        assert await loads.ended(LIMIT_SECONDS)
        assert simulator.stats().peak_in_flight == 4
    assert [call.answered for call in caller.calls] == [True] * 12


async def test_arrivals_do_not_wait_for_answers_and_stop_when_told() -> None:
    async with ProviderSimulator(SimulatorSettings()) as simulator, session() as connections, Loads() as loads:
        simulator.set_faults(["slow=10m,first=3"])
        caller = Caller(connections, simulator.base_url, random=Random(1))
        loads.arrive(caller, asked(), per_second=500.0, random=Random(2))
        async with asyncio.timeout(LIMIT_SECONDS):
            while sum(call.answered for call in caller.calls) < 5:
                await asyncio.sleep(0.001)
        loads.stop()
        assert not await loads.ended(0.05)
    assert sum(not call.answered for call in caller.calls) >= 3


async def test_leaving_the_loads_ends_everybody() -> None:
    async with ProviderSimulator(SimulatorSettings()) as simulator, session() as connections:
        simulator.set_faults(["silence"])
        caller = Caller(connections, simulator.base_url, random=Random(1))
        async with asyncio.timeout(LIMIT_SECONDS):
            async with Loads() as loads:
                loads.saturate(caller, asked(), at_once=3)
                while len(caller.calls) < 3:
                    await asyncio.sleep(0.001)
    assert [call.ended for call in caller.calls] == [0.0] * 3


@asynccontextmanager
async def surroundings(folder: Path) -> AsyncIterator[Surroundings]:
    """A place for processes, and somebody who takes their telemetry."""
    runner = web.AppRunner(sink.build_app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        yield Surroundings(provider_port=0, sink_port=port, cores=Cores.choose(), folder=folder)
    finally:
        await runner.cleanup()


@pytest.mark.skipif(sys.platform != "linux", reason="pins processes")
@pytest.mark.timeout(180)
class TestShortRuns:
    """Every experiment runs with real processes, and its callers get answers."""

    async def test_keys(self, tmp_path: Path) -> None:
        async with surroundings(tmp_path) as around:
            sides = await keys.run(around, keys.Lengths(warm_up=0.5, counted=1.0))
        assert [side.keys for side in sides] == [1, keys.MANY]
        assert all(side.calls_per_second > 0 and side.failed == 0 for side in sides)

    async def test_duplicates(self, tmp_path: Path) -> None:
        async with surroundings(tmp_path) as around:
            sides = await duplicates.run(around, duplicates.Lengths(writes=20))
        assert [side.writes for side in sides] == [20] * len(duplicates.Way)
        assert all(side.answered + side.unknown == 20 for side in sides)

    async def test_flood(self, tmp_path: Path) -> None:
        lengths = flood.Lengths(warm_up=0.2, counted=1.0, flooded=1.0, job_at_once=3)
        async with surroundings(tmp_path) as around:
            sides = await flood.run(around, lengths)
        assert all(side.calls > 0 and side.failed == 0 for side in sides)

    async def test_priorities(self, tmp_path: Path) -> None:
        async with surroundings(tmp_path) as around:
            sides = await priorities.run(around, priorities.Lengths(warm_up=0.2, counted=1.0))
        assert all(side.calls > 0 and side.failed == 0 for side in sides)
        assert [side.p2_made > 0 for side in sides] == [False, True, True]

    async def test_precision(self, tmp_path: Path) -> None:
        async with surroundings(tmp_path) as around:
            measured = await precision.run(around, precision.Lengths(crowds=0, seeds=1))
        assert measured.crowds == []
        assert [one.rule for one in measured.virtual] == list(Rule)


def key_sides(*, per_second: float = 145.0, refused: int = 0, seen: int = 0) -> list[keys.Side]:
    one = keys.Side(keys=1, calls_per_second=7.25, used=0.8, refused=0, refused_before=3, seen=0, failed=0)
    return [one, replace(one, keys=20, calls_per_second=per_second, refused=refused, seen=seen)]


def write_sides(way: duplicates.Way, **changes: Any) -> list[duplicates.Side]:
    fine = duplicates.Side(way=way, writes=1000, lost=50, twice=0, answered=1000, unknown=0, failed=0)
    return [replace(fine, **changes)]


def flood_sides(**changes: Any) -> list[flood.Side]:
    alone = flood.Side(way=flood.Way.ALONE, calls=600, failed=0, p50_seconds=0.8, p99_seconds=1.0, job_per_minute=0)
    limited = replace(alone, way=flood.Way.LIMITED, job_per_minute=150.0)
    return [alone, replace(alone, way=flood.Way.FLOODED, p99_seconds=40.0), replace(limited, **changes)]


def class_sides(**changes: Any) -> list[priorities.Side]:
    idle = priorities.Side(
        way=priorities.Way.IDLE, calls=300, failed=0, p50_seconds=0.4, p99_seconds=0.6, p1_per_second=0.0,
        p2_per_second=0.0, p2_made=0, p2_answered=0, refused=0,
    )  # fmt: skip
    return [
        idle,
        replace(idle, way=priorities.Way.PERMITS, p2_made=9, p2_answered=9),
        replace(idle, way=priorities.Way.TOKENS, **{"p2_made": 9, "p2_answered": 9} | changes),
    ]


def precise(*, admitted: float = 1900.0, refused: int = 0, counted: float = 7.9e6) -> precision.Precision:
    virtual = [replace(run, counted=counted) for run in [quota_precision.run(1)]]
    crowd = precision.Crowd(left=2000.0, admitted=admitted, answered=19, told=181, refused=refused)
    return precision.Precision(crowds=[crowd], virtual=virtual)


HELD = [
    keys.findings(key_sides()),
    duplicates.findings(write_sides(duplicates.Way.STRAIGHT, twice=50)),
    duplicates.findings(write_sides(duplicates.Way.UNKEYED, answered=950, unknown=50)),
    duplicates.findings(write_sides(duplicates.Way.DEDUPLICATED)),
    duplicates.findings(write_sides(duplicates.Way.KEYED, answered=950, unknown=50, repeated=50, refused_again=50)),
    flood.findings(flood_sides(p99_seconds=1.19)),
    priorities.findings(class_sides(p99_seconds=0.65)),
    precision.findings(precise()),
]
BROKEN = [
    (keys.findings(key_sides(per_second=140.0)), "20 keys / with one"),
    (keys.findings(key_sides(refused=1)), "the proxy met"),
    (keys.findings(key_sides(seen=1)), "the application got"),
    (duplicates.findings(write_sides(duplicates.Way.DEDUPLICATED, twice=1)), "executed twice"),
    (duplicates.findings(write_sides(duplicates.Way.DEDUPLICATED, answered=999, unknown=1)), "were told"),
    (duplicates.findings(write_sides(duplicates.Way.KEYED, answered=1000)), "were told"),
    (duplicates.findings(write_sides(duplicates.Way.KEYED, unknown=50, repeated=50, refused_again=49)), "asked again"),
    (flood.findings(flood_sides(p99_seconds=1.21)), "with limits"),
    (flood.findings(flood_sides(failed=1)), "with limits"),
    (priorities.findings(class_sides(p99_seconds=0.67)), "all tokens"),
    (priorities.findings(class_sides(p2_answered=8)), "P2 finishes"),
    (priorities.findings(class_sides(p2_made=0, p2_answered=0)), "P2 finishes"),
    (priorities.findings(class_sides(refused=1)), "P2 finishes"),
    (precision.findings(precise(admitted=2001.0)), "at once with"),
    (precision.findings(precise(refused=1)), "at once with"),
    (precision.findings(precise(counted=7.7e6)), "virtual minutes"),
]


@pytest.mark.parametrize("found", HELD)
def test_what_is_as_promised_holds(found: list[Finding]) -> None:
    assert {one.verdict for one in found} <= {"holds", ""}


@pytest.mark.parametrize(("found", "name"), BROKEN)
def test_finding_names_what_was_not_kept(found: list[Finding], name: str) -> None:
    (broken,) = [one.name for one in found if one.verdict == "DOES NOT HOLD"]
    assert name in broken


def test_table_shows_reference_and_goal_beside_what_was_measured() -> None:
    console = Console(width=170, file=StringIO())
    print_limits(console, keys.findings(key_sides()))
    text = cast(StringIO, console.file).getvalue()
    for shown in ("20.00 × (145.0 / 7.25)", "about 18 ×", "≥ 19.5 ×", "holds"):
        assert shown in text


def test_figures_can_be_written_as_json() -> None:
    figures = [*map(asdict, key_sides()), *map(asdict, class_sides()), asdict(precise())]
    assert json.loads(json.dumps(figures))[0]["keys"] == 1
