"""How WebSockets end: closed by either side, half-closed, reset, broken, left; and what the other side is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.integration.harness import Lab, route
from tests.integration.talks import End, Talks, asks, entered, opened, talking
from tests.websocket.encoding import BINARY, CLOSE, PING, PONG, TEXT, Frame, closing, encoded

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"talk": {"breaker": "off"}},
    "routes": [route("talk", "talk")],
}
MIB = 1 << 20
CODES = [(1000, ""), (1000, "that is all"), (1008, "no such session"), (4001, "é" * 61 + "."), (None, ""), (1011, "")]


async def outcome(lab: Lab, count: int) -> tuple[str, str]:
    """Returns how the latest of so many requests ended, as its log line says."""
    async with asyncio.timeout(10):
        while len(lines := lab.proxy.request_lines()) < count:
            await asyncio.sleep(0.01)
    return lines[-1]["outcome"], lines[-1].get("detail", "")


def logged(lab: Lab) -> int:
    """How many requests have a log line."""
    return len(lab.proxy.request_lines())


@pytest.mark.parametrize("client_closes", [True, False])
@pytest.mark.parametrize(("code", "reason"), CODES)
async def test_code_and_reason_pass_and_so_does_their_echo(
    lab: Lab, client_closes: bool, code: int | None, reason: str
) -> None:
    count = logged(lab) + 1
    async with talking(lab) as ends:
        closer, other = ends if client_closes else ends[::-1]
        await closer.close(code, reason)
        assert await other.told() == (code, reason.encode())
        await other.close(code)
        assert await closer.told() == (code, b"")
        ends[1].leave()
        assert await ends[0].over() == b""
    # A code of failure is the provider's only where the provider was first to say it: its answer repeats the client's.
    failed = code == 1011 and not client_closes
    assert await outcome(lab, count) == (("error_in_answer", "the provider closed with 1011") if failed else ("ok", ""))


@pytest.mark.parametrize("payload", [b"\x03", b"\x03\xe8\xff\xfe", b"\x00\x01", b"\x03\xed"])
async def test_a_close_that_is_malformed_is_the_other_sides_to_judge(lab: Lab, payload: bytes) -> None:
    async with talking(lab) as (client, provider):
        await client.send(CLOSE, payload)
        assert await provider.frame() == Frame(CLOSE, payload, masked=True)
        provider.leave()
        await client.over()


async def test_a_side_may_still_speak_after_the_other_has_closed(lab: Lab) -> None:
    async with talking(lab) as (client, provider):
        await client.close(1000)
        assert await provider.told() == (1000, b"")
        for number in range(20):
            await provider.say(b"%d" % number)
        await provider.close(1000)
        for number in range(20):
            await client.hears(b"%d" % number)
        assert await client.told() == (1000, b"")


async def test_who_closes_and_does_not_wait_is_heard(lab: Lab) -> None:
    """Neither side need read what it is answered."""
    async with talking(lab) as (client, provider):
        await client.write(client.encoded(TEXT, b"bye") + client.encoded(CLOSE, closing(4005, "enough")))
        client.leave()
        await provider.hears(b"bye")
        assert await provider.told() == (4005, b"enough")
        await provider.over()
    async with talking(lab) as (client, provider):
        await provider.write(encoded(TEXT, b"bye") + encoded(CLOSE, closing(4006, "enough")))
        provider.leave()
        await client.hears(b"bye")
        assert await client.told() == (4006, b"enough")
        assert await client.over() == b""


async def test_a_client_in_full_flow_reads_why_its_provider_has_closed(lab: Lab) -> None:
    """What still comes in when the client's connection ends must not reset it."""
    async with talking(lab) as (client, provider):

        async def stream() -> None:
            while True:
                await client.send(BINARY, bytes(3200))
                await asyncio.sleep(0)

        streaming = asyncio.create_task(stream())
        await provider.frame()
        await provider.write(encoded(TEXT, b"x" * 20_000) + encoded(CLOSE, closing(1008, "over budget")))
        provider.leave()
        await asyncio.sleep(0.3)
        streaming.cancel()
        assert await client.frame() == Frame(TEXT, b"x" * 20_000)
        assert await client.told() == (1008, b"over budget")


async def test_a_side_that_does_not_answer_a_close_is_not_waited_for(lab: Lab) -> None:
    count = logged(lab) + 1
    async with talking(lab) as (client, provider):
        await client.close(1000)
        assert await provider.told() == (1000, b"")
        await client.over()
        await provider.over()
    assert await outcome(lab, count) == ("ok", "")


@pytest.mark.parametrize("way", ["reset", "leave", "half_close"])
@pytest.mark.parametrize("middle", [True, False])
async def test_a_provider_that_breaks_off_is_told_to_the_client(lab: Lab, way: str, middle: bool) -> None:
    count = logged(lab) + 1
    async with talking(lab) as (client, provider):
        await provider.say(b"whole")
        await client.hears(b"whole")
        await provider.say(b"last")
        if middle:
            await provider.write(encoded(TEXT, b"begins")[:5])
            await client.hears(b"last")
            if way == "reset":
                # A reset takes along what has not been read.
                await client.has(5)
        elif way == "reset":
            await client.hears(b"last")
        getattr(provider, way)()
        if middle:
            assert await client.over() == encoded(TEXT, b"begins")[:5]
        else:
            if way != "reset":
                await client.hears(b"last")
            code, reason = await client.told()
            assert (code, reason) == (1014, b"the provider's connection broke")
            assert await client.over() == b""
        await provider.over()
    assert (await outcome(lab, count))[0] == "stream_broken"


async def test_whole_messages_before_a_break_are_delivered(lab: Lab) -> None:
    async with talking(lab) as (client, provider):
        client.pause()
        await provider.write(encoded(TEXT, b"y" * 100_000) + encoded(TEXT, b"half")[:3])
        provider.leave()
        await asyncio.sleep(0.2)
        client.resume()
        assert await client.frame() == Frame(TEXT, b"y" * 100_000)
        assert await client.over() == encoded(TEXT, b"half")[:3]


@pytest.mark.parametrize("way", ["reset", "leave", "half_close"])
@pytest.mark.parametrize("middle", [True, False])
async def test_a_client_that_goes_is_told_to_the_provider_at_once(lab: Lab, way: str, middle: bool) -> None:
    count = logged(lab) + 1
    async with talking(lab) as (client, provider):
        await client.say(b"here")
        await provider.hears(b"here")
        if middle:
            await client.write(client.encoded(TEXT, b"begins")[:9])
            await provider.has(9)
        getattr(client, way)()
        if middle:
            assert await provider.over() == client.encoded(TEXT, b"begins")[:9]
        else:
            assert (await provider.told())[0] == 1001
            assert await provider.over() == b""
    assert await outcome(lab, count) == ("client_left", "")
    await lab.idle()


async def test_what_a_client_said_before_it_went_reaches_a_slow_provider(lab: Lab) -> None:
    """The proxy is asked to bring nothing more while its provider reads nothing; a FIN stands behind what waits."""
    message = b"m" * (6 * MIB)
    async with talking(lab) as (client, provider):
        provider.pause()
        client.writer.write(client.encoded(BINARY, message) + client.encoded(CLOSE, closing(4007, "done")))
        client.half_close()
        await asyncio.sleep(2.5)
        provider.resume()
        await provider.hears(message, opcode=BINARY)
        assert await provider.told() == (4007, b"done")


async def test_what_a_provider_said_before_it_went_reaches_a_slow_client(lab: Lab) -> None:
    message = b"m" * (6 * MIB)
    async with talking(lab) as (client, provider):
        client.pause()
        provider.writer.write(encoded(BINARY, message) + encoded(CLOSE, closing(4008, "done")))
        provider.leave()
        await asyncio.sleep(2.5)
        client.resume()
        assert await client.frame() == Frame(BINARY, message)
        assert await client.told() == (4008, b"done")


async def test_a_reset_is_seen_while_its_side_is_asked_to_wait(lab: Lab) -> None:
    async with talking(lab) as (client, provider):
        provider.pause()
        client.writer.write(client.encoded(BINARY, bytes(6 * MIB)))
        await asyncio.sleep(0.3)
        client.reset()
        await lab.idle()
        provider.resume()
        await provider.over()


async def test_pings_of_both_sides_pass_and_their_pongs_too(lab: Lab) -> None:
    async with talking(lab) as ends:
        for one, other in (ends, ends[::-1]):
            await one.send(PING, b"sponson")
            assert (await other.frame())[:2] == (PING, b"sponson")
            await other.send(PONG, b"sponson")
            assert (await one.frame())[:2] == (PONG, b"sponson")


@pytest.mark.parametrize("who", ["client", "provider"])
@pytest.mark.parametrize("own", [True, False])
async def test_a_reset_after_a_close_is_the_end(lab: Lab, who: str, own: bool) -> None:
    count = logged(lab) + 1
    async with talking(lab) as (client, provider):
        resets, other = (client, provider) if who == "client" else (provider, client)
        closes, hears = (resets, other) if own else (other, resets)
        await closes.close(1000)
        assert await hears.told() == (1000, b"")
        resets.reset()
        if who == "client" and not own:
            # It has not said that it closes, too; so the proxy does.
            assert (await other.told())[0] == 1001
        assert await other.over() == b""
    assert (await outcome(lab, count))[0] == ("ok" if who == "provider" or own else "client_left")
    await lab.idle()


async def test_early_frames_of_a_provider_that_goes_at_once_are_delivered(lab: Lab) -> None:
    talks = Talks(lab["talk"], first=encoded(TEXT, b"sorry") + encoded(CLOSE, closing(1013, "try again later")))
    async with lab.wire() as wire:
        await wire.send(asks())
        (await talks.next()).leave()
        client = await entered(wire)
        await client.hears(b"sorry")
        assert await client.told() == (1013, b"try again later")


async def test_a_client_that_closes_together_with_its_handshake_is_heard(lab: Lab) -> None:
    talks = Talks(lab["talk"])
    early = encoded(TEXT, b"hi", mask=b"wxyz") + encoded(CLOSE, closing(1000), mask=b"wxyz")
    async with opened(lab, early=early) as client:
        provider = await talks.next()
        await provider.hears(b"hi")
        assert await provider.told() == (1000, b"")
        await provider.close(1000)
        assert await client.told() == (1000, b"")


ENDS: list[tuple[str, str]] = [(who, way) for who in ("client", "provider") for way in ("close", "reset", "leave")]


async def test_nothing_stays_behind_however_they_end(lab: Lab) -> None:
    for turn in range(24):
        who, way = ENDS[turn % len(ENDS)]
        async with talking(lab) as (client, provider):
            end: End = client if who == "client" else provider
            await end.say(b"hi")
            if way == "close":
                await end.close(1000)
                await (provider if end is client else client).close(1000)
                provider.leave()
            else:
                getattr(end, way)()
            await (provider if end is client else client).over()
    await lab.idle()
    status = await lab.proxy.status()
    assert (status["in_flight"], status["permits_out"], status["holders"]) == (0, 0, [])
