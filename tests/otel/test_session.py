"""Collectors with too much to say, or too little: exports go on, and the memory stays as it was."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from otel.exporters import metric_exporter
from otel.session import MOST_BYTES

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\n"
BOMB = gzip.compress(b"\0" * (16 << 20))
MUCH = 64 << 20
NOTHING_TO_SAY = MetricsData([])


class Talker:
    """A collector that answers every export with the same bytes; `taken` is how many of them were taken, at least."""

    def __init__(self, answer: bytes, *, then: bytes, closes: bool) -> None:
        self._answer, self._then, self._closes = answer, then, closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = self.exports = self.taken = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        try:
            while connection.recv(1 << 16):
                self.exports += 1
                connection.sendall(self._answer)
                while self._then and self.taken < MUCH:
                    connection.sendall(self._then)
                    self.taken += len(self._then)
                if self._closes:
                    return
        except OSError:
            return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def talking(answer: bytes, *, then: bytes = b"", closes: bool = False) -> Iterator[Talker]:
    talker = Talker(answer, then=then, closes=closes)
    try:
        yield talker
    finally:
        talker.close()


def export(talker: Talker, monkeypatch: pytest.MonkeyPatch, times: int) -> list[MetricExportResult]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", talker.url)
    exporter = metric_exporter("otlp", timeout_seconds=20.0)
    try:
        return [exporter.export(NOTHING_TO_SAY) for _ in range(times)]
    finally:
        exporter.shutdown()


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"content-length: 0\r\n\r\n",
        HEAD + b"content-length: 12\r\n\r\nall received",
        HEAD + b"transfer-encoding: chunked\r\n\r\n3\r\nall\r\n9\r\n received\r\n0\r\n\r\n",
        HEAD + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b" % (len(BOMB), BOMB),
    ],
    ids=["nothing", "a few words", "in chunks", "a bomb"],
)
def test_a_short_answer_leaves_its_connection_to_the_next_export(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(BOMB) < MOST_BYTES
    with talking(answer) as talker:
        assert export(talker, monkeypatch, 3) == [MetricExportResult.SUCCESS] * 3
        assert (talker.connections, talker.exports) == (1, 3)


@pytest.mark.parametrize(
    ("answer", "then"),
    [
        (HEAD + b"\r\n", b"x" * 4096),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1000\r\n%b\r\n" % (b"x" * 4096)),
        (HEAD + b"content-encoding: gzip\r\n\r\n", BOMB),
    ],
    ids=["until it closes", "in chunks", "bombs"],
)
def test_an_answer_without_end_is_not_taken_in(answer: bytes, then: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking(answer, then=then) as talker:
        assert export(talker, monkeypatch, 2) == [MetricExportResult.SUCCESS] * 2
        assert (talker.connections, talker.exports) == (2, 2)
        # What the buffers of two sockets hold comes on top of what is read.
        assert talker.taken < MUCH


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"content-length: 100\r\n\r\nall rec",
        HEAD + b"transfer-encoding: chunked\r\n\r\nff\r\nall rec",
        HEAD + b"transfer-encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ids=["short of its length", "in mid-chunk", "no chunk"],
)
def test_an_answer_that_breaks_off_was_one_all_the_same(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking(answer, closes=True) as talker:
        assert export(talker, monkeypatch, 2) == [MetricExportResult.SUCCESS] * 2
        assert (talker.connections, talker.exports) == (2, 2)
