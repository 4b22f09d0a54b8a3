"""The overload experiment's own tools tell the truth; how Sponson does in it, is not tested here."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from io import StringIO
from itertools import pairwise
from random import Random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.bench import traffic
from tests.bench.load import LoadPlan, drive
from tests.bench.overload.application import Application, Call, Ending, Patience
from tests.bench.overload.arrivals import Arrivals
from tests.bench.overload.model import Model, ModelConnection, lognormal_seconds
from tests.bench.overload.results import Result, Told, Verdict, Way, result, verdicts
from tests.bench.overload.tables import print_overload
from tests.bench.report import percentile

LIMIT_SECONDS = 30.0
HASTY = Patience(attempt_seconds=LIMIT_SECONDS, back_off_seconds=0.001)
TOLD = Told(longest_queue=0, left=0, late_seconds=0.001, model_late_seconds=0.001)


class Waiter:
    """A caller of the model that remembers whether it was served."""

    def __init__(self) -> None:
        self.gone = False
        self.served = False

    def serve(self, seconds: float) -> None:
        self.served = True


class Scripted(asyncio.Protocol):
    """Answers every request of a connection with the same bytes, or not at all."""

    def __init__(self, answer: bytes, counts: deque[bytes]) -> None:
        self._answer = answer
        self._requests = counts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._requests.append(data)
        if self._answer:
            self._transport.write(self._answer)


@asynccontextmanager
async def serving(protocol: Callable[[], asyncio.Protocol]) -> AsyncIterator[int]:
    """A server on a port of its own."""
    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def ended(call: Call) -> Ending:
    """Wait for the end of a call."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while call.ending is None:
            await asyncio.sleep(0.001)
    return call.ending


async def ending_of_one_call(answer: bytes, *, patience: Patience = HASTY) -> tuple[Ending, int]:
    """How a call ends when the server says this, and how often it was asked."""
    requests: deque[bytes] = deque()
    async with serving(partial(Scripted, answer, requests)) as port:
        application = Application(port, random=Random(1), patience=patience)
        application.begin(asyncio.get_running_loop().time())
        ending = await ended(application.calls[0])
        application.close()
    return ending, len(requests)


def answer(status: int = 200, *, fields: bytes = b"", body: bytes = b"{}") -> bytes:
    return b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s" % (status, fields, len(body), body)


@given(st.lists(st.sampled_from(["arrive", "end", "leave"]), max_size=60), st.integers(1, 4))
def test_model_serves_in_order_as_many_as_it_has_slots(steps: list[str], slots: int) -> None:
    model = Model(slots=slots, service_seconds=lambda: 1.0)
    waiting: list[Waiter] = []
    running: list[Waiter] = []
    for step in steps:
        if step == "arrive":
            waiting.append(Waiter())
            model.arrive(waiting[-1])
        elif step == "end" and running:
            running.pop()
            model.end(0.0)
        elif step == "leave" and waiting:
            waiting[-1].gone = True
            waiting.pop()
            model.leave(running=False)
        turned = [one for one in waiting if one.served]
        assert turned == waiting[: len(turned)]
        waiting = waiting[len(turned) :]
        running += turned
        assert len(running) <= slots
        assert len(running) == slots or not waiting


def test_slot_of_a_caller_that_left_goes_to_the_next() -> None:
    model = Model(slots=1, service_seconds=lambda: 1.0)
    first, second = Waiter(), Waiter()
    model.arrive(first)
    model.arrive(second)
    model.leave(running=True)
    assert second.served
    told = model.statistics()
    assert (told.left_while_running, told.left_while_waiting, told.longest_queue) == (1, 0, 1)


async def test_model_answers_every_caller_with_its_own_answer() -> None:
    model = Model(slots=2, service_seconds=lambda: 0.001)
    async with serving(partial(ModelConnection, model)) as port:
        load = await drive(LoadPlan(port=port, connections=6, seconds=0.2, warm_up_seconds=0.0))
    assert load.problems == []
    assert model.statistics().answered >= load.answers > 0
    assert model.statistics().longest_queue == 4


async def test_model_tells_its_figures_over_http() -> None:
    async with serving(partial(ModelConnection, Model(slots=1, service_seconds=lambda: 0.0))) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(traffic.field(head.lower(), b"content-length") or 0))
        writer.close()
        await writer.wait_closed()
    assert json.loads(body)["answered"] == 0


def test_service_times_have_the_mean_and_the_tail_they_claim() -> None:
    seconds = lognormal_seconds(0.8, Random(1))
    drawn = [seconds() for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(0.8, rel=0.02)
    assert percentile(drawn, 0.99) == pytest.approx(1.52, rel=0.05)


async def test_arrivals_are_due_when_the_seed_says_however_late_they_begin() -> None:
    dues: list[float] = []
    enough = asyncio.Event()

    def begin(due: float) -> None:
        dues.append(due)
        if len(dues) == 50:
            enough.set()

    arrivals = Arrivals(begin, per_second=5000.0, random=Random(3))
    arrivals.start()
    async with asyncio.timeout(LIMIT_SECONDS):
        await enough.wait()
    arrivals.stop()
    same = Random(3)
    same.expovariate(5000.0)
    gaps = [later - earlier for earlier, later in pairwise(dues)]
    assert gaps == pytest.approx([same.expovariate(5000.0) for _ in gaps], abs=1e-6)
    assert len(arrivals.late) == len(dues)
    assert min(arrivals.late) >= 0


@pytest.mark.parametrize(
    ("said", "expected", "asked"),
    [
        (traffic.answer(traffic.mark_of(0)), Ending.MODEL, 1),
        (traffic.answer(traffic.mark_of(1)), Ending.BROKEN, 1),
        (answer(fields=b"x-sponson-tier: 3\r\n"), Ending.STATIC, 1),
        (answer(fields=b"x-sponson-tier: 2\r\n", body=traffic.answer_body(traffic.mark_of(0))), Ending.SMALL, 1),
        (answer(429), Ending.REFUSED, 3),
        (answer(503, fields=b"x-should-retry: false\r\n"), Ending.REFUSED, 1),
        (answer(400), Ending.REFUSED, 1),
        (answer(fields=b"x-sponson-trail: tier=1;reason=answer_timeout\r\n"), Ending.TIMED_OUT, 1),
    ],
)
async def test_call_ends_as_the_answer_says(said: bytes, expected: Ending, asked: int) -> None:
    assert await ending_of_one_call(said) == (expected, asked)


async def test_attempt_without_an_answer_is_given_up_and_tried_again() -> None:
    patience = Patience(attempt_seconds=0.01, back_off_seconds=0.001)
    assert await ending_of_one_call(b"", patience=patience) == (Ending.TIMED_OUT, 3)


async def test_call_that_nobody_takes_is_broken() -> None:
    async with serving(asyncio.Protocol) as port:
        pass
    application = Application(port, random=Random(1), patience=HASTY)
    application.begin(0.0)
    assert await ended(application.calls[0]) is Ending.BROKEN
    assert application.calls[0].attempts == 3


async def test_call_without_an_end_counts_as_timed_out_when_all_is_dropped() -> None:
    async with serving(partial(Scripted, b"", deque())) as port:
        application = Application(port, random=Random(1))
        application.begin(0.0)
        application.close()
    assert application.calls[0].ending is Ending.TIMED_OUT


def call(ending: Ending, seconds: float) -> Call:
    return Call(due=100.0, request=b"", mark=b"", ending=ending, ended_at=100.0 + seconds)


def test_delays_are_those_of_calls_that_the_model_was_given() -> None:
    calls = [
        call(Ending.MODEL, 1.0),
        call(Ending.TIMED_OUT, 3.0),
        call(Ending.STATIC, 50.0),
        call(Ending.REFUSED, 60.0),
    ]
    one = result(Way.PROTECTED, calls, TOLD, load=1.0, seconds=2.0, cut_at=200.0)
    assert (one.p50_seconds, one.p99_seconds, one.censored) == (3.0, 3.0, False)
    assert (one.calls, one.admitted, one.timed_out_part) == (4, 2, 0.5)
    assert one.per_second(Ending.STATIC) == 0.5


def test_delay_of_a_call_that_was_cut_off_is_a_lower_bound() -> None:
    calls = [call(Ending.MODEL, 1.0), call(Ending.TIMED_OUT, 10.0)]
    assert result(Way.UNPROTECTED, calls, TOLD, load=1.5, seconds=1.0, cut_at=110.0).censored


def healthy(way: Way = Way.PROTECTED, load: float = 1.5) -> Result:
    return result(way, [call(Ending.MODEL, 1.0)] * 100, TOLD, load=load, seconds=1.0, cut_at=900.0)


def failing(told: list[Verdict]) -> list[str]:
    return [verdict.name for verdict in told if not verdict.holds]


def test_verdicts_of_a_run_as_promised_all_hold() -> None:
    collapsed = replace(healthy(Way.UNPROTECTED), p99_seconds=20.0, endings={Ending.TIMED_OUT: 100})
    told = verdicts([healthy(), collapsed, healthy(Way.UNPROTECTED, load=0.5)])
    assert len(told) == 5
    assert failing(told) == []


@pytest.mark.parametrize(
    ("worse", "name"),
    [
        (replace(healthy(), p99_seconds=2.0), "P99 of what"),
        (replace(healthy(), endings={Ending.MODEL: 999, Ending.TIMED_OUT: 1}), "timeouts"),
        (replace(healthy(), endings={Ending.STATIC: 100}), "timeouts"),
        (replace(healthy(), longest_queue=1), "longest queue"),
        (replace(healthy(), endings={Ending.MODEL: 99, Ending.BROKEN: 1}), "broken"),
        (replace(healthy(), late_seconds=0.2), "kept up"),
        (healthy(Way.UNPROTECTED), "collapses"),
    ],
)
def test_verdict_names_what_was_not_kept(worse: Result, name: str) -> None:
    told = failing(verdicts([worse]))
    assert len(told) == 1
    assert name in told[0]


def test_no_run_has_no_verdict() -> None:
    assert verdicts([]) == []


def test_tables_name_both_ways_and_the_figures_can_be_json() -> None:
    console = Console(width=170, file=StringIO())
    results = [healthy(), healthy(Way.UNPROTECTED)]
    print_overload(console, results)
    text = cast(StringIO, console.file).getvalue()
    assert "1.5 × straight to the model" in text
    assert "1.5 × through sponson" in text
    assert json.loads(json.dumps([asdict(one) for one in results]))[0]["endings"] == {"model": 100}
