"""Log lines as sentences."""

from __future__ import annotations

from proxy.simulation.demo.staying import sentence

TIME = "2026-11-30T12:00:00.500000Z"


def said(**line: object) -> str:
    """The sentence without its time of day."""
    return sentence({"time": TIME, **line}).partition("  ")[2]


def test_a_request_says_who_answered() -> None:
    request = {"logger": "sponson.request", "msg": "request", "route": "chat", "status": 200, "attempts": 3}
    ok = said(**request, outcome="ok", provider="beta", tier=2, total_ms=74.5)
    assert ok == "chat: 200, beta (tier 2), attempts 3, 74.5 ms"
    own = said(**request, outcome="answered", provider="beta", tier=3, total_ms=1)
    assert own == "chat: 200, the policy's own answer (tier 3), attempts 3, 1 ms"


def test_a_refusal_says_why() -> None:
    line = {"logger": "sponson.request", "method": "GET", "status": 404, "outcome": "refused", "reason": "no_route"}
    assert said(**line, attempts=0, total_ms=0.2).endswith("0.2 ms, no_route")


def test_a_rejected_policy_shows_every_problem() -> None:
    line = {
        "logger": "sponson.process",
        "msg": "policy rejected",
        "digest": "abc",
        "problems": ["a:1:1: x", "a:2:1: y"],
    }
    assert said(**line) == "policy rejected\na:1:1: x\na:2:1: y"


def test_a_loaded_policy_shows_its_revision() -> None:
    assert said(logger="sponson.process", msg="policy loaded", digest="abc", revision=2) == "policy loaded, revision 2"


def test_a_breaker_says_what_it_does() -> None:
    line = {"logger": "sponson.process", "msg": "breaker closed", "provider": "alpha", "model": "m", "why": "probes_ok"}
    assert said(**line) == "breaker of alpha m: closed (its probes succeeded)"
