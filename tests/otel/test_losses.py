"""What is lost on the way to a collector is counted, and nothing else is."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext, TraceFlags

from otel import attributes as a
from otel.instruments import Instruments
from otel.losses import CountedBatches

PATIENCE = 20.0


class Gate(SpanExporter):
    """Takes batches, each when it may; `fails` in one way or another."""

    def __init__(self, *, fails: str = "") -> None:
        self.fails = fails
        self.got: list[int] = []
        self.asked = threading.Semaphore(0)
        self.may = threading.Semaphore(0)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.release()
        assert self.may.acquire(timeout=PATIENCE)
        if self.fails == "raising":
            raise OSError("no route to it")
        if self.fails:
            return SpanExportResult.FAILURE
        self.got += [span.start_time or 0 for span in spans]
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


def a_span(number: int, flags: int = TraceFlags.SAMPLED) -> ReadableSpan:
    context = SpanContext(number, number, is_remote=False, trace_flags=TraceFlags(flags))
    return ReadableSpan("a span", context=context, start_time=number)


def lost(instruments: Instruments) -> dict[str, float]:
    return {series.labels[0]: series.value for series in instruments.number(a.SPANS_LOST).series}


def test_what_a_full_queue_pushes_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
    instruments, gate = Instruments(a.GENAI_1_41), Gate()
    batches: SpanProcessor = CountedBatches(gate, instruments, size=10)
    for number in range(1, 5):
        batches.on_end(a_span(number))
    # The first batch is on its way, and its collector does not answer: the next ten wait, and seven are too many.
    assert gate.asked.acquire(timeout=PATIENCE)
    for number in range(5, 22):
        batches.on_end(a_span(number))
    assert lost(instruments) == {"export_failed": 0, "queue_full": 7}
    for _ in range(9):
        gate.may.release()
    batches.shutdown()
    assert gate.got == [*range(1, 5), *range(12, 22)]
    assert lost(instruments) == {"export_failed": 0, "queue_full": 7}


@pytest.mark.parametrize("fails", ["refusing", "raising"])
def test_what_could_not_be_exported_is_counted(fails: str) -> None:
    instruments, gate = Instruments(a.GENAI_1_41), Gate(fails=fails)
    batches: SpanProcessor = CountedBatches(gate, instruments, size=2048)
    for number in range(1, 4):
        batches.on_end(a_span(number))
    gate.may.release()
    batches.shutdown()
    assert lost(instruments) == {"export_failed": 3, "queue_full": 0}


def test_what_is_not_sampled_is_no_loss() -> None:
    instruments, gate = Instruments(a.GENAI_1_41), Gate()
    batches: SpanProcessor = CountedBatches(gate, instruments, size=512)
    for number in range(1, 600):
        batches.on_end(a_span(number, TraceFlags.DEFAULT))
    batches.shutdown()
    assert (gate.got, lost(instruments)) == ([], {"export_failed": 0, "queue_full": 0})
