"""A tunnel, cut anywhere; whom it asks for a sign of life, and when; and what it says of its provider."""

from __future__ import annotations

import asyncio
import json

import pytest

from proxy.exchange import Exchange, Usage
from proxy.outcome import OutcomeKind
from proxy.upstream.call import Call
from proxy.upstream.side import Side
from proxy.upstream.tunnel import Tunnel
from proxy.upstream.wire import UpstreamConnection
from proxy.websocket.frames import Frames
from tests.freed import freed, uncollected
from tests.upstream.laid import AGREED, IDLE, MASK, STREAM, End, laid
from tests.websocket.encoding import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, closing, encoded, frames_of


def conversation(mask: bytes | None) -> bytes:
    """Frames of every kind, and a close."""
    return b"".join(
        [
            encoded(TEXT, b"he", final=False, mask=mask),
            encoded(PING, b"?", mask=mask),
            encoded(CONTINUATION, b"llo", mask=mask),
            encoded(BINARY, b"", mask=mask),
            encoded(TEXT, b"w" * 126, mask=mask, packed=True),
            encoded(PONG, b"", mask=mask),
            encoded(CLOSE, closing(4002, "bye"), mask=mask),
        ]
    )


WHOLE = AGREED + conversation(None)


@pytest.mark.parametrize("begin", range(10))
async def test_a_conversation_may_be_cut_anywhere(begin: int) -> None:
    said = conversation(MASK)
    for at in range(begin, len(WHOLE), 10):
        async with laid(first=WHOLE[:at] or WHOLE, second=WHOLE[at:] if at else b"") as tunnel:
            cut = at % len(said)
            await tunnel.client.write(said[:cut])
            if at % 3 == 0:
                await asyncio.sleep(0.001)
            await tunnel.client.write(said[cut:])
            outcome = await asyncio.gather(*(until_close(end) for end in (tunnel.client, tunnel.provider)))
            assert outcome == [conversation(None), said]
            tunnel.provider.leave()
            assert (await tunnel.outcome()).kind is OutcomeKind.OK


async def until_close(end: End) -> bytes:
    """Returns the bytes to the end of the close frame."""
    found = b""
    while True:
        one = await end.frame()
        mask = MASK if one.masked else None
        found += encoded(one.opcode, one.payload, final=one.final, packed=one.packed, mask=mask)
        if one.opcode == CLOSE:
            return found


async def test_silence_is_asked_about_once_and_no_sign_of_life_ends_it() -> None:
    async with laid() as tunnel:
        await tunnel.nothing_more()
        tunnel.clock.advance(IDLE)
        asked = await tunnel.client.frame()
        assert asked.opcode == PING
        assert await tunnel.provider.frame() == Frame(PING, asked.payload, masked=True)
        await tunnel.nothing_more()
        await tunnel.client.send(PONG, asked.payload)
        await tunnel.nothing_more()
        tunnel.clock.advance(IDLE)
        assert (await tunnel.client.frame()).opcode == PING
        assert await tunnel.client.frame() == Frame(CLOSE, closing(1014, "the provider neither reads nor answers"))
        assert (await tunnel.outcome()).kind is OutcomeKind.IDLE_TIMEOUT


async def test_whatever_comes_is_a_sign_of_life() -> None:
    async with laid() as tunnel:
        for _ in range(4):
            tunnel.clock.advance(IDLE / 2)
            await tunnel.provider.send(PONG, b"unasked")
            await tunnel.client.write(encoded(TEXT, b"x", mask=MASK))
            assert (await tunnel.client.frame()).payload == b"unasked"
            assert (await tunnel.provider.frame()).payload == b"x"
        await tunnel.nothing_more()


async def test_nobody_is_asked_in_the_middle_of_a_frame() -> None:
    async with laid() as tunnel:
        data = encoded(TEXT, b"slowly")
        await tunnel.provider.write(data[:4])
        await tunnel.client.send(TEXT, b"go on")
        await tunnel.provider.frame()
        tunnel.clock.advance(IDLE)
        ping = await tunnel.provider.frame()
        await tunnel.provider.write(data[4:])
        # Between two frames the client can be asked, too.
        assert await tunnel.client.frame() == Frame(TEXT, b"slowly")
        asked = await tunnel.client.frame()
        assert (asked.opcode, asked.payload) == (PING, ping.payload)


async def test_between_the_parts_of_a_message_somebody_can_be_asked() -> None:
    async with laid() as tunnel:
        await tunnel.provider.write(encoded(TEXT, b"be", final=False))
        assert (await tunnel.client.frame()).payload == b"be"
        tunnel.clock.advance(IDLE)
        assert (await tunnel.client.frame()).opcode == PING


async def test_the_longest_time_counts_from_the_connection() -> None:
    async with laid() as tunnel:
        for _ in range(3):
            tunnel.clock.advance(STREAM / 4)
            await tunnel.client.send(TEXT, b"x")
            await tunnel.provider.send(TEXT, b"y")
            while (await tunnel.provider.frame()).opcode != TEXT:
                pass
            while (await tunnel.client.frame()).opcode != TEXT:
                pass
        tunnel.clock.advance(STREAM / 4)
        assert (await tunnel.provider.frame()).payload == closing(1001)
        tunnel.provider.leave()
        outcome = await tunnel.outcome()
        assert (outcome.kind, outcome.committed) == (OutcomeKind.STREAM_TIMEOUT, True)


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 1012, 1013, 1014, 4000, None])
async def test_a_providers_close_says_how_it_went(code: int | None) -> None:
    async with laid() as tunnel:
        await tunnel.provider.send(CLOSE, closing(code))
        assert (await tunnel.client.frame()).payload == closing(code)
        tunnel.provider.leave()
        kind = (await tunnel.outcome()).kind
        assert kind is (OutcomeKind.ERROR_IN_ANSWER if code in range(1011, 1015) else OutcomeKind.OK)


async def test_a_code_of_failure_that_a_provider_repeats_is_the_clients() -> None:
    async with laid() as tunnel:
        await tunnel.client.send(CLOSE, closing(1011, "no pong came"))
        await tunnel.provider.frame()
        await tunnel.provider.send(CLOSE, closing(1011, "no pong came"))
        assert (await tunnel.client.frame()).payload == closing(1011, "no pong came")
        tunnel.provider.leave()
        assert (await tunnel.outcome()).kind is OutcomeKind.OK


async def test_a_provider_that_resets_behind_its_close_is_heard_although_its_client_speaks() -> None:
    async with laid() as tunnel:
        await tunnel.client.send(TEXT, b"first")
        await tunnel.provider.frame()
        tunnel.provider.reset_behind(encoded(TEXT, b"sorry") + encoded(CLOSE, closing(1008, "over budget")))
        # It is written to before it is read from.
        tunnel.link.data_received(encoded(TEXT, b"second", mask=MASK))
        assert await tunnel.client.frame() == Frame(TEXT, b"sorry")
        assert await tunnel.client.frame() == Frame(CLOSE, closing(1008, "over budget"))
        assert (await tunnel.outcome()).kind is OutcomeKind.OK


@pytest.mark.parametrize("closed", [True, False])
async def test_a_client_that_goes_has_left_unless_it_has_closed(closed: bool) -> None:
    async with laid() as tunnel:
        if closed:
            await tunnel.client.send(CLOSE, closing(1000))
        else:
            await tunnel.client.send(TEXT, b"x")
        await tunnel.provider.frame()
        tunnel.client.leave()
        with pytest.raises(asyncio.CancelledError):
            await tunnel.outcome()
        assert tunnel.exchange.answered is closed
        assert frames_of(await tunnel.provider.rest()) == ([] if closed else [Frame(CLOSE, closing(1001), masked=True)])


async def test_tokens_that_are_reported_are_added_up_and_bytes_are_counted() -> None:
    async with laid() as tunnel:
        told = b""
        for written in (3, 4):
            used = {"input_tokens": 10, "output_tokens": written, "input_token_details": {"cached_tokens": 2}}
            data = encoded(TEXT, json.dumps({"type": "response.done", "response": {"usage": used}}).encode())
            await tunnel.provider.write(data)
            told += data
            await tunnel.client.frame()
        tunnel.provider.leave()
        assert (await tunnel.outcome()).kind is OutcomeKind.STREAM_BROKEN
        facts, attempt = tunnel.exchange.facts, tunnel.exchange.attempt
        assert attempt is not None
        assert facts.usage == attempt.usage == Usage(20, 7, 4)
        ours = encoded(CLOSE, closing(1014, "the provider's connection broke"))
        assert facts.answer_bytes == attempt.answer_bytes == len(told) + len(ours)


@pytest.mark.parametrize("way", ["closed", "broken", "left", "violated"])
async def test_a_tunnel_is_freed_at_once_however_it_ends(way: str) -> None:
    with uncollected(Tunnel, Side, Frames, Call, Exchange, UpstreamConnection) as alive:
        for _ in range(3):
            await comes_and_goes(way)
        await freed(alive)


async def comes_and_goes(way: str) -> None:
    async with laid() as tunnel:
        await tunnel.client.send(TEXT, b"x")
        await tunnel.provider.frame()
        if way == "closed":
            await tunnel.client.send(CLOSE, closing(1000))
            await tunnel.provider.send(CLOSE, closing(1000))
            await tunnel.client.frame()
        if way == "violated":
            await tunnel.client.send(5)
        if way in ("closed", "broken", "violated"):
            tunnel.provider.leave()
        else:
            tunnel.client.leave()
        await asyncio.wait((tunnel.task,))
