from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.base import Operation
from proxy.dialects.errors import AnswerError
from proxy.dialects.lookup import operation_of
from proxy.exchange import Usage
from proxy.upstream.meter import (
    LARGEST_RATIO,
    LOOKED_AT,
    MEMBER,
    TAIL,
    UNPACKED,
    UNPACKED_EVENTS,
    BodyMeter,
    Meter,
    PackedEvents,
    look,
    parsed,
)
from tests.upstream.rig import DONE, OVERLOADED, ROLE, USAGE, WORD


def known(path: str) -> Operation:
    operation = operation_of(path)
    assert operation is not None
    return operation


CHAT, EMBEDDINGS, MESSAGES = known("/v1/chat/completions"), known("/v1/embeddings"), known("/v1/messages")
SEEN = Usage(120, 34, 100)
SIZES = [0, 1000, LOOKED_AT - 300, LOOKED_AT, LOOKED_AT + 1, 300_000]


def members(body: bytes) -> bytes:
    return b"".join(gzip.compress(body[start : start + 1000]) for start in range(0, len(body), 1000))


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zlib": zlib.compress, "members": members}

cuts = st.lists(st.floats(0, 1), max_size=8)


def pieces_of(body: bytes, places: list[float]) -> list[bytes]:
    edges = [0, *sorted(int(place * len(body)) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


def chat_body(size: int) -> bytes:
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 34,
        "prompt_tokens_details": {"cached_tokens": 100},
        "total_tokens": 154,
    }
    text = 'say "usage" {' + "x" * size
    choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
    return orjson.dumps({"id": "c1", "choices": choices, "usage": usage, "system_fingerprint": "fp"})


def embeddings_body(size: int) -> bytes:
    data = [{"index": 0, "embedding": [0.12345] * (size // 8)}]
    return orjson.dumps({"object": "list", "data": data, "usage": {"prompt_tokens": 8, "total_tokens": 8}})


def metered(body: bytes, places: list[float], *, packed: bool = False, operation: Operation = CHAT) -> BodyMeter:
    meter = BodyMeter(operation, packed=packed)
    for piece in pieces_of(body, places):
        meter.feed(piece)
    meter.finish()
    return meter


@given(st.sampled_from(SIZES), cuts)
def test_the_usage_of_a_chat_is_found_in_a_body_of_any_size_and_any_split(size: int, places: list[float]) -> None:
    meter = metered(chat_body(size), places)
    assert (meter.usage, meter.error) == (SEEN, None)


@given(st.sampled_from(SIZES), cuts)
def test_the_usage_of_embeddings_is_found_in_a_body_of_any_size_and_any_split(size: int, places: list[float]) -> None:
    meter = metered(embeddings_body(size), places, operation=EMBEDDINGS)
    assert (meter.usage, meter.error) == (Usage(8, 0, 0), None)


@given(st.sampled_from(SIZES), cuts, st.sampled_from(sorted(PACKERS)))
def test_a_coded_body_is_looked_at_through_a_copy(size: int, places: list[float], coding: str) -> None:
    assert metered(PACKERS[coding](chat_body(size)), places, packed=True).usage == SEEN


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_deflate_without_its_header_is_looked_at_too(place: float) -> None:
    body = raw_deflate(chat_body(1000))
    assert metered(body, [place], packed=True).usage == SEEN
    assert look(CHAT, body, packed=True) == (SEEN, None)
    meter = PackedEvents(CHAT.dialect.scanner(CHAT))
    for piece in pieces_of(raw_deflate(ROLE + WORD + USAGE + DONE), [place]):
        meter.feed(piece)
    assert (meter.content, meter.usage, meter.done) == (True, Usage(3, 2, 0), True)


@pytest.mark.parametrize("size", SIZES)
def test_a_body_that_came_whole_gives_the_same_at_one_look(size: int) -> None:
    assert look(CHAT, chat_body(size)) == (SEEN, None)
    assert look(CHAT, gzip.compress(chat_body(size)), packed=True) == (SEEN, None)


@given(st.binary(max_size=400), cuts)
def test_what_is_no_gzip_gives_nothing_and_never_fails(junk: bytes, places: list[float]) -> None:
    meter = metered(junk, places, packed=True)
    assert meter.usage is None
    assert look(CHAT, junk, packed=True)[0] is None


@given(st.floats(0, 0.9), cuts)
def test_a_gzip_that_breaks_off_gives_nothing_and_never_fails(part: float, places: list[float]) -> None:
    packed = gzip.compress(chat_body(1000))
    assert metered(packed[: int(part * len(packed))] + b"\xff" * 20, places, packed=True).usage is None


def held(meter: BodyMeter) -> int:
    return sum(map(len, meter._kept))


def test_a_bomb_is_not_unpacked_to_its_end() -> None:
    bomb = gzip.compress(bytes(UNPACKED * 8))
    meter = metered(bomb, [0.5], packed=True)
    assert (meter.usage, held(meter)) == (None, 0)
    assert look(CHAT, bomb, packed=True) == (None, None)


def test_nothing_that_stands_behind_a_bomb_is_believed() -> None:
    bomb = gzip.compress(b" " * (UNPACKED + 1)) + gzip.compress(chat_body(10))
    assert look(CHAT, bomb, packed=True) == (None, None)
    assert metered(bomb, [], packed=True).usage is None


@pytest.mark.parametrize("content", [b"", b"\n", bytes(UNPACKED // 2)], ids=["empty", "tiny", "large"])
def test_a_body_in_many_small_members_is_not_unpacked_to_its_end(content: bytes) -> None:
    flood = gzip.compress(content) * (2 * UNPACKED // (MEMBER + len(content))) + gzip.compress(chat_body(10))
    assert look(CHAT, flood, packed=True) == (None, None)
    meter = metered(flood, [], packed=True)
    assert (meter.usage, held(meter)) == (None, 0)


def test_what_unpacks_to_a_great_deal_in_small_pieces_is_not_unpacked_to_its_end() -> None:
    bomb = gzip.compress(bytes(1 << 27)) + gzip.compress(chat_body(10))
    meter = BodyMeter(CHAT, packed=True)
    for at in range(0, len(bomb), 512):
        meter.feed(bomb[at : at + 512])
        assert held(meter) <= LOOKED_AT
    assert meter._size <= UNPACKED + LARGEST_RATIO * len(bomb) < 1 << 27
    meter.finish()
    assert (meter.usage, meter.content) == (None, True)


def events_in(piece_bytes: int, body: bytes) -> PackedEvents:
    packed = gzip.compress(body, 9)
    meter = PackedEvents(CHAT.dialect.scanner(CHAT))
    for at in range(0, len(packed), piece_bytes):
        meter.feed(packed[at : at + piece_bytes])
    meter.finish()
    return meter


def test_of_a_bomb_of_events_no_event_is_looked_at_and_it_lives_by_its_bytes() -> None:
    flood = b"data: x\n\n" * (2 * UNPACKED_EVENTS // 9)
    meter = events_in(1 << 20, flood + USAGE)
    assert (meter.content, meter.usage, meter.signs) == (True, None, 1)
    meter.feed(b"more")
    assert meter.signs == 2


def test_a_long_bomb_of_events_is_looked_at_in_part_only() -> None:
    size = 1 << 26
    meter = events_in(256, b"data: x\n\n" * (size // 9) + USAGE)
    assert (meter.content, meter.usage) == (True, None)
    assert meter._scanner.events * 9 < size // 2


def test_a_large_stream_that_is_well_packed_is_looked_at_to_its_end() -> None:
    words = b"".join(b'data: {"id":"c%d","choices":[{"delta":{"content":"w%d"}}]}\n\n' % (n, n) for n in range(9_000))
    meter = events_in(4096, ROLE + words + USAGE + DONE)
    assert (meter.content, meter.usage, meter.done) == (True, Usage(3, 2, 0), True)


def test_a_large_body_is_not_kept() -> None:
    meter = BodyMeter(CHAT, packed=False)
    for _ in range(100):
        meter.feed(bytes(10_000))
        assert held(meter) <= LOOKED_AT
    meter.feed(bytes(4 * LOOKED_AT))
    assert held(meter) == TAIL


ERRORS = {
    b'{"error":{"message":"x","type":"overloaded_error"}}': AnswerError(529, "overloaded_error"),
    b'{"error":{"message":"x","code":429}}': AnswerError(429, "error"),
    b'{"object":"error","message":"x","code":400}': AnswerError(400, "error"),
    b'{"type":"error","error":{"type":"rate_limit_error"}}': AnswerError(429, "rate_limit_error"),
}


@pytest.mark.parametrize("body", ERRORS)
def test_an_error_instead_of_content_is_found(body: bytes) -> None:
    assert metered(body, [0.3]).error == ERRORS[body]
    assert look(CHAT, body) == (None, ERRORS[body])


@pytest.mark.parametrize(
    "body", [b'{"error":null,"id":1}', b'{"error":{}}', b"[]", b"not json", b"", b'"error"', b"\xff"]
)
def test_what_carries_no_error_is_none(body: bytes) -> None:
    assert metered(body, []).error is None
    assert look(CHAT, body) == (None, None)


@given(cuts)
def test_a_stream_s_content_usage_and_end_are_found_in_any_split(places: list[float]) -> None:
    meter: Meter = CHAT.dialect.scanner(CHAT)
    for piece in pieces_of(ROLE + b": ping\n\n", places):
        meter.feed(piece)
        assert not meter.content
    for piece in pieces_of(WORD + USAGE + DONE, places):
        meter.feed(piece)
    assert meter.content
    meter.finish()
    assert (meter.usage, meter.error) == (Usage(3, 2, 0), None)


@given(cuts)
def test_an_error_before_the_content_is_found_in_any_split(places: list[float]) -> None:
    meter: Meter = CHAT.dialect.scanner(CHAT)
    for piece in pieces_of(ROLE + OVERLOADED, places):
        meter.feed(piece)
    assert (meter.content, meter.error) == (False, AnswerError(529, "overloaded_error"))


@given(cuts, st.sampled_from(sorted(PACKERS)))
def test_a_coded_stream_is_looked_at_through_a_copy(places: list[float], coding: str) -> None:
    meter = PackedEvents(CHAT.dialect.scanner(CHAT))
    for piece in pieces_of(PACKERS[coding](ROLE + WORD + USAGE + DONE), places):
        meter.feed(piece)
    meter.finish()
    assert (meter.content, meter.usage, meter.error) == (True, Usage(3, 2, 0), None)


def test_anthropic_messages_are_read_in_their_own_words() -> None:
    body = b'{"type":"message","content":[],"usage":{"input_tokens":5,"cache_read_input_tokens":7,"output_tokens":2}}'
    assert look(MESSAGES, body) == (Usage(12, 2, 7), None)


@pytest.mark.parametrize(
    ("text", "value"), [(b"{}", {}), (b"[1]", [1]), (b"", None), (b"{", None), (b"\xff\xfe", None)]
)
def test_parsing_never_fails(text: bytes, value: object) -> None:
    assert parsed(text) == value
