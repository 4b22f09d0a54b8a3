"""Streams of any grammar and any characters: the same in any cuts, and what can be read is read."""

from __future__ import annotations

import pytest
from hypothesis import given

from proxy.dialects.errors import AnswerError
from proxy.dialects.injection import UsageFilter
from proxy.exchange import Usage
from tests.dialects.event_streams import CUTS, STREAMS, cut
from tests.dialects.streams import ROLE
from tests.dialects.test_stream import scanned, signs


@pytest.mark.parametrize(
    ("data", "error", "usage"),
    [
        (b'{"choices":[],"note":"\xff","usage":{"prompt_tokens":2,"completion_tokens":1}}', None, Usage(2, 1)),
        (b'{"choices":[],"note":"\\ud83d","usage":{"prompt_tokens":2,"completion_tokens":1}}', None, Usage(2, 1)),
        (b'{"error":{"message":"half a letter \xe6\x97","code":503}}', AnswerError(503, "error"), None),
    ],
    ids=["no UTF-8", "half a pair", "an error"],
)
def test_an_event_with_broken_characters_is_read_like_any_other(
    data: bytes, error: AnswerError | None, usage: Usage | None
) -> None:
    scanner = scanned("/v1/chat/completions", [ROLE, b"data: " + data + b"\n\n"])
    assert (scanner.content, scanner.error, scanner.usage, scanner.malformed) == (False, error, usage, 0)


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":' * 100_000, b'"', b"\xff\xfe", b"nul"])
def test_what_is_no_json_is_malformed_however_deep(data: bytes) -> None:
    assert scanned("/v1/chat/completions", [b"data: " + data + b"\n\n"]).malformed == 1


@given(STREAMS, STREAMS, CUTS)
def test_nothing_but_the_usage_chunk_is_missing(before: bytes, after: bytes, cuts: list[int]) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\r\n\r\n'
    before += b"\n\n"
    usage_filter = UsageFilter()
    passed = b"".join(usage_filter.feed(piece) for piece in cut(before + usage + after, cuts)) + usage_filter.finish()
    assert passed == before + after
    assert usage_filter.removed == 1


@given(STREAMS, CUTS)
def test_any_stream_of_the_grammar_shows_the_same_in_any_cuts(stream: bytes, cuts: list[int]) -> None:
    for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages"):
        assert signs(scanned(path, cut(stream, cuts))) == signs(scanned(path, [stream]))
