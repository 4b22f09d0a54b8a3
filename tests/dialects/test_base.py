"""What every dialect keeps to."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.base import Dialect, Operation
from proxy.dialects.errors import error_in
from proxy.dialects.lookup import dialect_named, operation_of
from proxy.dialects.sse import EventSplitter
from proxy.outcome import STATUS, Reason

DIALECTS = [dialect_named(name) for name in ("openai", "anthropic", "opaque")]
every = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)


@given(st.sampled_from(DIALECTS), st.sampled_from(Reason), st.text(), st.text(st.characters(codec="ascii")))
def test_error_bodies_are_whole_json(dialect: Dialect, reason: Reason, message: str, request_id: str) -> None:
    body = dialect.error_body(status=STATUS[reason], reason=reason, message=message, request_id=request_id)
    document = orjson.loads(body)
    assert document["error"]["code"] == reason
    assert document["request_id"] == request_id
    if message:
        assert document["error"]["message"] == message.encode("utf-8", "replace").decode()
    assert error_in(document) is not None


@every
@pytest.mark.parametrize("path", ["", "/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("reason", Reason)
def test_error_events_are_one_whole_event_that_holds_an_error(dialect: Dialect, reason: Reason, path: str) -> None:
    message = "a\n\ndata: [DONE]\r\n\r\n\ud800 Try again."
    event = dialect.error_event(reason=reason, message=message, operation=operation_of(path))
    splitter = EventSplitter()
    ((_, data),) = splitter.feed(event)
    assert splitter.between_events
    assert data is not None
    document = orjson.loads(data)
    assert document["error"]["code"] == reason
    assert document["error"]["message"] == "a\n\ndata: [DONE]\r\n\r\n? Try again."
    assert error_in(document) is not None


def test_operations_are_values() -> None:
    one = Operation(name="chat", kind="chat", dialect=DIALECTS[0])
    assert one == Operation(name="chat", kind="chat", dialect=DIALECTS[0])
    assert one.inference
    assert not one.streams
