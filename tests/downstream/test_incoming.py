"""Requests over a real socket: bodies, expectations, and framing that another reader might read differently."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.downstream.arrival import LINGER_SECONDS, Arrival
from proxy.downstream.incoming import framing_problem
from proxy.exchange import Exchange
from proxy.fields import fields_of
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.request import BodyProblem, BodyTooLarge
from tests.downstream.doubles import data_server, reading
from tests.downstream.visitor import LAST_ASK, read_answer, read_answers, talk, until, visiting
from tests.fakes import answered, whole_of

FORBIDDEN = b"GET /forbidden HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: x\r\n"
# Before a connection that waits for what its client still sends would end.
AT_ONCE = 0.9 * LINGER_SECONDS

AMBIGUOUS = {
    "length and chunked": POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"content-length: 0\r\ncontent-length: 43\r\n\r\n",
    "equal lengths": POST + b"content-length: 0\r\ncontent-length: 0\r\n\r\n",
    "list of lengths": POST + b"content-length: 5, 5\r\n\r\nhello",
    "signed length": POST + b"content-length: +5\r\n\r\nhello",
    "negative length": POST + b"content-length: -5\r\n\r\nhello",
    "hexadecimal length": POST + b"content-length: 0x5\r\n\r\nhello",
    "underscored length": POST + b"content-length: 1_0\r\n\r\n0123456789",
    "empty length": POST + b"content-length:\r\n\r\n",
    "huge length": POST + b"content-length: 99999999999999999999999\r\n\r\n",
    "unknown coding": POST + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"transfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked, identity": POST + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "chunked, gzip": POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, then identity": POST + b"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
    "vertical tab": POST + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "space before colon": POST + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "space before the name": POST + b" transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded coding": POST + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare CR in a value": POST + b"x: a\rcontent-length: 5\r\n\r\nhello",
    "bare LF": POST + b"x: a\ncontent-length: 5\r\n\r\nhello",
    "NUL in a value": POST + b"x: a\x00b\r\n\r\n",
    "HTTP/2.0": b"GET /p HTTP/2.0\r\nhost: x\r\n\r\n",
    "no host": b"GET /p HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /p HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    "a host that is a path": b"GET /p HTTP/1.1\r\nhost: x/y\r\n\r\n",
    "a host with a user": b"GET /p HTTP/1.0\r\nhost: me@x\r\n\r\n",
    "a length of too many digits": POST + b"content-length: %b5\r\n\r\nhello" % (b"0" * 5000),
    "trace": b"TRACE /p HTTP/1.1\r\nhost: x\r\n\r\n",
}
# What the parser lets through, so that it is judged here.
LET_THROUGH = {
    "gzip, chunked": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "comma, chunked": POST + b"transfer-encoding: ,chunked\r\n\r\n0\r\n\r\n",
    "coding in HTTP/1.0": POST.replace(b"1.1", b"1.0")
    + b"connection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "absolute form": b"GET http://other.test/p HTTP/1.1\r\nhost: x\r\n\r\n",
    "asterisk form": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "connect": b"CONNECT other.test:443 HTTP/1.1\r\nhost: other.test:443\r\n\r\n",
}
BAD_CHUNKS = {
    "hexadecimal mark": b"0x5\r\nhello\r\n0\r\n\r\n",
    "signed size": b"+5\r\nhello\r\n0\r\n\r\n",
    "no size": b"\r\nhello\r\n0\r\n\r\n",
    "junk size": b"zz\r\nhello\r\n0\r\n\r\n",
    "LF in an extension": b"5;a\nb\r\nhello\r\n0\r\n\r\n",
    "LF after a size": b"5\nhello\r\n0\r\n\r\n",
    "overrun": b"3\r\nhello\r\n0\r\n\r\n",
    "malformed trailer": b"0\r\nx : y\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_ambiguous_framing_is_refused_and_nothing_that_follows_it_is_served(name: str) -> None:
    async with data_server(reading) as running:
        answers = read_answers(await talk(running.port, AMBIGUOUS[name] + FORBIDDEN))
        assert [answer.status for answer in answers] == [400]
        assert (answers[0].get("x-sponson-reason"), answers[0].get("connection")) == (b"bad_request", b"close")
        # Who counts status lines in what comes back must count one.
        assert b"HTTP/" not in answers[0].body
        assert running.front.targets == []


@pytest.mark.parametrize("name", LET_THROUGH)
async def test_framing_that_the_parser_lets_through_is_refused_with_its_reason(name: str) -> None:
    async with data_server(reading) as running, visiting(running.port) as visitor:
        await visitor.send(LET_THROUGH[name])
        answer = await visitor.answer()
        assert (answer.status, answer.get("x-sponson-reason")) == (400, b"bad_request")
        outcome = running.front.refused[0][1]
        assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.BAD_REQUEST)
        assert any(word in outcome.detail for word in ("chunked", "path"))
        assert running.front.targets == []


@pytest.mark.parametrize("name", LET_THROUGH)
async def test_framing_that_the_parser_lets_through_ends_its_connection(name: str) -> None:
    async with data_server(reading) as running:
        async with asyncio.timeout(AT_ONCE):
            answers = read_answers(await talk(running.port, LET_THROUGH[name] + FORBIDDEN))
        assert [answer.status for answer in answers] == [400]
        assert answers[0].get("connection") == b"close"
        assert running.front.targets == []


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_a_malformed_chunk_is_refused_and_nothing_that_follows_it_is_served(name: str) -> None:
    data = POST + b"transfer-encoding: chunked\r\n\r\n" + BAD_CHUNKS[name]
    async with data_server(reading) as running:
        answers = read_answers(await talk(running.port, data + FORBIDDEN))
        assert [answer.status for answer in answers] == [400]
        assert running.front.targets == []


async def refusing_bad_bodies(exchange: Exchange) -> Outcome:
    """What the classification stage does with a body that cannot be read."""
    try:
        return await reading(exchange)
    except BodyProblem:
        exchange.reply.start(400, b"Bad Request", b"", length=0, body=b"")
        return Outcome(OutcomeKind.CALLER_ERROR)


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_a_malformed_chunk_that_comes_later_is_refused_too(name: str) -> None:
    async with data_server(refusing_bad_bodies) as running, visiting(running.port) as visitor:
        await visitor.send(POST + b"transfer-encoding: chunked\r\n\r\n2\r\nhe\r\n")
        await until(lambda: running.front.targets == ["/p"])
        await visitor.send(BAD_CHUNKS[name] + FORBIDDEN)
        async with asyncio.timeout(AT_ONCE):
            answer, rest = read_answer(await visitor.rest())
        assert (answer.status, rest, running.front.targets) == (400, b"", ["/p"])


@pytest.mark.parametrize("coding", [b"chunked", b"Chunked"])
async def test_chunks_are_spoken_in_every_spelling_of_the_word(coding: bytes) -> None:
    data = POST + b"transfer-encoding: " + coding + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + LAST_ASK
    async with data_server(reading) as running:
        first, second = read_answers(await talk(running.port, data))
        assert (first.body, second.get("x-target")) == (b"hello", b"/last")


@pytest.mark.parametrize(
    "head",
    [b"GET /p HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", b"GET /p HTTP/1.0\r\n\r\n"],
    ids=["1.1", "1.0 without a host"],
)
async def test_a_clear_request_is_served(head: bytes) -> None:
    async with data_server(reading) as running:
        assert read_answer(await talk(running.port, head))[0].get("x-target") == b"/p"


async def test_the_request_is_what_the_wire_gave() -> None:
    head = b"POST //a%2F/../b?x=%zz&y HTTP/1.1\r\nHOST: x\r\nX-Tag: a\r\nx-tag: \xe9\r\nconnection: close\r\n\r\n"
    async with data_server(reading) as running:
        await talk(running.port, head)
        request = running.front.called[0].request
        assert (request.method, request.version, request.upload, request.body) == ("POST", (1, 1), None, b"")
        assert (request.target, request.path, request.query) == ("//a%2F/../b?x=%zz&y", "//a%2F/../b", "?x=%zz&y")
        assert list(request.headers)[1:3] == [(b"X-Tag", b"a"), (b"x-tag", b"\xe9")]
        assert request.fields["x-TAG"] == "a"


async def piecewise(exchange: Exchange) -> Outcome:
    upload = exchange.request.upload
    pieces = [exchange.request.body or b""]
    while upload is not None and (piece := await upload.read()):
        pieces.append(piece)
    exchange.reply.start(200, b"OK", b"", length=None)
    length = upload.length if upload is not None and upload.length is not None else -1
    exchange.reply.write(b"%d:" % length + b"".join(pieces))
    exchange.reply.finish()
    return answered()


@pytest.mark.parametrize(
    ("head", "parts", "length"),
    [
        (b"content-length: 5\r\n\r\n", [b"he", b"llo"], 5),
        (b"transfer-encoding: chunked\r\n\r\n", [b"2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n\r\n"], -1),
    ],
)
async def test_a_body_can_be_read_piece_by_piece(head: bytes, parts: list[bytes], length: int) -> None:
    async with data_server(piecewise) as running, visiting(running.port) as visitor:
        await visitor.send(POST + b"connection: close\r\n" + head + parts[0])
        await until(lambda: running.front.targets == ["/p"])
        await visitor.send(parts[1])
        assert read_answer(await visitor.rest())[0].body == b"%d:hello" % length


async def test_a_body_that_has_arrived_whole_is_there_at_once() -> None:
    async with data_server(reading) as running:
        await talk(running.port, POST + b"connection: close\r\ncontent-length: 5\r\n\r\nhello")
        request = running.front.called[0].request
        assert (request.body, request.upload) == (b"hello", None)


@pytest.mark.parametrize("whole", [True, False])
async def test_a_body_over_its_limit_is_not_read_to_its_end(whole: bool) -> None:
    async def pipeline(exchange: Exchange) -> Outcome:
        upload = exchange.request.upload
        assert upload is not None
        upload.limit = 7
        try:
            if whole:
                await whole_of(upload)
            while await upload.read():
                pass
        except BodyTooLarge:
            exchange.reply.start(413, b"Content Too Large", b"", length=0, body=b"")
        return answered()

    async with data_server(pipeline) as running, visiting(running.port) as visitor:
        head = POST + b"content-length: 10\r\n\r\n"
        await visitor.send(head + b"01234")
        await until(lambda: running.front.targets == ["/p"])
        await visitor.send(b"56789")
        assert (await visitor.answer()).status == 413


EXPECTING = POST + b"expect: 100-continue\r\ncontent-length: 5\r\nconnection: close\r\n\r\n"
PROCEED = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    "line", [b"100-continue", b"x=y;z, 100-Continue", b"\t100-CONTINUE ,", b"x\r\nexpect: 100-continue"]
)
async def test_an_expectation_is_answered_when_the_body_is_wanted_and_once(line: bytes) -> None:
    async with data_server(piecewise) as running, visiting(running.port) as visitor:
        await visitor.send(EXPECTING.replace(b"100-continue", line))
        assert await visitor.until(b"\r\n\r\n") == PROCEED
        await visitor.send(b"he")
        await asyncio.sleep(0.01)
        await visitor.send(b"llo")
        assert read_answer(await visitor.rest())[0].body == b"5:hello"


async def test_an_expectation_is_not_answered_by_a_refusal() -> None:
    async def pipeline(exchange: Exchange) -> Outcome:
        exchange.reply.start(413, b"Content Too Large", b"", length=0, body=b"")
        return answered()

    async with data_server(pipeline) as running, visiting(running.port) as visitor:
        await visitor.send(EXPECTING)
        answer = await visitor.answer()
        assert (answer.status, answer.get("connection")) == (413, b"close")


@pytest.mark.parametrize(
    "data",
    [
        EXPECTING + b"hello",
        EXPECTING.replace(b"HTTP/1.1", b"HTTP/1.0") + b"hello",
        EXPECTING.replace(b"100-continue", b"something") + b"hello",
    ],
    ids=["body came already", "1.0", "unknown"],
)
async def test_who_does_not_wait_is_not_told_to_go_on(data: bytes) -> None:
    async with data_server(piecewise) as running:
        assert (await talk(running.port, data)).startswith(b"HTTP/1.1 200")


async def test_a_body_that_is_cut_by_a_client_that_leaves_ends_its_exchange() -> None:
    async with data_server(reading) as running, visiting(running.port) as visitor:
        await visitor.send(POST + b"content-length: 10\r\n\r\npart")
        await until(lambda: running.server.in_flight == 1)
        visitor.leave()
        await until(lambda: running.server.in_flight == 0)


@pytest.mark.parametrize("length", ["+5", "5, 5", "0x5", "\u0665", "5 5", ""])
def test_a_length_that_the_parser_let_through_is_looked_at_again(length: str) -> None:
    fields = fields_of([(b"host", b"x"), (b"content-length", length.encode())])
    arrival = SimpleNamespace(version=(1, 1), fields=fields, method="POST", target="/p")
    assert "Content-Length" in (framing_problem(cast(Arrival, arrival)) or "")
