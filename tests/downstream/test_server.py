"""The data listener over real sockets: one exchange a request, and nothing on the wire after its answer."""

from __future__ import annotations

import asyncio
import json
import logging
import socket

import pytest

from proxy.exchange import CancelCause, Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason
from tests.downstream.doubles import data_server, hanging, reading
from tests.downstream.visitor import ASK, LAST_ASK, read_answer, read_answers, talk, until, visiting
from tests.fakes import answered

SECRET = "sk-live-0123456789abcdef"


async def test_a_request_becomes_an_exchange_with_its_facts() -> None:
    async with data_server(reading) as running:
        before = running.server.last_arrival
        await talk(running.port, LAST_ASK)
        facts = running.front.called[0].facts
        assert facts.arrived_at == running.server.last_arrival > before
        assert facts.arrived_ns > 0
        assert facts.status == 200
        assert facts.trace is not None
        assert (facts.trace.remote, facts.trace.sampled) == (False, False)


async def test_every_request_has_an_id_of_its_own() -> None:
    async with data_server(reading) as running:
        answers = read_answers(await talk(running.port, ASK * 3 + LAST_ASK))
        ids = [answer.get("x-sponson-request-id") for answer in answers]
        assert len(set(ids)) == 4
        assert [exchange.facts.request_id.encode() for exchange in running.front.called] == ids


async def test_more_requests_in_a_row_than_the_library_queues_are_answered_in_order() -> None:
    asks = b"".join(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(100))
    async with data_server(reading) as running:
        answers = read_answers(await talk(running.port, asks + LAST_ASK))
        assert [answer.get("x-target") for answer in answers[:-1]] == [b"/%d" % number for number in range(100)]


@pytest.mark.parametrize("lines", [b"tracestate: a=1\r\ntracestate: b=2\r\n", b"TraceState: a=1,b=2\r\n"])
async def test_a_caller_s_trace_is_joined(lines: bytes) -> None:
    parent = b"TraceParent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"
    async with data_server(reading) as running:
        await talk(running.port, LAST_ASK[:-2] + parent + lines + b"\r\n")
        trace = running.front.called[0].facts.trace
        assert trace is not None
        assert (trace.trace_id, trace.parent_span_id) == (0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
        assert (trace.remote, trace.sampled, trace.tracestate) == (True, True, "a=1,b=2")


@pytest.mark.parametrize("value", [b"\xff\xfe", b"00-zz", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01"])
async def test_a_trace_that_cannot_be_read_is_begun_anew(value: bytes) -> None:
    async with data_server(reading) as running:
        lines = b"traceparent: " + value + b"\r\ntracestate: \xff\r\n\r\n"
        assert read_answer(await talk(running.port, LAST_ASK[:-2] + lines))[0].status == 200
        trace = running.front.called[0].facts.trace
        assert trace is not None
        assert (trace.remote, trace.parent_span_id, trace.tracestate) == (False, 0, "")


async def test_own_paths_reach_no_provider() -> None:
    async with data_server(reading) as running:
        ask = b"GET /sponson/jobs/1 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        answer, _ = read_answer(await talk(running.port, ask))
        assert (answer.status, answer.get("x-sponson-reason")) == (404, b"no_route")
        assert running.front.targets == []


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_both_loopback_families_are_answered(host: str) -> None:
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    async with data_server(reading) as running:
        reader, writer = await asyncio.open_connection(host, running.port)
        writer.write(LAST_ASK)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_what_is_in_flight_is_known() -> None:
    async with data_server(hanging) as running, visiting(running.port) as one, visiting(running.port) as two:
        await one.send(ASK)
        await until(lambda: running.server.in_flight == 1)
        await two.send(ASK)
        await until(lambda: running.server.in_flight == 2)
        one.leave()
        await until(lambda: running.server.in_flight == 1)
        assert running.front.called[0].cancel_cause is CancelCause.CLIENT_LEFT


async def test_a_client_that_leaves_a_request_behind_another_one_is_not_answered() -> None:
    go_on = asyncio.Event()

    async def pipeline(exchange: Exchange) -> Outcome:
        await go_on.wait()
        return await reading(exchange)

    async with data_server(pipeline) as running, visiting(running.port) as visitor:
        await visitor.send(ASK + LAST_ASK)
        await until(lambda: running.server.in_flight == 1)
        visitor.reset()
        await until(lambda: running.server.in_flight == 0)
        go_on.set()
        await asyncio.sleep(0.01)
        assert running.front.targets == ["/"]


async def test_while_draining_every_answer_ends_its_connection() -> None:
    async with data_server(reading) as running, visiting(running.port) as visitor:
        await visitor.send(ASK)
        assert (await visitor.answer()).get("connection") is None
        running.server.draining = True
        await visitor.send(ASK)
        assert (await visitor.answer()).get("connection") == b"close"
        assert await visitor.rest() == b""


async def test_near_the_end_of_a_drain_new_calls_are_refused() -> None:
    async with data_server(reading) as running:
        running.server.refusing = running.server.draining = True
        answer, _ = read_answer(await talk(running.port, ASK))
        assert (answer.status, answer.get("x-sponson-reason")) == (503, b"shutting_down")
        assert (answer.get("retry-after"), answer.get("connection")) == (b"1", b"close")
        assert running.front.targets == []


async def test_after_it_has_stopped_to_listen_idle_connections_close_and_live_ones_are_answered() -> None:
    go_on = asyncio.Event()

    async def pipeline(exchange: Exchange) -> Outcome:
        if exchange.request.path == "/slow":
            await go_on.wait()
        return await reading(exchange)

    async with data_server(pipeline) as running, visiting(running.port) as idle, visiting(running.port) as busy:
        await idle.send(ASK)
        await idle.answer()
        await busy.send(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: running.server.in_flight == 1)
        running.server.stop_listening()
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", running.port)
        go_on.set()
        assert (await busy.answer()).get("connection") == b"close"
        assert await busy.rest() == b""


async def test_cancelling_all_names_the_cause_and_ends_the_connections() -> None:
    async with data_server(hanging) as running, visiting(running.port) as visitor:
        await visitor.send(ASK)
        await until(lambda: running.server.in_flight == 1)
        running.server.cancel_all(CancelCause.DRAIN)
        assert await visitor.rest() == b""
        assert running.front.called[0].cancel_cause is CancelCause.DRAIN
        assert running.server.in_flight == 0


async def failing(exchange: Exchange) -> Outcome:
    """A bug behind the pipeline's own last resort."""
    if exchange.request.path == "/begun":
        exchange.reply.start(200, b"OK", b"", length=None)
        exchange.reply.write(b"part")
    raise ZeroDivisionError


@pytest.mark.parametrize("path", [b"/begun", b"/nothing"])
async def test_a_bug_ends_the_connection_and_writes_nothing_after_what_is_on_the_wire(
    path: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    ask = b"GET %b HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n\r\n" % (path, SECRET.encode())
    async with data_server(failing) as running:
        data = await talk(running.port, ask + ASK)
        assert running.front.targets == [path.decode()]
        assert "met a bug" in caplog.text
        assert SECRET not in caplog.text
    if path == b"/nothing":
        assert data == b""
    else:
        answer, rest = read_answer(data)
        assert (answer.body, answer.whole, rest) == (b"part", False, b"")


async def test_an_exchange_that_nobody_answered_ends_its_connection() -> None:
    async def silent(exchange: Exchange) -> Outcome:
        return answered()

    async with data_server(silent) as running:
        assert await talk(running.port, ASK + ASK) == b""
        assert running.front.targets == ["/"]


async def test_an_early_answer_to_an_upload_ends_its_connection_after_its_body() -> None:
    async def early(exchange: Exchange) -> Outcome:
        exchange.reply.start(413, b"Content Too Large", b"", length=3, body=b"big")
        return Outcome(OutcomeKind.REFUSED, reason=Reason.BODY_TOO_LARGE)

    async with data_server(early) as running:
        size = 20 << 20
        ask = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size
        answer, rest = read_answer(await talk(running.port, ask + bytes(size) + ASK))
        assert (answer.status, answer.body, answer.get("connection"), rest) == (413, b"big", b"close", b"")
        assert running.front.targets == ["/"]


MALFORMED = b" HTTP/1.1\r\nhost: x\r\nAuthorization : " + SECRET.encode() + b"\r\n\r\n"


@pytest.mark.parametrize(("line", "kind"), [(b"GET /v1/messages", "error"), (b"GET /v1/models", None)])
async def test_what_is_no_request_is_refused_under_an_id_of_its_own_in_its_dialect(
    line: bytes, kind: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with data_server(reading) as running:
        data = await talk(running.port, line + MALFORMED + ASK)
        answer, rest = read_answer(data)
        ((exchange, outcome),) = running.front.refused
        assert (answer.status, answer.get("x-sponson-reason")) == (400, b"bad_request")
        assert answer.get("connection") == b"close"
        assert (answer.get("x-sponson-request-id"), rest) == (exchange.facts.request_id.encode(), b"")
        assert json.loads(answer.body).get("type") == kind
        assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.BAD_REQUEST)
        assert (exchange.request.path.encode(), list(exchange.request.headers)) == (line[4:], [])
        assert running.front.called == []
        assert SECRET not in caplog.text + data.decode()


async def test_what_is_no_request_is_called_so_even_near_the_end_of_a_drain() -> None:
    async with data_server(reading) as running:
        running.server.refusing = running.server.draining = True
        assert read_answer(await talk(running.port, b"GET /" + MALFORMED))[0].status == 400
