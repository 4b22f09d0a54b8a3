"""Packed answers: body, coding and length agree at the caller whatever the coding; only a copy is ever unpacked."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from functools import cache
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.caller import Headers
from tests.integration.harness import Lab, route
from tests.integration.messages import DONE, event
from tests.integration.quotas import ALLOWED, PROMPT, USED, answer_with, ask, costs, full, usage, uses
from tests.integration.scripted import Exchange, Script

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

POLICY: dict[str, Any] = {
    "version": 1,
    "providers": {"metered": {"limits": {}, "breaker": "off"}, "plain": {"breaker": "off"}},
    "routes": [route("metered", "metered", retry={"attempts": 3}), route("plain", "plain", retry={"attempts": 3})],
}
OURS = (b"x-sponson-", b"content-length", b"transfer-encoding")
JSON = json.dumps(answer_with()).encode()
EVENTS = (
    event("a") + event("b") + b"data: " + json.dumps({"id": "c", "choices": [], "usage": usage()}).encode() + b"\n\n"
)
KINDS = {"application/json": JSON, "text/event-stream": EVENTS + DONE}
NO_BROTLI = bytes(range(256)) * 9
"""Nobody here can read this; neither can the proxy read brotli or zstd."""


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


READ: dict[str, tuple[list[str], Callable[[bytes], bytes]]] = {
    "gzip": (["gzip"], gzip.compress),
    "gzip, shouted": (["GZip"], gzip.compress),
    "x-gzip": (["x-gzip"], gzip.compress),
    "deflate": (["deflate"], zlib.compress),
    "deflate, bare": (["deflate"], raw_deflate),
    "with identity": (["identity, gzip"], gzip.compress),
}
UNREAD: dict[str, tuple[list[str], Callable[[bytes], bytes]]] = {
    "br": (["br"], lambda data: NO_BROTLI),
    "zstd": (["zstd"], lambda data: NO_BROTLI),
    "stacked": (["deflate, gzip"], lambda data: gzip.compress(zlib.compress(data))),
    "on two lines": (["deflate", "gzip"], lambda data: gzip.compress(zlib.compress(data))),
    "behind identity": (["identity", "br"], lambda data: NO_BROTLI),
    "nobody's": (["x-lab-7"], lambda data: data[::-1]),
    "said, but not done": (["gzip"], lambda data: data[::-1]),
}
ALL = {**READ, **UNREAD}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    async with full(POLICY) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def clean(lab: Lab) -> None:
    for provider in lab.providers.values():
        provider.forget()
        provider.script = uses()


def sends(kind: str, codings: list[str], data: bytes, *, chunked: bool, piece: int = 1 << 16) -> Script:
    """A provider that gives these bytes, whatever they are."""
    fields = [*(("Content-Encoding", coding) for coding in codings), ("ETag", '"packed"'), ("Vary", "accept-encoding")]

    async def script(exchange: Exchange) -> None:
        if not chunked:
            await exchange.reply(200, data, headers=[("content-type", kind), *fields])
            return
        await exchange.begin(kind, headers=fields)
        for at in range(0, len(data), piece):
            await exchange.chunk(data[at : at + piece])
        await exchange.end()

    return script


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coding", ALL)
@pytest.mark.parametrize("provider", ["metered", "plain"])
async def test_a_packed_answer_reaches_its_caller_as_it_came(
    lab: Lab, provider: str, coding: str, kind: str, chunked: bool
) -> None:
    codings, pack = ALL[coding]
    data = pack(KINDS[kind])
    lab[provider].script = sends(kind, codings, data, chunked=chunked, piece=97)
    answer = await ask(lab, provider, stream="event" in kind, headers=[("accept-encoding", ", ".join(codings))])
    assert (answer.status, answer.complete, answer.body) == (200, True, data)
    told = [(name, value) for name, value in answer.headers if not name.startswith(OURS)]
    coded = [(b"Content-Encoding", coding.encode()) for coding in codings]
    assert sorted(told) == sorted(
        [(b"content-type", kind.encode()), *coded, (b"ETag", b'"packed"'), (b"Vary", b"accept-encoding")]
    )
    assert answer.all("content-encoding") == codings
    lengths = answer.all("content-length")
    assert len(lengths) + len(answer.all("transfer-encoding")) == 1
    assert lengths in ([], [str(len(data))])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coding", READ)
async def test_what_can_be_read_is_counted_through_a_copy(lab: Lab, coding: str, kind: str) -> None:
    codings, pack = READ[coding]
    lab["metered"].script = sends(kind, codings, pack(KINDS[kind]), chunked=True, piece=50)
    asked: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if "event" in kind else {}
    answer, spent = await costs(lab, "metered", provider="metered", **asked)
    assert spent == (1, USED)
    line = await lab.proxy.line_of(answer)
    assert (line["input_tokens"], line["output_tokens"]) == (PROMPT, USED - PROMPT)


async def estimates(lab: Lab, provider: str) -> float:
    """Returns how many tokens of this provider's answers the metrics call a guess."""
    shown = (await lab.proxy.get("/metrics")).body.decode()
    lines = [line for line in shown.splitlines() if line.startswith("sponson_tokens_total{")]
    guessed = [line for line in lines if 'sponson_estimated="true"' in line and f'"{provider}"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in guessed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coding", UNREAD)
async def test_what_cannot_be_read_is_estimated_and_said_to_be(lab: Lab, coding: str, kind: str) -> None:
    codings, pack = UNREAD[coding]
    before = await estimates(lab, "metered")
    lab["metered"].script = sends(kind, codings, pack(KINDS[kind]), chunked=False)
    _, (requests, tokens) = await costs(lab, "metered", provider="metered", stream="event" in kind)
    assert requests == 1
    assert PROMPT < tokens <= PROMPT + ALLOWED + 50
    assert await estimates(lab, "metered") - before == pytest.approx(tokens, abs=1)


MANY = 1 << 27
BOMBS = {
    "one": lambda: gzip.compress(b" " * MANY, 9),
    "members": lambda: gzip.compress(b" " * (1 << 20), 9) * 128,
    "empty members": lambda: gzip.compress(b"") * 30_000,
    "events": lambda: gzip.compress(b"data: {}\n\n" * (MANY // 10), 9),
    "blank lines": lambda: gzip.compress(b"\n" * MANY, 9),
}


@cache
def packed(bomb: str) -> bytes:
    """A bomb; packing it takes a good part of a second."""
    return BOMBS[bomb]()


@pytest.mark.parametrize("piece", [400, 1 << 20], ids=["in small pieces", "at once"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_bomb_passes_unharmed_and_unread(lab: Lab, bomb: str, kind: str, piece: int) -> None:
    data = packed(bomb) + gzip.compress(KINDS[kind])
    lab["metered"].script = sends(kind, ["gzip"], data, chunked=True, piece=piece)
    answer, (requests, tokens) = await costs(lab, "metered", provider="metered", stream="event" in kind)
    assert (answer.status, answer.complete, answer.body == data) == (200, True, True)
    assert requests == 1
    assert tokens != USED
    assert tokens > PROMPT


async def test_the_memory_of_a_bomb_is_not_taken(lab: Lab) -> None:
    lab["metered"].script = uses()
    await ask(lab, "metered")
    before = peak_kib(lab)
    data = packed("one")
    for kind in KINDS:
        lab["metered"].script = sends(kind, ["gzip"], data, chunked=True, piece=4096)
        assert (await ask(lab, "metered", stream="event" in kind)).body == data
    assert peak_kib(lab) - before < MANY // 1024 // 4


def peak_kib(lab: Lab) -> int:
    """Returns the most memory that the proxy has had until now."""
    with open(f"/proc/{lab.proxy.process.pid}/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1])


ASKS: list[Headers] = [[], [("accept-encoding", "br;q=1, gzip;q=0.2")], [("Accept-Encoding", "")]]


@pytest.mark.parametrize("headers", ASKS, ids=["nothing", "a choice", "an empty one"])
@pytest.mark.parametrize("provider", ["metered", "plain"])
async def test_a_caller_s_choice_of_codings_is_its_own(lab: Lab, provider: str, headers: Headers) -> None:
    await ask(lab, provider, headers=headers)
    assert lab[provider].only.all("accept-encoding") == [str(value).encode() for _, value in headers]


async def test_only_a_stream_whose_usage_is_hidden_must_come_unpacked(lab: Lab) -> None:
    headers = [("accept-encoding", "gzip")]
    assert (await ask(lab, "metered", stream=True, headers=headers)).complete
    assert lab["metered"].only.all("accept-encoding") == [b"identity"]
    lab["metered"].forget()
    assert (await ask(lab, "metered", stream=True, headers=headers, stream_options={"include_usage": True})).complete
    assert lab["metered"].only.all("accept-encoding") == [b"gzip"]
