"""Which answers may be given again, and what of their heads goes along."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.lookup import OPAQUE, operation_of
from proxy.dialects.wholeness import LARGEST_UNPACKED, MOST_LINES, MOST_PARTS, kept, unpacked, with_age
from proxy.ports import StoredAnswer
from tests.dialects import recorded, recorded_messages
from tests.dialects.streams import Recorded

CHAT = "/v1/chat/completions"
JSON = b"content-type: application/json\r\n"
EVENTS = b"content-type: text/event-stream; charset=utf-8\r\n"
BODY = b'{"id":"c1","choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}],"error":null}'


def answer(body: bytes = BODY, lines: bytes = JSON, *, status: int = 200, length: int | None = None) -> StoredAnswer:
    """An answer as a call has recorded it."""
    return StoredAnswer(
        status=status, phrase=b"OK", lines=lines, body=body, length=length, provider="a", model="m", tier=1
    )


def given_again(
    what: StoredAnswer, path: str = CHAT, *, stream: bool = False, keyed: frozenset[str] = frozenset()
) -> StoredAnswer | None:
    """The answer as it may be given again to who has asked for this path."""
    return kept(what, operation=operation_of(path), stream=stream, keyed=keyed)


def test_a_whole_answer_stays_as_it_is() -> None:
    assert given_again(answer()) == answer()
    assert given_again(answer(length=len(BODY))) == answer(length=len(BODY))


@pytest.mark.parametrize("status", [0, 201, 204, 206, 304, 400, 500])
def test_no_other_status_is_kept(status: int) -> None:
    assert given_again(answer(status=status)) is None


def test_fewer_bytes_than_were_promised_are_not_kept() -> None:
    assert given_again(answer(length=len(BODY) + 1)) is None


ONE_TIME = (
    b"Set-Cookie: a=b\r\nset-cookie2: c\r\nX-RateLimit-Remaining-Requests: 3\r\nanthropic-ratelimit-tokens-reset: x\r\n"
    b"ratelimit: r\r\nratelimit-policy: p\r\nretry-after: 1\r\nretry-after-ms: 1\r\nAge: 3\r\nconnection: x\r\n"
    b"keep-alive: x\r\nproxy-authenticate: x\r\ntransfer-encoding: chunked\r\ntrailer: x\r\nupgrade: x\r\nte: x\r\n"
    b"content-length: 3\r\nx-sponson-tier: 1\r\n"
)
LASTING = (
    b"Content-Type: application/json\r\ndate: x\r\nx-request-id: r\r\ncache-control: no-cache, private\r\n"
    b"x-odd: \xff:\r\n"
)


def test_what_tells_of_the_first_time_only_is_taken_out() -> None:
    found = given_again(answer(lines=ONE_TIME + LASTING))
    assert found is not None
    assert found.lines == LASTING
    assert found.body == BODY


@pytest.mark.parametrize(
    "line", [b"cache-control: no-store", b"Cache-Control: private, No-Store", b'cache-control: no-store="x" , a']
)
def test_a_provider_may_forbid_it(line: bytes) -> None:
    assert given_again(answer(lines=JSON + line + b"\r\n")) is None
    assert given_again(answer(lines=JSON + b"cache-control: public\r\n" + line + b"\r\n")) is None


@pytest.mark.parametrize("line", [b"vary: *", b"Vary: x-other", b"vary: Origin, x-other", b"vary: origin\r\nvary: *"])
def test_an_answer_that_varies_by_what_is_not_equal_is_not_kept(line: bytes) -> None:
    assert given_again(answer(lines=JSON + line + b"\r\n"), keyed=frozenset({"origin"})) is None


@pytest.mark.parametrize("line", [b"vary: Origin", b"vary: accept-encoding, ORIGIN ,", b"vary: "])
def test_an_answer_that_varies_by_what_is_equal_is_kept(line: bytes) -> None:
    assert given_again(answer(lines=JSON + line + b"\r\n"), keyed=frozenset({"origin", "accept-encoding"})) is not None


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", BODY[:-1], BODY + b"x", b"<html></html>", b"null", b"1", b'"text"', b'{"a":NaN}',
        b'{"error":{"message":"m"}}', b'{"error":"text"}', b'{"object":"error","message":"m"}', b'{"type":"error"}',
        b'[{"error":{"code":503}}]', b'{"choices":[{"finish_reason":"error"}]}',
        b'{"choices":[{"index":0},{"error":{"code":502},"finish_reason":null}]}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("lines", [JSON, b"", b"content-type: application/problem+json\r\n"])
def test_no_error_and_nothing_cut_is_kept(body: bytes, lines: bytes) -> None:
    assert given_again(answer(body, lines)) is None


@pytest.mark.parametrize("media_type", [b"text/html", b"text/plain", b"application/octet-stream", b"a, b"])
def test_a_known_operation_answers_with_json(media_type: bytes) -> None:
    assert given_again(answer(lines=b"content-type: %b\r\n" % media_type)) is None


def test_two_types_are_no_type() -> None:
    assert given_again(answer(b"x", JSON + JSON)) is None


@pytest.mark.parametrize(("status", "keeps"), [
    ("completed", True), ("incomplete", True), (None, True), ("failed", False), ("in_progress", False),
    ("queued", False), ("cancelled", False), ("", False), ([], False), ({}, False),
])  # fmt: skip
def test_a_response_is_kept_when_it_has_ended(status: Any, keeps: bool) -> None:
    body = orjson.dumps({"id": "r", "status": status, "error": None, "output": []})
    assert (given_again(answer(body), "/v1/responses") is not None) == keeps


@pytest.mark.parametrize(("name", "state", "keeps"), [
    ("status", "in_progress", False), ("status", "validating", False), ("processing_status", "canceling", False),
    ("status", "completed", True), ("processing_status", "ended", True), ("status", "failed", True),
    ("status", ["queued"], True), ("state", "queued", True),
])  # fmt: skip
@pytest.mark.parametrize("operation", [None, operation_of(CHAT)])
def test_the_state_of_a_job_that_runs_is_not_kept(name: str, state: Any, keeps: bool, operation: Any) -> None:
    what = answer(orjson.dumps({"id": "b", name: state}))
    assert (kept(what, operation=operation, stream=False, keyed=frozenset()) is not None) == keeps


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"", b""), (b"", JSON), (b"text", b"content-type: text/plain\r\n"), (b"\xff", b"content-type: audio/mpeg\r\n"),
        (b'"a"', JSON), (b"1", JSON), (b"x", b""),
    ],
)  # fmt: skip
def test_an_unknown_path_answers_with_anything(body: bytes, lines: bytes) -> None:
    assert kept(answer(body, lines), operation=None, stream=False, keyed=frozenset()) is not None


@pytest.mark.parametrize("body", [b'{"error":{"message":"m"}}', b"{"])
def test_json_of_an_unknown_path_is_whole_and_no_error(body: bytes) -> None:
    assert kept(answer(body), operation=None, stream=False, keyed=frozenset()) is None


def test_the_head_alone_promises_what_does_not_come() -> None:
    head = answer(b"", length=100)
    assert kept(head, operation=None, stream=False, keyed=frozenset()) == head


def test_lists_of_embeddings_are_answers() -> None:
    assert given_again(answer(b"[[0.1,0.2]]"), "/v1/embeddings") is not None


PACKERS = {
    b"gzip": gzip.compress,
    b"x-gzip": gzip.compress,
    b"GZip": gzip.compress,
    b"deflate": zlib.compress,
    b"identity": bytes,
    b"identity, gzip": gzip.compress,
}


def raw_deflate(body: bytes) -> bytes:
    """Deflate without a zlib header, as some send it."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


CODINGS = [*PACKERS.items(), (b"deflate", raw_deflate)]


@pytest.mark.parametrize(("coding", "pack"), CODINGS)
def test_coded_answers_are_read_and_stay_coded(coding: bytes, pack: Any) -> None:
    lines = JSON + b"content-encoding: %b\r\n" % coding
    good = answer(pack(BODY), lines)
    assert given_again(good) == good
    assert given_again(answer(pack(b'{"error":{"message":"m"}}'), lines)) is None


@pytest.mark.parametrize(("coding", "pack"), [pair for pair in CODINGS if pair[0] != b"identity"])
def test_a_cut_or_longer_coded_answer_is_not_kept(coding: bytes, pack: Any) -> None:
    lines, body = JSON + b"content-encoding: %b\r\n" % coding, pack(BODY)
    assert all(given_again(answer(body[:end], lines)) is None for end in range(len(body)))
    assert given_again(answer(body + b"x", lines)) is None
    assert given_again(answer(body + body, lines)) is None


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, gzip", b"gzip\r\ncontent-encoding: gzip", b"aes128gcm"])
def test_what_cannot_be_read_is_not_kept(coding: bytes) -> None:
    assert given_again(answer(gzip.compress(BODY), JSON + b"content-encoding: %b\r\n" % coding)) is None


@pytest.mark.parametrize(("size", "keeps"), [(LARGEST_UNPACKED, True), (LARGEST_UNPACKED + 1, False)])
def test_unpacking_has_a_bound(size: int, keeps: bool) -> None:
    assert (unpacked(gzip.compress(b" " * size, 1), [b"gzip"]) is not None) == keeps


@pytest.mark.parametrize(("parts", "keeps"), [(MOST_PARTS, True), (MOST_PARTS + 1, False)])
def test_an_answer_of_absurdly_many_parts_is_not_looked_at(parts: int, keeps: bool) -> None:
    body = b'{"choices":[' + b",".join([b"{}"] * (parts - 2)) + b"]}"
    assert (given_again(answer(gzip.compress(body, 1), JSON + b"content-encoding: gzip\r\n")) is not None) == keeps


@given(st.binary(), st.sampled_from([b"gzip", b"deflate"]))
def test_no_bytes_raise(body: bytes, coding: bytes) -> None:
    unpacked(body, [coding])
    given_again(answer(body, JSON))
    given_again(answer(body, EVENTS), stream=True)
    given_again(answer(BODY, body))


STREAMS = [
    value for module in (recorded, recorded_messages) for value in vars(module).values() if isinstance(value, Recorded)
]
GOOD = [stream for stream in STREAMS if stream.done and stream.error is None and not stream.malformed]
BAD = [stream for stream in STREAMS if stream not in GOOD]


def test_both_kinds_of_streams_are_recorded() -> None:
    assert len(GOOD) >= 5
    assert BAD


@pytest.mark.parametrize("stream", GOOD, ids=lambda stream: stream.name)
def test_streams_are_kept_with_their_events_intact(stream: Recorded) -> None:
    what = answer(stream.data, EVENTS)
    assert given_again(what, stream.path, stream=True) == what
    packed = answer(gzip.compress(stream.data), EVENTS + b"content-encoding: gzip\r\n")
    assert given_again(packed, stream.path, stream=True) == packed


@pytest.mark.parametrize("stream", BAD, ids=lambda stream: stream.name)
def test_streams_with_errors_are_not(stream: Recorded) -> None:
    assert given_again(answer(stream.data, EVENTS), stream.path, stream=True) is None
    packed = answer(gzip.compress(stream.data), EVENTS + b"content-encoding: gzip\r\n")
    assert given_again(packed, stream.path, stream=True) is None


@pytest.mark.parametrize("stream", GOOD, ids=lambda stream: stream.name)
def test_a_stream_without_its_last_event_is_not_kept(stream: Recorded) -> None:
    cuts = [at for at in range(len(stream.data)) if stream.data[at : at + 2] == b"\n\n"]
    last = cuts[-2] + 2
    assert given_again(answer(stream.data[:last], EVENTS), stream.path, stream=True) is None
    assert given_again(answer(b"", EVENTS), stream.path, stream=True) is None


TOLD = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("path", "stream"),
    [
        (CHAT, DONE), (CHAT, TOLD + b'data: {"choices":[\n\n' + DONE), (CHAT, TOLD + b"data: 1,2\n\n" + DONE),
        (CHAT, TOLD + b'data: {"choices":[{"finish_reason":"error"}]}\n\n' + DONE),
        (CHAT, TOLD * (MOST_LINES // 2) + DONE),
        (CHAT, TOLD + b"data: [" + b"[]," * MOST_PARTS + b"[]]\n\n" + DONE),
        ("/v1/messages", b'data: {"type":"content_block_delta"}\n\n' + DONE),
        ("/v1/responses", b'data: {"type":"response.output_text.delta"}\n\n' + DONE),
    ],
    ids=["empty", "half an event", "no event", "failed", "lines", "parts", "messages", "responses"],
)  # fmt: skip
def test_a_stream_that_seems_to_end_well_is_looked_through(path: str, stream: bytes) -> None:
    assert given_again(answer(TOLD + DONE, EVENTS), stream=True) is not None
    assert given_again(answer(stream, EVENTS), path, stream=True) is None


def test_an_event_may_stand_on_several_lines() -> None:
    assert given_again(answer(TOLD.replace(b"[", b"[\ndata:", 1) + DONE, EVENTS), stream=True) is not None


@pytest.mark.parametrize(("stream", "lines"), [(False, EVENTS), (True, JSON), (True, b"")])
def test_events_answer_who_asked_for_them(stream: bool, lines: bytes) -> None:
    body = GOOD[0].data if lines == EVENTS else BODY
    assert given_again(answer(body, lines), GOOD[0].path, stream=stream) is None


def test_a_stream_that_is_not_understood_is_not_kept() -> None:
    what, chat = answer(GOOD[0].data, EVENTS), operation_of(CHAT)
    assert chat is not None
    assert kept(what, operation=None, stream=True, keyed=frozenset()) is None
    assert kept(what, operation=replace(chat, dialect=OPAQUE), stream=True, keyed=frozenset()) is None


@pytest.mark.parametrize(
    ("age", "told"), [(0.0, b"0"), (0.99, b"0"), (61.5, b"61"), (-1.0, b"0"), (1e9, b"1000000000")]
)
def test_age_is_told_in_whole_seconds(age: float, told: bytes) -> None:
    assert with_age(JSON, age) == JSON + b"age: " + told + b"\r\n"
