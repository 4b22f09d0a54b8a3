"""The printed report fits a terminal and drops nothing."""

from __future__ import annotations

import io

from rich.console import Console

from proxy.simulation.demo.report import OperationRow, ProviderRow
from proxy.simulation.demo.tables import breakers_table, print_report
from proxy.simulation.demo.timeline import Change, Timeline

OPERATIONS = [
    OperationRow(
        name=name,
        requests=1234,
        ok=1200,
        not_ok={"queue_timeout": 34},
        answered_by={(1, "alpha"): 1100, (3, "the policy"): 100},
        attempts=1357,
        p50=123.4,
        p99=None,
        first_byte_p50=99.6,
    )
    for name in ("chat", "chat stream", "embeddings", "messages", "chat burst", "messages burst")
]
PROVIDERS = [
    ProviderRow(
        name=name,
        share=16,
        peak=15,
        attempts=1357,
        failed=12,
        retries=8,
        refused={"breaker_open": 247},
        waited=0,
        waited_ms=None,
        input_tokens=67390,
        output_tokens=35680,
    )
    for name in ("alpha", "beta", "gamma")
]


def printed(timeline: Timeline, *, width: int) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width)
    print_report(console, OPERATIONS, PROVIDERS, breakers_table(timeline, began=100.0))
    return out.getvalue()


def test_eighty_columns_are_enough_for_every_word_and_number() -> None:
    text = printed(Timeline(), width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for words in ("embeddings", "by tier 3, the policy", "not ok: queue_timeout", "first byte P50, ms", "passed over"):
        assert words in text
    (requests,) = (line.split() for line in text.splitlines() if line.split()[:1] == ["requests"])
    assert requests == ["requests"] + ["1234"] * 6


def test_what_there_is_not_is_a_dash() -> None:
    lines = printed(Timeline(), width=80).splitlines()
    assert next(line.split() for line in lines if "P99, ms" in line) == ["P99,", "ms"] + ["–"] * 6


def test_breakers_show_their_states_with_times() -> None:
    timeline = Timeline()
    for at, state in ((103.0, "open"), (105.1, "half-open"), (105.34, "closed")):
        timeline.changes.append(Change(at=at, provider="alpha", model="m", state=state, why="consecutive"))
    plain = printed(timeline, width=100).replace("\u00a0", " ")
    assert "closed → 3.0 s open → 5.1 s half-open → 5.3 s closed" in plain
    assert "closed, all the time" in printed(Timeline(), width=100)
