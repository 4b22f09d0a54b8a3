"""Compiled routes are recognised in a debugger."""

from __future__ import annotations

from proxy.decisions.classification import AnyRequest
from proxy.plan import RoutePlan
from tests.scripted import ScriptedTerminal


def test_a_route_shows_its_name_and_nothing_of_its_pipeline() -> None:
    plan = RoutePlan(
        name="chat",
        matcher=AnyRequest(),
        call=ScriptedTerminal(),
        total=600.0,
        body_max=10,
        body_replay=5,
        repeatable=None,
        needs_document=False,
    )
    assert repr(plan) == "<RoutePlan chat>"
    assert plan.prefix == ""
