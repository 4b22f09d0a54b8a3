"""Exporters come in when asked for, and complain at most once a minute."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from otel.exporters import RareWarnings

NAME = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
OTHER_NAME = "opentelemetry.exporter.otlp.proto.http.metric_exporter"


def a_record(level: int, at: float) -> logging.LogRecord:
    record = logging.LogRecord(NAME, level, "", 0, "dead", (), None)
    record.created = at
    return record


def test_one_warning_a_minute_passes() -> None:
    rare = RareWarnings()
    passed = [at for at in range(0, 200, 7) if rare.filter(a_record(logging.ERROR, 1e9 + at))]
    assert passed == [0, 63, 126, 189]
    assert rare.filter(a_record(logging.INFO, 1e9 + 190))


def test_it_is_shared_by_the_exporters_and_taken_away_again(caplog: pytest.LogCaptureFixture) -> None:
    with RareWarnings():
        for name in (NAME, OTHER_NAME, NAME):
            logging.getLogger(name).warning("dead")
        assert len(caplog.records) == 1
    logging.getLogger(NAME).warning("dead")
    assert len(caplog.records) == 2


@pytest.mark.parametrize("env", ["{'OTEL_SDK_DISABLED': 'true'}", "{}"])
def test_what_is_off_is_not_even_imported(env: str) -> None:
    code = f"""
import sys, time
from otel.setup import build_telemetry
build_telemetry({env}, wall_ns=time.time_ns)
print(*sorted(n for n in sys.modules if n in ("opentelemetry.sdk", "requests", "google.protobuf")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    expected = "" if "true" in env else "google.protobuf opentelemetry.sdk requests"
    assert done.stdout.strip() == expected
