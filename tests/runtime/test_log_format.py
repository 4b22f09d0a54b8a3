"""Lines of the log: what they hold, and that they stay lines."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.outcome import OutcomeKind
from proxy.runtime.log_format import JsonFormatter, TextFormatter, log_handler

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


def a_record(message: str = "request", level: int = logging.INFO, **fields: Any) -> logging.LogRecord:
    record = logging.LogRecord("sponson.request", level, "", 0, message, (), None)
    record.created = 1_790_000_000.25
    record.fields = fields
    return record


def test_json() -> None:
    line = JsonFormatter().format(a_record(status=200, outcome=OutcomeKind.OK, reason=None, route=""))
    assert json.loads(line) == {
        "time": "2026-09-21T14:13:20.250000Z",
        "level": "info",
        "logger": "sponson.request",
        "msg": "request",
        "status": 200,
        "outcome": "ok",
    }


def test_a_record_of_anybody_is_formatted() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "%s of %d", ("one", 2), None)
    assert json.loads(JsonFormatter().format(record))["msg"] == "one of 2"
    assert TextFormatter().format(record).endswith("warning one of 2")


def test_a_traceback_is_kept() -> None:
    try:
        raise RuntimeError("no")
    except RuntimeError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "bug", (), sys.exc_info())
    assert "RuntimeError: no" in json.loads(JsonFormatter().format(record))["exception"]
    assert TextFormatter().format(record).endswith("RuntimeError: no")


@given(ANY_TEXT, ANY_TEXT)
def test_a_line_is_one_line_of_utf8(message: str, value: str) -> None:
    record = a_record(message.replace("%", ""), value=value, many=[value])
    for formatter in (JsonFormatter(), TextFormatter()):
        line = formatter.format(record)
        line.encode("utf-8")
        assert len(line.splitlines()) <= 1 or formatter.__class__ is JsonFormatter
        assert "\n" not in line
    assert json.loads(JsonFormatter().format(record))["level"] == "info"


def test_text_quotes_what_could_be_taken_for_something_else() -> None:
    line = TextFormatter().format(a_record(model='a b="c"', route="chat", problems=["p.yaml:1:1: x"], n=1.5))
    assert 'model="a b=\\"c\\"" route=chat problems=["p.yaml:1:1: x"] n=1.5' in line


def test_colours_only_where_asked_for() -> None:
    warning = a_record(level=logging.WARNING)
    assert "\x1b" not in TextFormatter().format(warning)
    assert "\x1b[33mwarning" in TextFormatter(colours=True).format(warning)
    assert "\x1b" not in TextFormatter(colours=True).format(a_record())


@pytest.mark.parametrize("style", ["json", "text"])
def test_the_handler_writes_whole_lines(style: str) -> None:
    stream = io.StringIO()
    handler = log_handler(stream, style=style)
    handler.handle(a_record(status=200))
    handler.handle(a_record(status=503))
    first, second, rest = stream.getvalue().split("\n")
    assert first.startswith("{") == (style == "json")
    assert ("status=503" in second) == (style == "text")
    assert rest == ""
