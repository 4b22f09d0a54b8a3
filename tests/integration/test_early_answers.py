"""Answers that come before the request's body has: their caller gets them, and nobody else pays for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from tests.integration.caller import Answer, Headers, request_bytes
from tests.integration.harness import Lab
from tests.integration.messages import answers
from tests.integration.scripted import Exchange, Script, ScriptedProvider

pytestmark = pytest.mark.asyncio(loop_scope="module")

MULTIPART = ("content-type", "multipart/form-data; boundary=zzz")
JSON = ("content-type", "application/json")
FORM = "/v1/audio/transcriptions"
CHAT = "/v1/chat/completions"
MEBIBYTE = 1 << 20
SIZE = 20 * MEBIBYTE
"""More than the proxy's system (4 MiB), a system that takes little, and a provider's reader (8 MiB) keep of it."""
PIECE = b"u" * 65536


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """A lab with one provider behind TLS."""
    authority = trustme.CA()
    trusted: Path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(trusted))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with ScriptedProvider(tls=context) as sealed:
        providers = {
            "plain": {"breaker": "off"},
            "sealed": {"breaker": "off", "base_url": f"https://127.0.0.1:{sealed.port}/v1"},
        }
        lab = Lab({"version": 1, "providers": providers}, env={"SSL_CERT_FILE": str(trusted)})
        async with lab:
            lab.providers["sealed"] = sealed
            for provider in lab.providers.values():
                provider.take_little()
            yield lab


@pytest.fixture(autouse=True)
def forgetful(lab: Lab) -> None:
    """Every test begins anew, with providers that answer before they have read a body."""
    for provider in lab.providers.values():
        provider.forget()
        provider.reads_bodies = False


async def reads_on(exchange: Exchange) -> None:
    """Goes on reading, slowly, until the proxy has gone."""
    while await exchange.ears.read(65536):
        await asyncio.sleep(0.005)


def early(status: int, *, then: str, after: int = 65536) -> Script:
    """A provider that answers when it has read so much of the body, whatever is still to come."""

    async def script(exchange: Exchange) -> None:
        await exchange.ears.readexactly(after)
        await exchange.reply(status, {"said": status}, headers=[("x-own", "yes"), ("connection", "close")])
        exchange.ended = True
        if then == "closes":
            exchange.close()
        elif then == "resets":
            exchange.reset()
        elif then == "half-closes":
            exchange.writer.write_eof()
            await exchange.ears.gone.wait()
        elif then == "reads on":
            await reads_on(exchange)
        else:
            await exchange.ears.gone.wait()

    return script


async def sends(lab: Lab, path: str, *, headers: Headers, chunked: bool = False, size: int = SIZE) -> Answer:
    """Sends a body as fast as it is taken, until there is an answer; a failing write is no answer."""
    framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(size))
    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", path, headers=[*headers, framing]))
        reading = asyncio.ensure_future(wire.answer(within=20))
        try:
            for _ in range(size // len(PIECE)):
                if reading.done():
                    break
                await wire.send(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if chunked else PIECE)
            else:
                await wire.send(b"0\r\n\r\n" if chunked else b"")
        except ConnectionError:
            pass
        return await reading


@pytest.mark.parametrize("then", ["closes", "half-closes", "resets", "stays", "reads on"])
@pytest.mark.parametrize("status", [413, 401, 429, 200])
async def test_an_upload_gets_the_answer_that_came_early(lab: Lab, status: int, then: str) -> None:
    provider = lab["plain"]
    provider.script = early(status, then=then)
    for chunked in (False, True):
        answer = await sends(lab, "/plain" + FORM, headers=[MULTIPART], chunked=chunked)
        assert (answer.status, answer.header("x-own"), answer.complete) == (status, "yes", True)
        assert answer.json() == {"said": status}
        assert (answer.reason, answer.attempts, answer.header("connection")) == (None, 1, "close")
    assert len(provider.seen) == 2


@pytest.mark.parametrize("then", ["closes", "resets", "stays"])
@pytest.mark.parametrize("status", [413, 403, 200])
async def test_a_body_that_was_read_whole_gets_the_answer_that_came_early(lab: Lab, status: int, then: str) -> None:
    lab["plain"].script = early(status, then=then)
    for chunked in (False, True):
        answer = await sends(lab, "/plain" + CHAT, headers=[JSON], chunked=chunked)
        assert (answer.status, answer.json(), answer.attempts) == (status, {"said": status}, 1)


@pytest.mark.parametrize("then", ["closes", "resets", "stays"])
@pytest.mark.parametrize(("path", "headers"), [(FORM, MULTIPART), (CHAT, JSON)], ids=["upload", "whole"])
async def test_early_answers_are_seen_under_tls_too(lab: Lab, path: str, headers: tuple[str, str], then: str) -> None:
    lab["sealed"].script = early(413, then=then)
    answer = await sends(lab, "/sealed" + path, headers=[headers])
    assert (answer.status, answer.json(), answer.attempts) == (413, {"said": 413}, 1)


async def test_the_providers_connection_ends_with_an_early_answer_and_so_does_the_upload(lab: Lab) -> None:
    provider = lab["plain"]

    async def script(exchange: Exchange) -> None:
        await exchange.ears.readexactly(1000)
        await exchange.reply(413, {"said": 413})
        exchange.ended = True
        await reads_on(exchange)

    provider.script = script
    for path, headers in ((FORM, MULTIPART), (CHAT, JSON)):
        assert (await sends(lab, "/plain" + path, headers=[headers])).status == 413
    await provider.was_left(2)
    provider.reads_bodies = True
    provider.script = answers(200, {"said": "next"})
    assert (await lab.call("/plain" + CHAT, {"model": "m"})).json() == {"said": "next"}
    assert len({request.connection for request in provider.seen}) == 3


async def test_an_answer_may_come_and_go_on_while_its_upload_does(lab: Lab) -> None:
    """A transcription that is streamed back while the recording still comes."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin("text/event-stream")
        for _ in range(4):
            await exchange.chunk(b"data: %b\n\n" % await exchange.ears.readexactly(8))
        await exchange.end()

    lab["plain"].script = script
    heard: list[bytes] = []
    came = asyncio.Event()

    def on_piece(data: bytes) -> None:
        heard.append(data)
        came.set()

    async with lab.wire() as wire:
        await wire.send(request_bytes("POST", "/plain" + FORM, headers=[MULTIPART, ("content-length", "32")]))
        reading = asyncio.ensure_future(wire.answer(on_piece=on_piece))
        for number in range(4):
            came.clear()
            await wire.send(b"part-%03d" % number)
            async with asyncio.timeout(10):
                await came.wait()
        answer = await reading
    assert answer.complete
    assert heard == [b"data: part-%03d\n\n" % number for number in range(4)]


async def test_a_provider_that_goes_without_an_answer_is_told_as_what_it_is(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.ears.readexactly(100_000)
        exchange.reset()

    lab["plain"].script = script
    answer = await sends(lab, "/plain" + FORM, headers=[MULTIPART])
    assert (answer.status, answer.reason, answer.attempts) == (504, "maybe_executed", 1)
    assert len(lab["plain"].seen) == 1


async def test_a_part_of_an_early_answer_is_shown_as_a_part(lab: Lab) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.ears.readexactly(100_000)
        await exchange.send(b"HTTP/1.1 413 No\r\ncontent-type: text/plain\r\ncontent-length: 100\r\n\r\nonly this")
        exchange.reset()

    lab["plain"].script = script
    answer = await sends(lab, "/plain" + FORM, headers=[MULTIPART])
    assert (answer.status, answer.complete) == (413, False)


async def test_an_early_answer_is_its_callers_error_and_no_failure_of_the_provider(lab: Lab) -> None:
    lab["plain"].script = early(413, then="resets")
    answer = await sends(lab, "/plain" + FORM, headers=[MULTIPART])
    line = await lab.proxy.line_of(answer)
    assert (line["outcome"], line["status"]) == ("caller_error", 413)
    await lab.idle()
