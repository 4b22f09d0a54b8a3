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


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("with url: /v1/traces?key=tell-nobody (Caused by X)", "with url: … (Caused by X)"),
        ("No host in 'https://me:tell-nobody@collector/tell-nobody'", "No host in 'https://…'"),
        ("Failed to export spans batch code: 401", "Failed to export spans batch code: 401"),
    ],
)
def test_addresses_are_left_out(message: str, told: str, caplog: pytest.LogCaptureFixture) -> None:
    with RareWarnings():
        logging.getLogger(NAME).error("%s", message)
    assert [record.getMessage() for record in caplog.records] == [told]


def test_of_an_exception_only_its_kind_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with RareWarnings():
        try:
            raise ValueError("header value 'tell-nobody'")
        except ValueError:
            logging.getLogger(NAME).exception("Exception while exporting %s.", "Span")
    assert [record.getMessage() for record in caplog.records] == ["Exception while exporting Span. (ValueError)"]
    assert "tell-nobody" not in caplog.text


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
