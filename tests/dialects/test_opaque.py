"""What is not understood passes."""

from __future__ import annotations

import orjson

from proxy.dialects.lookup import operation_of
from proxy.dialects.opaque import Opaque
from proxy.dialects.stream import StreamScanner


def scanner() -> StreamScanner:
    operation = operation_of("/v1/chat/completions")
    assert operation is not None
    return Opaque().scanner(operation)


def test_the_first_byte_is_content() -> None:
    seen = scanner()
    seen.feed(b"")
    assert not seen.content
    seen.feed(b'data: {"error":{}}\n\n')
    seen.finish()
    assert (seen.content, seen.error, seen.usage, seen.done) == (True, None, None, False)


def test_every_piece_is_a_sign_of_life_because_no_event_is_told_apart() -> None:
    seen = scanner()
    for piece in (b"data", b"", b": x\n\n"):
        seen.feed(piece)
    assert seen.signs == 2


def test_place_for_an_event_of_our_own() -> None:
    seen = scanner()
    assert seen.between_events
    for piece, between in ((b"data: x\n", False), (b"\n", True), (b"data: y\r\n", False), (b"\r\n", True)):
        seen.feed(piece)
        assert seen.between_events is between


def test_errors_are_small_objects() -> None:
    body = Opaque().error_body(status=429, reason="queue_full", message="Full.", request_id="r")
    error = {"message": "Full.", "type": "rate_limit_error", "code": "queue_full"}
    assert orjson.loads(body) == {"error": error, "request_id": "r"}
    assert Opaque().usage_of({"usage": {"prompt_tokens": 1}}) is None
