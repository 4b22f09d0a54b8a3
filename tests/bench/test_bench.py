"""The benchmark's own tools tell the truth; how fast anything is, is not tested here."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO
from pathlib import Path
from typing import cast

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.bench import bare, peers, report, tables, traffic
from tests.bench.__main__ import Measured, as_json
from tests.bench.load import Load, LoadPlan, drive
from tests.bench.measure import Cores, NotReady, Process, pinned
from tests.bench.provider import Provider
from tests.bench.report import Footprint, Requests, Round, Sample, Streams
from tests.bench.rounds import Findings
from tests.bench.rows import OWN_ROWS, PEER_ROWS, Row, Surroundings, clean_environment, start

MARK = traffic.mark_of(7)
QUICK_PROVIDER = partial(Provider, gap_seconds=0.0)


class ConfusedProvider(asyncio.Protocol):
    """Answers every request, correctly but for somebody else."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(traffic.answer(traffic.mark_of(10**9)))


class LeavingProvider(ConfusedProvider):
    """Closes instead of answering."""

    def data_received(self, data: bytes) -> None:
        self._transport.close()


@asynccontextmanager
async def serving(protocol: Callable[[], asyncio.Protocol]) -> AsyncIterator[int]:
    """A server on a port of its own."""
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def bare_proxy(upstream_port: int) -> AsyncIterator[int]:
    """The bare proxy in front of a port."""
    runner = web.AppRunner(bare.build_app(f"http://127.0.0.1:{upstream_port}"), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def short_load(port: int, *, stream: bool = False) -> Load:
    """Four connections for a moment."""
    return await drive(
        LoadPlan(port=port, connections=4, seconds=0.2, warm_up_seconds=0.0, stream=stream),
    )


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_of_the_provider_are_counted_and_right(stream: bool) -> None:
    async with serving(QUICK_PROVIDER) as port:
        load = await short_load(port, stream=stream)
    assert load.problems == []
    assert load.answers == len(load.latencies) > 0
    assert bool(load.events) is stream


@pytest.mark.parametrize("stream", [False, True])
async def test_bare_proxy_relays_both_forms(stream: bool) -> None:
    async with serving(QUICK_PROVIDER) as upstream, bare_proxy(upstream) as port:
        load = await short_load(port, stream=stream)
    assert load.problems == []
    assert load.answers > 0


async def test_answer_meant_for_another_caller_is_a_problem() -> None:
    async with serving(ConfusedProvider) as port:
        load = await short_load(port)
    assert load.problem_count >= load.answers > 0
    assert "wrong answer" in load.problems[0]


async def test_connection_closed_before_the_answer_is_a_problem() -> None:
    async with serving(LeavingProvider) as port:
        load = await short_load(port)
    assert load.problem_count == 4
    assert "connection lost" in load.problems[0]


async def test_probe_is_read_at_both_ends_of_the_counting_window() -> None:
    readings = iter([3.0, 5.0])
    async with serving(QUICK_PROVIDER) as port:
        load = await drive(
            LoadPlan(port=port, connections=1, seconds=0.05, warm_up_seconds=0.0),
            probe=lambda: next(readings),
        )
    assert load.probed == 2.0


@pytest.mark.skipif(sys.platform != "linux", reason="pins processes")
@pytest.mark.parametrize("row", PEER_ROWS)
async def test_peer_that_is_here_relays_both_forms(row: Row, tmp_path: Path) -> None:
    if peers.find(row) is None:
        pytest.skip(f"to have {row}: {peers.how_to_install(row)}")
    async with serving(QUICK_PROVIDER) as provider:
        around = Surroundings(provider_port=provider, sink_port=0, cores=Cores.choose(), folder=tmp_path)
        subject = await asyncio.to_thread(start, row, around)
        assert subject.process is not None
        with subject.process:
            loads = [await short_load(subject.port, stream=stream) for stream in (False, True)]
    assert [load.problems for load in loads] == [[], []]
    assert all(load.answers > 0 for load in loads)


def test_traffic_has_the_sizes_it_claims() -> None:
    for stream in (False, True):
        assert len(traffic.request(MARK, stream=stream).partition(b"\r\n\r\n")[2]) == 1024
    assert len(traffic.answer_body(MARK)) == 700
    events = traffic.stream_body(MARK).split(b"\n\n")[:-1]
    assert len(events) == 51
    assert {len(event) + 2 for event in events[:-1]} == {250}
    assert all(MARK in event for event in events[:-1])


@given(cuts=st.lists(st.integers(1, 400)), stream=st.booleans())
def test_reader_finds_the_same_messages_however_they_are_cut(cuts: list[int], stream: bool) -> None:
    chunks = b"".join(traffic.stream_chunk(MARK, index) for index in range(traffic.EVENT_COUNT))
    streamed = traffic.STREAM_HEAD + chunks + traffic.END_OF_CHUNKS
    rest = streamed if stream else traffic.answer(MARK)
    reader = traffic.MessageReader()
    bodies = []
    for size in [*cuts, len(rest)]:
        piece, rest = rest[:size], rest[size:]
        if piece and reader.feed(piece):
            assert reader.status == 200
            bodies.append(reader.body)
            reader.forget()
    assert bodies == [traffic.stream_body(MARK) if stream else traffic.answer_body(MARK)]


def sample(*, cpu: float | None, p50: float, event_cpu: float | None = None, idle: float = 50.0) -> Sample:
    """A row's figures in one round, most of them made from one number."""
    peak = None if cpu is None else idle + 5
    requests = Requests(per_second=1000.0, p50_ms=p50, p99_ms=2 * p50, cpu_us=cpu, peak_mib=peak)
    return Sample(
        requests=dict.fromkeys((1, 16, 64, 256), requests),
        streams=Streams(events_per_second=3000.0, first_byte_p50_ms=p50, cpu_us=event_cpu),
        footprint=None if cpu is None else Footprint(idle_mib=idle, loaded_mib=idle + 5, ready_seconds=0.5),
    )


def three_rounds() -> list[Round]:
    """Rounds on a machine that gets slower; the ratios are 0.4, 0.6, 0.9 for requests and 2 for events."""
    return [
        {
            Row.DIRECT: sample(cpu=None, p50=slow),
            Row.BARE: sample(cpu=100 * slow, p50=4 * slow, event_cpu=10 * slow),
            Row.SPONSON: sample(cpu=ratio * 100 * slow, p50=3 * slow, event_cpu=20 * slow),
            Row.ENVOY: sample(cpu=30 * slow, p50=2 * slow, event_cpu=5 * slow),
        }
        for slow, ratio in ((1.0, 0.4), (2.0, 0.6), (4.0, 0.9))
    ]


def test_ratios_are_taken_within_a_round() -> None:
    assert report.ratios(three_rounds(), report.busy_cpu) == pytest.approx([0.4, 0.6, 0.9])


def test_delay_added_is_taken_within_a_round() -> None:
    added = report.added(three_rounds(), Row.SPONSON, lambda one: one.requests[64].p50_ms)
    assert added == pytest.approx([2.0, 4.0, 8.0])


def test_targets_hold_or_not_by_the_median() -> None:
    failed = [target.name for target in report.targets(three_rounds()) if target.verdict != "holds"]
    assert len(failed) == 2
    assert "stream event" in failed[0]
    assert "first byte" in failed[1]


def test_memory_is_compared_by_what_the_load_adds() -> None:
    assert report.ratios(three_rounds(), report.crowded_mib) == [1.0, 1.0, 1.0]


def test_everything_measured_can_be_written_as_json() -> None:
    findings = Findings(absent={Row.BARE: "ended with code 2"})
    written = json.loads(json.dumps(as_json({"Python": "3"}, Measured(rounds=three_rounds(), findings=findings))))
    assert written["rounds"][2]["sponson"]["requests"]["64"]["cpu_us"] == pytest.approx(360.0)
    assert [target["verdict"] for target in written["targets"]].count("DOES NOT HOLD") == 2
    assert written["absent"] == {"bare": "ended with code 2"}


def test_target_without_figures_is_not_said_to_hold() -> None:
    only_bare = [{Row.BARE: sample(cpu=100.0, p50=1.0, event_cpu=10.0)}]
    assert {target.verdict for target in report.targets(only_bare)} == {"not measured"}


@pytest.mark.parametrize("rows", [[*OWN_ROWS, Row.ENVOY], [Row.DIRECT, Row.BARE], [Row.SPONSON], []])
def test_report_names_every_row_that_was_measured(rows: list[Row]) -> None:
    console = Console(width=150, file=StringIO())
    tables.print_report(console, [{row: one[row] for row in rows} for one in three_rounds()])
    text = cast(StringIO, console.file).getvalue()
    assert [row for row in Row if f"| {row.value}" in text] == rows


@pytest.mark.parametrize(("part", "expected"), [(0.0, 1.0), (0.5, 51.0), (0.99, 100.0), (1.0, 100.0)])
def test_percentile_of_a_hundred_numbers(part: float, expected: float) -> None:
    assert report.percentile([float(number) for number in range(100, 0, -1)], part) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's process clocks")
def test_process_is_pinned_and_its_cpu_time_and_memory_are_its_own(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    log = tmp_path / "log"
    code = "import os, time; sum(range(2_000_000)); print(*os.sched_getaffinity(0), flush=True); time.sleep(60)"
    with Process([sys.executable, "-c", code], core=core, log=log, env=clean_environment()) as process:
        assert process.read_port() == core
        assert 0.005 < process.cpu_seconds() < 5.0
        assert 2.0 < process.resident_mib() < 100.0


@pytest.mark.skipif(sys.platform != "linux", reason="pins processes")
def test_process_that_ends_early_is_reported_with_what_it_said(tmp_path: Path) -> None:
    code = "raise SystemExit('no such policy')"
    core = min(os.sched_getaffinity(0))
    with (
        Process([sys.executable, "-c", code], core=core, log=tmp_path / "log", env=clean_environment()) as process,
        pytest.raises(NotReady, match="no such policy"),
    ):
        process.wait_until(lambda: False)


@pytest.mark.skipif(sys.platform != "linux", reason="pins processes")
def test_pinning_ends_with_its_block() -> None:
    before = os.sched_getaffinity(0)
    with pinned(min(before)):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
