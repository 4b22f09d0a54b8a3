from __future__ import annotations

from proxy.decisions.breaker import Breaker, BreakerSettings, BreakerState, BreakerStatistics
from proxy.decisions.verdict import Verdict

NOW = 1000.0


def a_breaker() -> Breaker:
    return Breaker(BreakerSettings(consecutive=1), first_byte=30.0, jitter=lambda: 0.0)


def test_the_words_are_those_that_operators_read() -> None:
    assert [state.value for state in BreakerState] == ["closed", "open", "half_open"]


def test_a_snapshot_says_what_has_happened_until_now() -> None:
    breaker = a_breaker()
    for verdict in (Verdict.SUCCESS, Verdict.FAILURE):
        ticket = breaker.acquire(NOW, stream=False)
        assert ticket is not None
        ticket.on_wire(NOW)
        ticket.end(verdict, NOW)
    assert breaker.statistics(NOW) == BreakerStatistics(
        state=BreakerState.OPEN,
        calls=2,
        failures=1,
        slow=0,
        consecutive=0,
        probes_running=0,
        retry_after=30.0,
        generation=1,
        ceiling=None,
    )
