"""Whole JSON answers that are nearly right: what is read in them is sane, and reading never fails."""

from __future__ import annotations

import gzip
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.errors import LONGEST_DELAY_SECONDS, blames_key, delay_in, error_in, quota_is_spent
from proxy.dialects.lookup import operation_of
from proxy.upstream.meter import BodyMeter, look, parsed
from tests.fuzz import drawn
from tests.fuzz.corpus import ANSWERS, PATHS
from tests.fuzz.mutations import CUTS, cut, mutated

SEEDS = (
    b"",
    b"null",
    b'"error"',
    b"[[]]",
    b'[{"error": 7}]',
    b'{"error": true, "error_type": {}}',
    b'{"error": {"code": 1e999}}',
    b'{"error": {"code": -429, "status": 99999999999999999999999}}',
    b'{"error": {"code": "\\ud800", "type": "\\u0000"}}',
    b'{"error": {"details": [{"retryDelay": "0.s"}, {"retryDelay": "1e9s"}, {"violations": [7, {"quotaId": []}]}]}}',
    b'{"usage": {"prompt_tokens": -1, "completion_tokens": 1.5, "total_tokens": true}}',
    b'{"usage": {"prompt_tokens": 9007199254740993, "input_tokens": 18446744073709551616}}',
    b'{"usage": {"input_tokens": 1, "prompt_tokens_details": [], "cache_read_input_tokens": "x"}}',
    b'{"usage":' * 900,
    b"{" + b'"usage": {"prompt_tokens": 1},' * 4000,
)
TOKENS = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"null", b"true", b"-1", b"1e999", b"0.5", b"18446744073709551616"),
    *(b'"usage":', b'"error":', b'"error"', b'"code":', b'"type":', b'"status":', b'"details":', b'"retryDelay":"3s"'),
    *(b'"prompt_tokens":', b'"input_tokens":', b'"choices":[]', b"\\ud800", b"\xff", b"\0", b"4" * 30, b" " * 3000),
)
BODIES = mutated((*ANSWERS, *SEEDS), TOKENS)


def reads(body: bytes, path: str) -> None:
    operation = operation_of(path)
    assert operation is not None
    document = parsed(body)
    for status in (200, 403, 429):
        assert blames_key(status, document) in (True, False)
    delay = delay_in(document)
    assert delay is None or 0 <= delay <= LONGEST_DELAY_SECONDS
    error = error_in(document)
    if error is not None:
        assert 400 <= error.status < 600
        assert 0 < len(error.code) <= 64
        assert error.code.isprintable()
        assert error.spent == quota_is_spent(document)
    for cut_off in (False, True):
        usage, _ = look(operation, body, cut=cut_off)
        if usage is not None:
            assert all(0 <= count < math.inf for count in (usage.input, usage.output, usage.cached_input))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", SEEDS)
def test_kept_seeds(body: bytes, path: str) -> None:
    reads(body, path)


@given(BODIES, st.sampled_from(PATHS))
@drawn(250)
def test_what_is_read_in_any_answer_is_sane(body: bytes, path: str) -> None:
    reads(body, path)


@given(BODIES, CUTS, st.sampled_from(PATHS), st.booleans())
@drawn(200)
def test_a_body_in_pieces_shows_what_it_shows_whole(body: bytes, places: list[int], path: str, packed: bool) -> None:
    operation = operation_of(path)
    assert operation is not None
    meter = BodyMeter(operation, packed=packed)
    for piece in cut(gzip.compress(body) if packed else body, places):
        meter.feed(piece)
    meter.finish()
    assert (meter.usage, meter.error) == look(operation, body)
