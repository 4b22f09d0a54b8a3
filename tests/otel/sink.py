"""An OTLP collector that keeps what it gets; one that never answers; a port where nobody listens."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Sink:
    """What was received, and the address to send it to."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/metrics": []}
        self.credentials: list[str | None] = []

    def spans(self) -> list[Span]:
        """All spans, in the order of their arrival."""
        requests = map(ExportTraceServiceRequest.FromString, self.bodies["/v1/traces"])
        scopes = (s for request in requests for r in request.resource_spans for s in r.scope_spans)
        return [span for scope in scopes for span in scope.spans]

    def metrics(self) -> dict[str, Metric]:
        """The metrics of the last export, by name."""
        request = ExportMetricsServiceRequest.FromString(self.bodies["/v1/metrics"][-1])
        scopes = (scope for resource in request.resource_metrics for scope in resource.scope_metrics)
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def resource(self) -> dict[str, object]:
        """The attributes of the last exported spans' resource."""
        request = ExportTraceServiceRequest.FromString(self.bodies["/v1/traces"][-1])
        return attributes(request.resource_spans[0].resource.attributes)


def attributes(pairs: Iterable[KeyValue]) -> dict[str, object]:
    """OTLP's pairs as a dictionary."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in pairs}


@contextmanager
def collector(status: int = 200) -> Iterator[Sink]:
    """A collector on a free port of the loopback; it answers with this status."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            plain = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            sink.credentials.append(self.headers["authorization"])
            sink.bodies[self.path].append(plain)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sink = Sink(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def hanging_collector() -> Iterator[str]:
    """A collector that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def dead_collector() -> str:
    """The address of a port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"
