"""Spans that no collector will see, counted: those that a full queue has pushed out, and those whose export failed.

Each count has one writer: the event loop, or the thread that exports.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from otel import attributes as a
from otel.instruments import Instruments
from otel.series import Number


class CountedBatches(BatchSpanProcessor):
    """Batches spans for an exporter; `size` is the length of their queue."""

    def __init__(self, exporter: SpanExporter, instruments: Instruments, *, size: int) -> None:
        lost = instruments.number(a.SPANS_LOST)
        self._exporter = CountedExports(exporter, lost.at("export_failed"))
        self._size = size
        self._pushed_out = lost.at("queue_full")
        self._came = 0
        super().__init__(self._exporter, max_queue_size=size)

    def on_end(self, span: ReadableSpan) -> None:
        """Puts a sampled span in the queue, in the place of the oldest where that is full."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._came - self._exporter.taken >= self._size:
            self._pushed_out.value += 1
        else:
            self._came += 1
        super().on_end(span)


class CountedExports(SpanExporter):
    """Exports by another one; `taken` is how many spans it was given."""

    def __init__(self, exporter: SpanExporter, failed: Number) -> None:
        self._exporter = exporter
        self._failed = failed
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Exports these spans, and counts them if that fails."""
        self.taken += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is not SpanExportResult.SUCCESS:
                self._failed.value += len(spans)
        return result

    def shutdown(self) -> None:
        """Ends the other one."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Flushes the other one."""
        return self._exporter.force_flush(timeout_millis)
