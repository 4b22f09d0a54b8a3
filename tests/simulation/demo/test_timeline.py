"""Breaker changes out of log lines."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import Any

import pytest

from proxy.observer import BreakerChanged
from proxy.runtime.log_format import log_handler
from proxy.runtime.log_line import RequestLog
from proxy.simulation.demo.log_reader import LogReader
from proxy.simulation.demo.timeline import Timeline, change_in


def line(state: str, *, second: int = 0, provider: str = "alpha") -> dict[str, Any]:
    return {
        "time": f"2026-11-30T12:00:{second:02}.500000Z",
        "logger": "sponson.process",
        "msg": f"breaker {state}",
        "provider": provider,
        "model": "m",
        "why": "consecutive",
        "open_seconds": 2.1,
    }


def test_a_breaker_s_line_is_a_change() -> None:
    change = change_in(line("half_open"))
    assert change is not None
    assert (change.provider, change.model, change.state) == ("alpha", "m", "half-open")
    assert change.at == 1796040000.5


def test_other_lines_are_none() -> None:
    assert change_in({"time": "2026-11-30T12:00:00Z", "logger": "sponson.process", "msg": "policy loaded"}) is None
    assert change_in({"logger": "sponson.request", "msg": "request"}) is None
    assert change_in({}) is None


def test_the_timeline_knows_which_breakers_are_not_closed() -> None:
    timeline = Timeline()
    timeline.read([line("open"), line("open", provider="beta")])
    assert timeline.not_closed == ["alpha m open", "beta m open"]
    found = timeline.read([line("half_open", second=2), {"msg": "request"}, line("closed", second=3)])
    assert [change.state for change in found] == ["half-open", "closed"]
    assert timeline.not_closed == ["beta m open"]
    assert [change.state for change in timeline.by_breaker["alpha", "m"]] == ["open", "half-open", "closed"]


def test_it_understands_what_the_proxy_really_logs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream, logger = io.StringIO(), logging.getLogger("sponson.process")
    handler = log_handler(stream, style="json")
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "sponson.process"):
            RequestLog().happened(
                BreakerChanged(
                    provider="alpha", model="m", old="closed", new="open", why="consecutive", open_seconds=2.0
                )
            )
    finally:
        logger.removeHandler(handler)
    log = tmp_path / "log"
    log.write_text(stream.getvalue())
    timeline = Timeline()
    (change,) = timeline.read(LogReader(log).new_lines())
    assert change.sentence == "breaker of alpha m: open for 2.0 s (too many failures in a row)"
