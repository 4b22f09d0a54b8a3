"""That the soak would see what is left behind, what rises, and what no caller may see."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.caller import Answer
from tests.integration.harness import ProxyProcess
from tests.soak.__main__ import main
from tests.soak.agents import Seen
from tests.soak.bench import INSIDE, at_work
from tests.soak.footprint import Footprint, Spy, footprint
from tests.soak.judge import (
    ENOUGH_SAMPLES,
    MORE_COLLECTED,
    MORE_MIB,
    MORE_NATIVE,
    judge_delay,
    judge_rest,
    judge_slopes,
)
from tests.soak.plan import Plan
from tests.soak.promises import Book, Promise
from tests.soak.slopes import Slope
from tests.soak.visits import Surprise, judge

REST = Footprint(mib=60.0, descriptors=30, tasks=4, downstream=0, upstream=0, blocks=1000, objects={"a.B": 10})
POLICY = {"version": 1, "providers": {"alpha": {"base_url": "http://127.0.0.1:9/v1"}}}


def breaches(before: Footprint, after: Footprint) -> list[Promise]:
    book = Book(lambda: 0.0)
    judge_rest(book, before, after)
    return list(book.breaches)


def test_who_is_as_before_has_kept_everything() -> None:
    assert breaches(REST, REST) == breaches(REST, replace(REST, mib=40.0, tasks=1)) == []


@pytest.mark.parametrize(
    ("after", "promise"),
    [
        (replace(REST, tasks=7), Promise.TASKS),
        (replace(REST, descriptors=33), Promise.DESCRIPTORS),
        (replace(REST, downstream=1), Promise.CONNECTIONS),
        (replace(REST, upstream=1), Promise.CONNECTIONS),
        (replace(REST, blocks=1100), Promise.OBJECTS),
        (replace(REST, collected=MORE_COLLECTED + 1), Promise.FREED),
        (replace(REST, mib=61.0 + MORE_MIB), Promise.MEMORY),
        (replace(REST, native=MORE_NATIVE + 0.1), Promise.MEMORY),
    ],
)
def test_what_is_left_behind_is_a_breach(after: Footprint, promise: Promise) -> None:
    assert breaches(REST, after) == [promise]


def test_more_memory_is_told_with_what_there_is_more_of() -> None:
    book = Book(lambda: 0.0)
    judge_rest(book, REST, replace(REST, mib=90.0, objects={"a.B": 510, "c.D": 101, "e.F": 3}))
    assert book.examples[Promise.MEMORY][0].endswith("there is more of: a.B +500, c.D +101")


@pytest.mark.parametrize(
    ("an_hour", "seconds", "broken"), [(0.0, 200, False), (3600.0, 200, True), (3600.0, 30, False)]
)
def test_what_rises_for_long_enough_is_a_breach(an_hour: float, seconds: int, broken: bool) -> None:
    line = Slope.through([(float(at), 50.0 + at * an_hour / 3600 + at % 2) for at in range(seconds)])
    assert line.an_hour == pytest.approx(an_hour, abs=20.0)
    assert line.rise == pytest.approx(line.an_hour * (seconds - 1) / 3600)
    assert (line.samples >= ENOUGH_SAMPLES) == (seconds == 200)
    book = Book(lambda: 0.0)
    judge_slopes(book, {"mixed": {"mib": line}})
    assert set(book.breaches) == ({Promise.MEMORY} if broken else set())


def test_a_line_through_nothing_is_flat() -> None:
    assert (Slope.through([]).an_hour, Slope.through([(1.0, 5.0)]).an_hour) == (0.0, 0.0)


@pytest.mark.parametrize(("promised", "broken"), [(None, False), (30.0, False), (10.0, True)])
def test_what_the_proxy_adds_is_what_others_do_not_wait(promised: float | None, broken: bool) -> None:
    book = Book(lambda: 0.0)
    agents = Seen(delays=[0.001] * 90 + [0.025] * 10)
    judge_delay(book, Plan(seconds=1.0, delay_ms=promised), agents, Seen(delays=[0.001] * 100))
    assert set(book.breaches) == ({Promise.DELAY} if broken else set())


def answer(status: int, body: bytes, *, complete: bool = True, kind: bytes = b"application/json") -> Answer:
    return Answer(status=status, body=body, complete=complete, headers=[(b"content-type", kind)])


EVENTS = b"text/event-stream; charset=utf-8"


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (answer(200, b"{}"), "whole"),
        (answer(200, b"{", complete=False), "broken off"),
        (answer(503, b'{"error": {}}'), "5xx"),
        (answer(200, b"data: {}\n\ndata: [DONE]\n\n", kind=EVENTS), "whole"),
        (answer(200, b'data: {"error": {}}\n\n', kind=EVENTS), "whole"),
        (answer(200, b"data: {}\n\n", kind=EVENTS, complete=False), "broken off"),
    ],
)
def test_what_is_whole_or_visibly_broken_is_good(seen: Answer, word: str) -> None:
    assert judge(seen) == word


@pytest.mark.parametrize(
    "seen",
    [
        Answer(),
        Answer(status=200, complete=True, body=b"{}", seconds=61.0),
        answer(502, b'{"sorry": true}'),
        answer(502, b"sorry"),
        answer(200, b"half"),
        answer(200, b"data: {}\n\n", kind=EVENTS),
    ],
    ids=[
        "none",
        "does not end",
        "says nothing",
        "no document",
        "no whole document",
        "a stream that ends as if it were whole",
    ],
)
def test_what_deceives_is_not(seen: Answer) -> None:
    with pytest.raises((Surprise, ValueError)):
        judge(seen)


async def test_the_spy_sees_tasks_connections_and_objects_of_a_real_proxy(tmp_path: Path) -> None:
    async with ProxyProcess(POLICY, flags=("--linger", "0s"), prefix=(*INSIDE, str(tmp_path / "spy"))) as proxy:
        spy = Spy(tmp_path / "spy")

        async def look(*, deep: bool = False) -> Footprint:
            return await footprint(proxy.process.pid, spy, port=proxy.port, servers=(), deep=deep)

        before = await look(deep=True)
        lines = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(5)]
        async with asyncio.timeout(20):
            while (during := await look()).descriptors < before.descriptors + 5:
                await asyncio.sleep(0.01)
        assert (before.downstream, during.downstream) == (0, 5)
        assert (before.tasks > 0, before.mib > 10, sum(before.objects.values()) > 1000) == (True, True, True)
        assert before.collected > 0, "what is imported leaves something to the collector"
        assert at_work(await proxy.status()) == []
        for _, writer in lines:
            writer.close()
        async with asyncio.timeout(20):
            while (await look()).downstream:
                await asyncio.sleep(0.01)
        await spy.close()
    assert proxy.process.returncode == 0


@pytest.mark.parametrize(
    ("table", "row", "told"),
    [
        ("permits", {"in_use": 1}, "1 permits"),
        ("queues", {"waiting": 2, "bytes": 0}, "2 waiters"),
        ("keys", {"in_use": 1}, "1 keys in use"),
        ("connections", {"in_use": 0, "idle": 3}, "3 idle connections"),
        ("breakers", {"probes_running": 1}, "1 probes"),
        ("tenants", {"in_flight": 4}, "4 tenants at work"),
    ],
)
def test_what_is_still_at_work_is_named(table: str, row: dict[str, int], told: str) -> None:
    rest: dict[str, list[object]] = {
        name: [] for name in ("permits", "queues", "keys", "connections", "breakers", "tenants")
    }
    counts = {"in_flight": 0, "permits_out": 0, "bodies": {"bytes": 0}, "idempotency": {"running": 0, "bytes": 0}}
    counts |= {"single_flight": {"running": 0}, "refreshes": {"running": 0}, "merging": {"waiting": 0}}
    assert at_work({**counts, **rest}) == []
    assert at_work({**counts, **rest, table: [row]}) == [told]


@pytest.mark.parametrize("reloads", [None, 5, 1000])
def test_a_plan_takes_as_long_as_it_says(reloads: int | None) -> None:
    plan = Plan(seconds=600.0, reloads=reloads)
    parts = [part(warm_up=warm_up) for part in (plan.mixed_seconds, plan.crowd_seconds) for warm_up in (True, False)]
    assert sum(parts) == pytest.approx(600.0)
    changes = [plan.changes(warm_up=warm_up) for warm_up in (True, False)]
    assert changes == {None: [None, None], 5: [2, 5], 1000: [100, 1000]}[reloads]


@pytest.mark.parametrize("seconds", [30.0, 600.0])
def test_as_many_streams_are_open_before_the_base_line_as_ever_will_be(seconds: float) -> None:
    plan = Plan(seconds=seconds)
    assert plan.crowd_seconds(warm_up=True) >= plan.profile.steady_seconds


def test_every_flag_of_the_command_is_of_the_plan() -> None:
    fields = {field.name: field.default for field in dataclasses.fields(Plan)}
    flags = main.make_context("soak", []).params
    assert flags.pop("seconds") == 600
    assert flags == {name: fields[name] for name in flags}
