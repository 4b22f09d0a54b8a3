"""The tools of the experiments about work saved tell the truth; how Sponson does in them, is not tested here."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from rich.console import Console

from proxy.simulation.provider import ProviderSimulator, SimulatorSettings
from proxy.simulation.provider.settings import AnswerStyle
from tests.bench.limits.callers import session
from tests.bench.limits.finding import Finding
from tests.bench.saved import alike, merging, reuse
from tests.bench.saved.calls import (
    BROKEN,
    Call,
    Caller,
    Taken,
    is_vector_of,
    vector_question,
    vector_questions,
)
from tests.bench.saved.merging import BUSY, CROWD, LIMIT, Load, Merging, Phase, Way
from tests.bench.saved.origins import READY_SECONDS, Counts, Origin, origin
from tests.bench.saved.tables import print_saved
from tests.bench.test_limits import surroundings

LIMIT_SECONDS = 30.0
ENDLESS = 3600.0


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[Caller]:
    """A caller with connections of its own."""
    async with session() as connections:
        yield Caller(connections, url)


@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"embedding_dimensions": 3}])
async def test_vector_of_the_model_is_the_one_that_was_asked_for(settings: dict[str, Any]) -> None:
    async with ProviderSimulator(SimulatorSettings(**settings)) as model, calling(model.base_url) as caller:
        calls = [await caller.call(asked) for asked in islice(vector_questions(), 3)]
    assert [(call.status, call.right) for call in calls] == [(200, True)] * 3
    assert all(call.ended > call.began for call in calls)


async def test_vector_of_another_text_is_not_right() -> None:
    other = vector_question(2)
    async with ProviderSimulator() as model, calling(model.base_url) as caller:
        assert not (await caller.call(replace(vector_question(1), body=other.body))).right
        assert (await caller.call(other)).right


@pytest.mark.parametrize(
    "spoil",
    [
        lambda answer: {**answer, "data": [{**answer["data"][0], "index": 1}]},
        lambda answer: {**answer, "usage": {"total_tokens": answer["usage"]["total_tokens"] + 1}},
        lambda answer: {**answer, "data": [{**answer["data"][0], "embedding": [0.0] * 8}]},
    ],
)
async def test_part_of_a_merged_answer_that_is_not_ones_own_is_seen(spoil: Any) -> None:
    whole: list[bytes] = []
    asked = vector_question(1)

    def keep(answer: bytes) -> bool:
        whole.append(answer)
        return True

    async with ProviderSimulator() as model, calling(model.base_url) as caller:
        await caller.call(replace(asked, right=keep))
    assert asked.right(whole[0])
    assert not is_vector_of("text 0000001", json.dumps(spoil(json.loads(whole[0]))).encode())


async def test_refused_and_broken_calls_are_over_and_not_right() -> None:
    async with ProviderSimulator() as model, calling(model.base_url) as caller:
        for fault, status in (("status=503", 503), ("reset", BROKEN), ("error-in-200", 200)):
            call = await caller.call(replace(CHAT, fields={"x-sim-fault": fault}))
            assert (call.status, call.right) == (status, False)
            assert call.ended >= call.began


CHAT = alike.question("to be said again")


@pytest.mark.parametrize("stream", [False, True])
async def test_answer_that_says_the_text_to_its_end_is_right(stream: bool) -> None:
    asked = alike.question("to be said again", stream=stream)
    async with (
        ProviderSimulator(SimulatorSettings(answer=AnswerStyle.ECHO)) as model,
        calling(model.base_url) as caller,
    ):
        assert (await caller.call(asked)).right
        assert not (await caller.call(replace(asked, body=alike.question("else", stream=stream).body))).right
        cut = await caller.call(replace(asked, fields={"x-sim-fault": "cut=3;by=end"}))
        assert not cut.right


def call(began: float, ended: float, *, right: bool = True, cache: str = "") -> Call:
    return Call(began=began, ended=ended, status=200, right=right, cache=cache)


def test_answers_count_where_they_came_and_times_where_calls_began() -> None:
    calls = [call(0.5, 1.5), call(1.0, 1.01), call(1.5, 2.5), call(1.9, 1.95, right=False), call(2.0, 2.1)]
    taken = Taken.of(calls, 1.0, 2.0)
    assert (taken.calls, taken.per_second, taken.failed) == (3, 2.0, 1)
    assert [taken.p50_ms, taken.p99_ms] == pytest.approx([1000, 1000])


@asynccontextmanager
async def listening(*, idle_seconds: float = ENDLESS) -> AsyncIterator[tuple[Origin, aiohttp.ClientSession]]:
    async with origin("alpha", seconds=lambda: 0.0, idle_seconds=idle_seconds) as one, session() as connections:
        yield one, connections


async def test_origin_counts_connections_and_the_requests_that_found_one() -> None:
    async with listening() as (one, connections):
        caller = Caller(connections, one.url)
        asked = reuse.question("alpha")
        assert [(await caller.call(asked)).right for _ in range(3)] == [True] * 3
        assert one.counts == Counts(connections=1, requests=3, reused=2, ready=0)
        await asyncio.gather(caller.call(asked), caller.call(asked))
        assert one.counts == Counts(connections=2, requests=5, reused=3, ready=0)


async def test_first_request_on_a_connection_that_waited_for_it_was_ready() -> None:
    async with listening() as (one, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        await asyncio.sleep(2 * READY_SECONDS)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
        async with asyncio.timeout(LIMIT_SECONDS):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert one.counts == Counts(connections=1, requests=1, reused=0, ready=1)
        writer.close()


async def test_origin_closes_what_is_idle_for_too_long() -> None:
    async with listening(idle_seconds=0.05) as (one, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        async with asyncio.timeout(LIMIT_SECONDS):
            assert await reader.read() == b""
        writer.close()


def test_counts_are_added_and_taken_off() -> None:
    one, two = Counts(connections=1, requests=4, reused=3), Counts(connections=2, requests=5, reused=1, ready=2)
    assert one + two == Counts(connections=3, requests=9, reused=4, ready=2)
    assert (one + two) - one == two


def test_hits_are_told_from_what_waited() -> None:
    calls = [call(0, 0.001, cache="hit"), call(0, 0.5, cache="miss"), call(0, 0.4), call(0, 9, right=False)]
    found = alike.mixed(calls, questions=2, model_calls=3)
    assert (found.asked, found.hits, found.failed) == (4, 1, 1)
    assert [found.hit_p50_ms, found.other_p50_ms] == pytest.approx([1, 500])


@pytest.mark.skipif(sys.platform != "linux", reason="pins processes")
@pytest.mark.timeout(180)
class TestShortRuns:
    """Every experiment runs with real processes, and every caller gets the answer that is its own."""

    async def test_merging(self, tmp_path: Path) -> None:
        lengths = merging.Lengths(warm_up=0.2, random=1.0, closed=0.5, quiet=3)
        async with surroundings(tmp_path) as around:
            measured = await merging.run(around, lengths)
        assert all(phase.taken.calls > 0 and phase.taken.failed == 0 for phase in measured.phases)
        assert all(1 <= phase.model_inputs / phase.model_calls <= merging.MOST for phase in measured.phases)
        assert all(phase.model_inputs == phase.model_calls for phase in measured.phases if phase.way is Way.SINGLE)
        assert measured.crowd.model_inputs > measured.crowd.model_calls

    async def test_reuse(self, tmp_path: Path) -> None:
        lengths = reuse.Lengths(warm_up=1.0, counted=2.0, pauses=2)
        async with surroundings(tmp_path) as around:
            sides = await reuse.run(around, lengths)
        assert [side.way for side in sides] == list(reuse.Way)
        assert all(side.counts.requests > 0 and side.failed == 0 for side in sides)
        assert all(side.after_pauses > 0 and side.failed_after_pauses == 0 for side in sides)

    async def test_alike(self, tmp_path: Path) -> None:
        async with surroundings(tmp_path) as around:
            measured = await alike.run(around, alike.Lengths(burst=100, streams=20, mixed=2.0))
        assert measured.burst == alike.Crowd(asked=100, calls=1, answered=100, unlike=1)
        assert measured.streams == alike.Crowd(asked=20, calls=1, answered=20, unlike=1)
        assert measured.mixed.failed == 0
        assert measured.mixed.calls == measured.mixed.questions


def merged(*, quiet: float = 12.0, **changes: Any) -> Merging:
    fine = Taken(calls=4000, per_second=314.0, p50_ms=20.0, p99_ms=40.0, failed=0)

    def phase(way: Way, load: Load, **changes: Any) -> Phase:
        return Phase(way=way, load=load, taken=replace(fine, **changes), model_calls=100, model_inputs=400)

    return Merging(
        limit=phase(Way.SINGLE, LIMIT, per_second=90.0),
        half=phase(Way.SINGLE, Load(per_second=45.0), per_second=45.0, p99_ms=45.0),
        busy=phase(Way.MERGED, BUSY, **changes),
        few=phase(Way.MERGED, LIMIT),
        crowd=phase(Way.MERGED, CROWD),
        quiet_ms={Way.SINGLE: 12.0, Way.MERGED: quiet},
    )


def reused(**changes: Any) -> list[reuse.Side]:
    fine = reuse.Side(
        way=reuse.Way.SHARED, counts=Counts(connections=9, requests=1000, reused=900, ready=95), failed=0,
        quick_p50_ms=30.0, quick_p99_ms=60.0, after_pauses=96, failed_after_pauses=0,
    )  # fmt: skip
    sides = {way: replace(fine, way=way) for way in reuse.Way}
    sides[reuse.Way.WARM] = replace(sides[reuse.Way.WARM], **changes)
    return list(sides.values())


def shared(**changes: Mapping[str, Any]) -> alike.Alike:
    crowd = alike.Crowd(asked=1000, calls=1, answered=1000, unlike=1)
    mix = alike.Mixed(
        asked=1800, questions=500, calls=500, failed=0, hits=1200, hit_p50_ms=2.0, other_p50_ms=500.0
    )  # fmt: skip
    fine = alike.Alike(burst=crowd, streams=crowd, mixed=mix)
    return replace(fine, **{name: replace(getattr(fine, name), **change) for name, change in changes.items()})


HELD = [
    merging.findings(merged()),
    merging.findings(merged(p99_ms=45.0, per_second=300.0, quiet=13.0)),
    reuse.findings(reused()),
    alike.findings(shared()),
]
BROKEN_PROMISES = [
    (merging.findings(merged(per_second=299.0)), "at random, merged"),
    (merging.findings(merged(p99_ms=46.0)), "at random, merged"),
    (merging.findings(merged(failed=1)), "at random, merged"),
    (merging.findings(merged(quiet=13.1)), "nothing else comes"),
    (reuse.findings(reused(counts=Counts(connections=9, requests=1000, reused=900, ready=89))), "open connection"),
    (reuse.findings(reused(failed=1)), "open connection"),
    (reuse.findings(reused(failed_after_pauses=1)), "after a pause"),
    (reuse.findings(reused(after_pauses=0)), "after a pause"),
    (alike.findings(shared(burst={"calls": 2})), "at once"),
    (alike.findings(shared(burst={"answered": 999})), "at once"),
    (alike.findings(shared(streams={"unlike": 2})), "streams"),
    (alike.findings(shared(mixed={"calls": 501})), "calls saved"),
    (alike.findings(shared(mixed={"failed": 1})), "calls saved"),
]


@pytest.mark.parametrize("found", HELD)
def test_what_is_as_promised_holds(found: list[Finding]) -> None:
    assert {one.verdict for one in found} == {"holds", ""}


@pytest.mark.parametrize(("found", "name"), BROKEN_PROMISES)
def test_finding_names_what_was_not_kept(found: list[Finding], name: str) -> None:
    (broken,) = [one.name for one in found if one.verdict == "DOES NOT HOLD"]
    assert name in broken


def test_table_shows_reference_and_goal_beside_what_was_measured() -> None:
    console = Console(width=170, file=StringIO())
    print_saved(console, [*merging.findings(merged()), *reuse.findings(reused())])
    text = cast(StringIO, console.file).getvalue()
    for shown in ("314/s (P50 20, P99 40 ms, 4.0 in a call)", "210/s", "≥ 300/s, P99 ≤ 45 ms", "holds", "62%", "≥ 99%"):
        assert shown in text


def test_figures_can_be_written_as_json() -> None:
    figures = [asdict(merged()), *map(asdict, reused()), asdict(shared())]
    assert json.loads(json.dumps(figures))[0]["limit"]["way"] == "one at a time"
