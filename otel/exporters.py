"""The SDK's exporters, imported only when one is asked for, and their complaints at most once a minute.

`none` costs neither the memory nor the time of an import. What the exporters read from the environment
themselves (endpoint, headers, compression, certificates, batch sizes) stays theirs; only the time-out is
shorter by default, because a dead collector would hold a shutdown for as long.
"""

from __future__ import annotations

import logging
import re
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.trace.export import SpanExporter

TIMEOUT_SECONDS: Final = 2.0
_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.sdk._shared_internal",
    "urllib3.connectionpool",
)

_ADDRESS: Final = re.compile(r"(url: |https?://)[^\s'\")]+", re.IGNORECASE)


def span_exporter(name: str, *, timeout_seconds: float | None) -> SpanExporter:
    """Builds `otlp` or `console`; None leaves the time-out to the environment."""
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter(out=sys.stdout)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from otel.session import CollectorSession

    return OTLPSpanExporter(timeout=timeout_seconds, session=CollectorSession())


def metric_exporter(name: str, *, timeout_seconds: float | None) -> MetricExporter:
    """Builds `otlp` or `console`; None leaves the time-out to the environment."""
    if name == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        return ConsoleMetricExporter(out=sys.stdout)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    from otel.session import CollectorSession

    return OTLPMetricExporter(timeout=timeout_seconds, session=CollectorSession())


class RareWarnings(logging.Filter):
    """Lets one record a minute of the exporters' loggers pass, while it is entered, and no credential with it.

    A collector's address may hold one, in its path, its query or before its host; an exception's text may quote one.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        super().__init__()
        self._seconds = seconds
        self._next_at = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Passes records below warning, and one in each period of the rest."""
        if record.levelno < logging.WARNING:
            return True
        if record.created < self._next_at:
            return False
        self._next_at = record.created + self._seconds
        record.msg, record.args = _discreet(record), ()
        record.exc_info = None
        return True

    def __enter__(self) -> RareWarnings:
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def _discreet(record: logging.LogRecord) -> str:
    """Returns the message without addresses, and of an exception only what kind it is."""
    message = _ADDRESS.sub(r"\1…", record.getMessage())
    error = record.exc_info[0] if record.exc_info else None
    return message if error is None else f"{message} ({error.__name__})"
