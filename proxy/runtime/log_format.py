"""How a log record looks: one line of JSON, or one line for people.

Owns the formatters and nothing of what is logged. A record's own fields are a dictionary in its attribute
`fields` (`extra={"fields": {...}}`); they follow the message in both formats. A line stays one line
whatever a value holds, except for a traceback in the text format.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import orjson

from proxy.runtime.log_pipe import PatientHandler

_PLAIN: Final = re.compile(r"[^\s\"=\x00-\x1f\x7f-\x9f\ud800-\udfff]+\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_COLOURS: Final = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}


class JsonFormatter(logging.Formatter):
    """One JSON object: time (UTC), level, logger, msg, then the record's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str, option=orjson.OPT_UTC_Z).decode()
        except TypeError:  # a lone surrogate somewhere: bytes that a caller sent and that are no UTF-8
            return orjson.dumps(_encodable(line)).decode()


class TextFormatter(logging.Formatter):
    """Time (local), level and message in columns, then `name=value`; no value is left out but empty ones."""

    def __init__(self, *, colours: bool = False) -> None:
        super().__init__()
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line, and the lines of a traceback."""
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = f"{record.levelname.lower():7}"
        if self._colours and (colour := _COLOURS.get(record.levelno)):
            level = f"\x1b[{colour}m{level}\x1b[0m"
        pairs = (f"{name}={_text(value)}" for name, value in fields_of(record).items())
        message = _one_line(record.getMessage().encode("utf-8", "replace").decode())
        line = f"{time} {level} {' '.join([f'{message:16}', *pairs])}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Returns the fields of a record, without those that are empty."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def log_handler(stream: TextIO, *, style: str) -> logging.Handler:
    """Returns a handler that writes `style` ("json" or "text") to `stream`; colours only on a terminal."""
    handler: logging.Handler
    try:
        handler = PatientHandler(stream)
    except io.UnsupportedOperation:  # it has no descriptor: it is in memory
        handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter(colours=stream.isatty()))
    return handler


def _text(value: object) -> str:
    if isinstance(value, str) and _PLAIN.match(value):
        return str(value)
    return _one_line(orjson.dumps(_encodable(value)).decode())


def _one_line(text: str) -> str:
    """Returns the text with its control characters and line ends as escapes."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _encodable(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case Mapping():
            return {str(_encodable(key)): _encodable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_encodable(inner) for inner in value]
        case int() | float() | None:
            return value
        case _:
            return str(value)
