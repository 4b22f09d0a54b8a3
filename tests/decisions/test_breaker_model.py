"""The breaker in every order of events, beside a model that counts everything anew."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.verdict import Verdict
from tests.decisions.breaker_model import ANSWER, HALF_OPEN, OPEN, Call
from tests.decisions.breaker_pair import Pair

QUARTERS = st.integers(1, 40).map(lambda quarters: quarters / 4)
VERDICTS = st.sampled_from(list(Verdict))
TOLD = st.sampled_from([None, None, 1.0, 20.0, 1000.0])
SHARES = st.sampled_from([0, 1, 3, 4, 10, 43])
FIRST_BYTES = st.sampled_from([4.5, 6.0])
PATIENCE = st.sampled_from([2.0, float("inf")])


@st.composite
def breaker_settings(draw: st.DrawFn) -> BreakerSettings:
    return BreakerSettings(
        failure_ratio=draw(st.sampled_from([0.0, 0.4, 0.5, 1.0])),
        window_calls=draw(st.sampled_from([4, 8])),
        window_seconds=draw(st.sampled_from([10.0, 30.0])),
        min_calls=draw(st.sampled_from([2, 4])),
        consecutive=draw(st.sampled_from([0, 2, 3])),
        slow_after=draw(st.sampled_from([None, 1.0, 3.0])),
        slow_ratio=draw(st.sampled_from([0.5, 0.8])),
        open_first=draw(st.sampled_from([2.0, 5.0])),
        open_cap=draw(st.sampled_from([5.0, 12.0])),
        probes=draw(st.sampled_from([1, 2, 3])),
    )


class Breakers(RuleBasedStateMachine):
    """Random interleavings of calls, time and reloads."""

    calls = Bundle("calls")

    @initialize(rules=breaker_settings(), first_byte=FIRST_BYTES, share=SHARES, jitter=st.sampled_from([0.0, 0.5, 1.0]))
    def begin(self, rules: BreakerSettings, first_byte: float, share: int, jitter: float) -> None:
        self.pair = Pair(rules, first_byte=first_byte, share=share, jitter=jitter)

    @rule(target=calls, stream=st.booleans())
    def acquire(self, stream: bool) -> object:
        return self.pair.acquire(stream=stream, queue=10.0) or multiple()

    @rule(call=calls)
    def on_wire(self, call: Call) -> None:
        self.pair.start(call)

    @rule(call=calls)
    def first_content(self, call: Call) -> None:
        self.pair.content(call)

    @rule(call=calls, verdict=VERDICTS, told=TOLD, slow_after=PATIENCE)
    def end(self, call: Call, verdict: Verdict, told: float | None, slow_after: float) -> None:
        """Any call may end at any time, again and again, and long after its generation."""
        self.pair.end(call, verdict, told, slow_after=slow_after)

    @rule(verdict=st.sampled_from([Verdict.SUCCESS, Verdict.FAILURE]), times=st.integers(1, 4), stream=st.booleans())
    def whole_calls(self, verdict: Verdict, times: int, stream: bool) -> None:
        """Calls from begin to end, so that the states change often."""
        for _ in range(times):
            call = self.pair.acquire(stream=stream, queue=10.0)
            if call is not None:
                self.pair.start(call)
                self.pair.end(call, verdict)

    @rule(call=consumes(calls))
    def forget(self, call: Call) -> None:
        """A call that nobody hears of again: its task died without a word."""

    @rule(seconds=QUARTERS)
    def passes(self, seconds: float) -> None:
        self.pair.wait(seconds)

    @precondition(lambda self: self.pair.model.state is OPEN)
    @rule()
    def open_time_passes(self) -> None:
        self.pair.wait(self.pair.model.open_until - self.pair.now)
        assert self.pair.breaker.state is HALF_OPEN

    @rule(rules=breaker_settings(), first_byte=FIRST_BYTES, share=SHARES)
    def reload(self, rules: BreakerSettings, first_byte: float, share: int) -> None:
        self.pair.reload(rules, first_byte=first_byte, share=share)

    @invariant()
    def it_does_as_the_model_says(self) -> None:
        if hasattr(self, "pair"):
            self.pair.check()

    def teardown(self) -> None:
        """Whatever happened: when its probes have ended or died, a call may go again after the open time at most."""
        if not hasattr(self, "pair"):
            return
        pair = self.pair
        for call in pair.model.leases():
            if call.started_at is None:
                pair.end(call, Verdict.NOT_RECORDED)
        pair.wait(ANSWER)
        if pair.model.state is OPEN:
            pair.wait(pair.model.open_until - pair.now)
        assert pair.acquire(stream=True, queue=0.0) is not None


TestBreakers = Breakers.TestCase
TestBreakers.settings = settings(max_examples=150, stateful_step_count=60)
