"""Frames through the proxy: what passes, byte for byte, how it is bounded, and what is no frame."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.talks import End, Talks, asks, entered, opened, talking
from tests.websocket.encoding import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, encoded, frames_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"talk": {"breaker": "off"}},
    "routes": [route("talk", "talk"), route("small", "talk", body={"max": "64KiB", "replay": "1KiB"})],
}
SMALL = "/v1/realtime?model=small"
MIB = 1 << 20


async def both_ways(client: End, provider: End) -> None:
    """Checks that messages still pass."""
    await client.say(b"marco")
    await provider.hears(b"marco")
    await provider.say(b"polo")
    await client.hears(b"polo")


async def test_messages_pass_both_ways_at_the_same_time(lab: Lab) -> None:
    async with talking(lab) as (client, provider):
        for number in range(50):
            await client.say(b"to %d" % number)
            await provider.say(b"from %d" % number)
        for number in range(50):
            await provider.hears(b"to %d" % number)
            await client.hears(b"from %d" % number)


@pytest.mark.parametrize("client_sends", [True, False])
async def test_fragments_with_control_frames_between_them_pass_as_they_are(lab: Lab, client_sends: bool) -> None:
    async with talking(lab) as ends:
        sender, taker = ends if client_sends else ends[::-1]
        frames = [
            *((TEXT, b"be", False), (PING, b"are you there", True), (CONTINUATION, b"", False)),
            *((PONG, b"unasked", True), (CONTINUATION, b"gin", True), (BINARY, b"", True)),
        ]
        sent = b"".join(sender.encoded(opcode, payload, final=final) for opcode, payload, final in frames)
        await sender.write(sent)
        for opcode, payload, final in frames:
            assert await taker.frame() == Frame(opcode, payload, final, masked=client_sends)
        await taker.send(PONG, b"are you there")
        assert await sender.frame() == Frame(PONG, b"are you there", masked=not client_sends)


async def test_packed_messages_pass_as_they_are(lab: Lab) -> None:
    extension = ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits")
    talks = Talks(lab["talk"], headers=[("Sec-WebSocket-Extensions", "permessage-deflate")])
    async with opened(lab, headers=[extension]) as client:
        provider = await talks.next()
        assert provider.request is not None
        assert provider.request.header("sec-websocket-extensions") == extension[1]
        assert b"\r\nsec-websocket-extensions: permessage-deflate\r\n" in client.answer.lower()
        await client.send(TEXT, b"\xf2\x48\xcd\xc9\xc9\x07\x00", packed=True)
        assert await provider.frame() == Frame(TEXT, b"\xf2\x48\xcd\xc9\xc9\x07\x00", packed=True, masked=True)
        await provider.send(BINARY, b"\x02\x00", packed=True)
        assert await client.frame() == Frame(BINARY, b"\x02\x00", packed=True)


async def test_frames_that_come_with_either_handshake_are_kept(lab: Lab) -> None:
    early = encoded(TEXT, b"before you agreed", mask=b"\1\2\3\4")
    talks = Talks(lab["talk"], first=encoded(TEXT, b"together") + encoded(TEXT, b"half")[:3])
    async with opened(lab, early=early + early[:5]) as client:
        provider = await talks.next()
        await provider.hears(b"before you agreed")
        await client.hears(b"together")
        await client.write(early[5:])
        await provider.write(encoded(TEXT, b"half")[3:])
        await provider.hears(b"before you agreed")
        await client.hears(b"half")


async def test_much_that_comes_before_the_agreement_waits_for_it(lab: Lab) -> None:
    gate = asyncio.Event()
    talks = Talks(lab["talk"])
    script = lab["talk"].script

    async def later(exchange: Any) -> None:
        await gate.wait()
        await script(exchange)

    lab["talk"].script = later
    message = random.Random(5).randbytes(3 * MIB)
    async with lab.wire() as wire:
        sending = asyncio.create_task(wire.send(asks() + encoded(BINARY, message, mask=b"\1\2\3\4")))
        await lab["talk"].has_seen(1)
        gate.set()
        client, provider = await entered(wire), await talks.next()
        await provider.hears(message, opcode=BINARY)
        await sending
        await both_ways(client, provider)


@pytest.mark.parametrize("client_sends", [True, False])
@pytest.mark.parametrize(("opcode", "size"), [(TEXT, 5 * MIB), (BINARY, 8 * MIB)])
async def test_large_messages_pass_whole_however_they_are_cut(
    lab: Lab, client_sends: bool, opcode: int, size: int
) -> None:
    rng = random.Random(size)
    message = b"audio " * (size // 6) if opcode == TEXT else rng.randbytes(size)
    async with talking(lab) as ends:
        sender, taker = ends if client_sends else ends[::-1]

        async def send() -> None:
            data, at = sender.encoded(opcode, message), 0
            while at < len(data):
                step = 1 if at < 40 else rng.randrange(1, 1 << 16)
                await sender.write(data[at : at + step])
                if at < 40:
                    await asyncio.sleep(0.001)
                at += step

        sending = asyncio.create_task(send())
        await taker.hears(message, opcode=opcode)
        await sending
        await both_ways(*ends)


@pytest.mark.parametrize("client_sends", [True, False])
async def test_who_takes_nothing_stops_the_sender_and_costs_little_memory(lab: Lab, client_sends: bool) -> None:
    async with talking(lab) as ends:
        sender, taker = ends if client_sends else ends[::-1]
        taker.pause()
        before, sent = resident(lab), 0
        piece = sender.encoded(BINARY, bytes(64 * 1024))

        async def send() -> None:
            nonlocal sent
            while True:
                await sender.write(piece)
                sent += 1

        sending = asyncio.create_task(send())
        seen = -1
        async with asyncio.timeout(20):
            while sent != seen or not sent:
                seen = sent
                await asyncio.sleep(0.3)
        assert resident(lab) - before < 8 * MIB
        sending.cancel()
        taker.resume()
        for _ in range(sent):
            assert (await taker.frame()).opcode == BINARY


@pytest.mark.parametrize("client_sends", [True, False])
async def test_a_flood_of_empty_frames_passes_whole_and_so_does_what_follows(lab: Lab, client_sends: bool) -> None:
    async with talking(lab) as ends:
        sender, taker = ends if client_sends else ends[::-1]
        said = sender.encoded(TEXT) * 60_000 + sender.encoded(CLOSE, b"")
        await sender.write(said)
        sender.half_close()
        async with asyncio.timeout(20):
            while len(taker.data) < len(said):
                piece = await taker.reader.read(1 << 18)
                assert piece, len(taker.data)
                taker.data += piece
        assert taker.data == said


def resident(lab: Lab) -> int:
    """Bytes that the proxy has in memory."""
    told = Path(f"/proc/{lab.proxy.process.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", told)
    assert found is not None
    return int(found[1]) << 10


@pytest.mark.parametrize("client_sends", [True, False])
@pytest.mark.parametrize("parts", [1, 4])
async def test_a_message_beyond_the_limit_ends_it_for_both(lab: Lab, client_sends: bool, parts: int) -> None:
    async with talking(lab, path=SMALL) as ends:
        sender, taker = ends if client_sends else ends[::-1]
        await sender.send(BINARY, bytes(65536))
        await taker.hears(bytes(65536), opcode=BINARY)
        size = 65536 // parts + 1
        for part in range(parts):
            await sender.send(BINARY if part == 0 else CONTINUATION, bytes(size), final=part == parts - 1)
        for _ in range(parts - 1):
            await taker.frame()
        code, reason = await sender.told()
        assert code == 1009
        if not client_sends:
            # Words of ours are for the client alone.
            assert reason == b""
        assert (await taker.told())[0] == (1001 if client_sends else 1009)
        ends[1].leave()
        assert await ends[0].over() == b""


async def test_a_client_that_sends_far_too_much_is_told_so(lab: Lab) -> None:
    async with talking(lab, path=SMALL) as (client, provider):
        sending = asyncio.create_task(client.send(BINARY, bytes(12 * MIB)))
        assert (await provider.told())[0] == 1001
        provider.leave()
        await sending
        assert (await client.told())[0] == 1009
        assert await client.over() == b""


NO_FRAMES = {
    "reserved opcode": encoded(5, b"x"),
    "reserved control opcode": encoded(12, b"x"),
    "a ping in parts": encoded(PING, b"x", final=False),
    "a close that is too long": bytes([0x88, 126, 0, 130]) + bytes(130),
    "a message inside a message": encoded(TEXT, b"a", final=False) + encoded(BINARY, b"b"),
    "the middle of a message without its beginning": encoded(CONTINUATION, b"a"),
    "a length beyond all": b"\x82\x7f\x80" + bytes(7),
}


@pytest.mark.parametrize("client_sends", [True, False])
@pytest.mark.parametrize("name", NO_FRAMES)
async def test_what_is_no_frame_ends_it_and_what_came_before_passes(lab: Lab, name: str, client_sends: bool) -> None:
    async with talking(lab) as ends:
        sender, taker = ends if client_sends else ends[::-1]
        await sender.write(sender.encoded(TEXT, b"fine") + NO_FRAMES[name] + sender.encoded(TEXT, b"never"))
        await taker.hears(b"fine")
        assert (await sender.told())[0] == 1002
        # It began before what is wrong with it came.
        if name == "a message inside a message":
            assert await taker.frame() == Frame(TEXT, b"a", final=False)
        assert (await taker.told())[0] == (1001 if client_sends else 1014)
        ends[1].leave()
        assert await ends[0].over() == b""
    await lab.idle()


@pytest.mark.parametrize("client_sends", [True, False])
async def test_what_is_no_frame_completes_none_that_was_cut(lab: Lab, client_sends: bool) -> None:
    async with talking(lab) as ends:
        sender, taker = ends if client_sends else ends[::-1]
        message = sender.encoded(TEXT, b"transfer 100 to A")
        await sender.write(message[:-3])
        await taker.has(len(message) - 3)
        await sender.write(message[-3:] + NO_FRAMES["reserved opcode"])
        await taker.hears(b"transfer 100 to A")
        assert (await taker.told())[0] == (1001 if client_sends else 1014)


async def test_what_follows_a_close_goes_no_further(lab: Lab) -> None:
    async with talking(lab) as (client, provider):
        await client.write(client.encoded(CLOSE, b"\x03\xe8") + client.encoded(TEXT, b"late"))
        assert await provider.told() == (1000, b"")
        await provider.say(b"one more")
        await provider.close(1000)
        assert [frame.payload for frame in frames_of(await client.over())] == [b"one more", b"\x03\xe8"]
        provider.leave()
        assert await provider.over() == b""
