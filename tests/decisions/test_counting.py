"""What an ended attempt costs, by the way in which it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.counting import FREE, MOST_TOKENS, Charge, CountSettings, charge
from proxy.decisions.estimates import Estimates
from proxy.dialects.demand import Demand
from proxy.dialects.usage import anthropic_usage, openai_usage
from proxy.exchange import Attempt, Usage
from proxy.outcome import OutcomeKind
from tests.fakes import LIMITS

K = OutcomeKind
ENDS = list(OutcomeKind)
CUTS = [K.STREAM_BROKEN, K.IDLE_TIMEOUT, K.STREAM_TIMEOUT, K.TOTAL_TIMEOUT, K.CLIENT_LEFT, K.DRAINED]
NO_HEAD = [K.DISCONNECTED, K.FIRST_BYTE_TIMEOUT, K.ANSWER_TIMEOUT, K.TOTAL_TIMEOUT, K.CLIENT_LEFT, K.DRAINED, K.BUG]

PROMPT, ALLOWED = 1000, 600
CHAT = Demand(text_bytes=4 * PROMPT, max_output=ALLOWED)
RESERVED = 4 * PROMPT / 3 + ALLOWED
ANTHROPIC = {"input_tokens": 100, "cache_creation_input_tokens": 50, "cache_read_input_tokens": 850}


@dataclass
class End:
    """How the attempt ended; as a whole answer to a chat, unless said otherwise."""

    kind: OutcomeKind = K.OK
    status: int = 200
    sent: int = 4200
    answer_bytes: int = 0
    usage: Usage | None = None
    stream: bool = False

    @property
    def attempt(self) -> Attempt:
        attempt = Attempt(1, 1, "alpha", "m", LIMITS)
        attempt.kind, attempt.status, attempt.sent_bytes = self.kind, self.status, self.sent
        attempt.head_at = 1001.0 if self.status else 0.0
        attempt.answer_bytes, attempt.usage = self.answer_bytes, self.usage
        return attempt


def cost(
    end: End, count: CountSettings | None = None, *, demand: Demand | None = CHAT, reserved: float = RESERVED
) -> Charge:
    return charge(
        end.attempt,
        demand=demand,
        estimates=Estimates(),
        count=count or CountSettings(),
        reserved=reserved,
        stream=end.stream,
    )


@pytest.mark.parametrize("kind", ENDS)
def test_what_never_reached_the_provider_goes_back_whole(kind: OutcomeKind) -> None:
    assert cost(End(kind, status=0, sent=0)) == FREE


@pytest.mark.parametrize("kind", [K.REFUSED, K.UNREACHABLE, K.CONNECT_TIMEOUT])
def test_what_found_no_connection_goes_back_though_its_bytes_were_counted(kind: OutcomeKind) -> None:
    assert cost(End(kind, status=0)) == FREE


def test_a_408_of_a_server_that_was_closing_costs_nothing() -> None:
    assert cost(End(K.DISCONNECTED, status=408)) == FREE


def test_a_408_of_a_server_that_has_read_the_request_is_a_refusal() -> None:
    assert cost(End(K.UPSTREAM_ERROR, status=408)) == Charge(request=True, tokens=PROMPT)


@pytest.mark.parametrize("kind", ENDS)
def test_reported_usage_is_what_it_costs_however_it_ended(kind: OutcomeKind) -> None:
    usage = Usage(900, 30)
    charged = cost(End(kind, usage=usage))
    if kind in (K.REFUSED, K.ANSWERED, K.UNREACHABLE, K.CONNECT_TIMEOUT, K.DISCONNECTED):
        assert charged == FREE
    else:
        assert charged == Charge(request=True, tokens=930, usage=usage)


def test_more_than_was_reserved_is_charged_too() -> None:
    assert cost(End(usage=Usage(5000, 3000))).tokens == 8000


@pytest.mark.parametrize(("cached_input", "tokens"), [(1.0, 1100), (0.0, 300), (0.5, 700), (0.1, 380)])
@pytest.mark.parametrize(
    "usage",
    [
        openai_usage(
            {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 800}}
        ),
        openai_usage({"input_tokens": 1000, "output_tokens": 100, "input_tokens_details": {"cached_tokens": 800}}),
        anthropic_usage(
            {
                "input_tokens": 150,
                "cache_creation_input_tokens": 50,
                "cache_read_input_tokens": 800,
                "output_tokens": 100,
            }
        ),
    ],
    ids=["chat", "responses", "messages"],
)
def test_cached_input_counts_as_the_provider_counts_it(usage: Usage, cached_input: float, tokens: float) -> None:
    assert cost(End(usage=usage), CountSettings(cached_input=cached_input)).tokens == pytest.approx(tokens)


def test_no_more_can_be_cached_than_was_read() -> None:
    assert cost(End(usage=Usage(100, 10, 5000)), CountSettings(cached_input=0.0)).tokens == 10


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503, 529])
def test_a_refusal_of_the_provider_gives_the_output_back(status: int) -> None:
    assert cost(End(K.UPSTREAM_ERROR, status=status, answer_bytes=300)) == Charge(request=True, tokens=PROMPT)


@pytest.mark.parametrize("kind", NO_HEAD)
@pytest.mark.parametrize("stream", [True, False])
def test_what_may_have_been_executed_keeps_all_that_was_reserved(kind: OutcomeKind, stream: bool) -> None:
    charged = cost(End(kind, status=0, stream=stream))
    assert charged.request
    assert charged.tokens == RESERVED
    assert charged.usage == Usage(PROMPT, round(RESERVED - PROMPT), estimated=True)


def test_an_answer_that_cannot_be_read_may_have_been_executed() -> None:
    assert cost(End(K.BAD_ANSWER)).tokens == RESERVED


@pytest.mark.parametrize("kind", CUTS)
def test_a_cut_stream_costs_its_prompt_and_what_was_seen(kind: OutcomeKind) -> None:
    charged = cost(End(kind, stream=True, answer_bytes=20_000))
    assert charged == Charge(request=True, tokens=PROMPT + 200, usage=Usage(PROMPT, 200, estimated=True))


@pytest.mark.parametrize("kind", CUTS)
def test_a_stream_that_was_cut_before_its_first_byte_costs_its_prompt(kind: OutcomeKind) -> None:
    assert cost(End(kind, stream=True)).tokens == PROMPT


def test_a_whole_stream_without_a_report_costs_what_was_seen() -> None:
    charged = cost(End(stream=True, answer_bytes=20_000))
    assert charged == Charge(request=True, tokens=PROMPT + 200, usage=Usage(PROMPT, 200, estimated=True))


def test_a_cut_stream_whose_report_came_before_its_content_costs_what_was_seen() -> None:
    """Anthropic's first event tells the prompt, and of the output next to nothing."""
    usage = anthropic_usage({**ANTHROPIC, "output_tokens": 1})
    charged = cost(End(K.CLIENT_LEFT, stream=True, answer_bytes=20_000, usage=usage))
    assert charged == Charge(request=True, tokens=1200, usage=Usage(1000, 200, 850, estimated=True))


def test_a_cut_stream_whose_report_fits_what_was_seen_costs_what_was_told() -> None:
    usage = Usage(1000, 150)
    charged = cost(End(K.CLIENT_LEFT, stream=True, answer_bytes=20_000, usage=usage))
    assert charged == Charge(request=True, tokens=1150, usage=usage)


def test_a_whole_answer_without_a_report_costs_what_was_seen() -> None:
    assert cost(End(answer_bytes=400)).tokens == PROMPT + 100


def test_what_was_seen_is_never_more_than_the_caller_allowed() -> None:
    assert cost(End(answer_bytes=400_000)).tokens == PROMPT + ALLOWED
    assert cost(End(K.CLIENT_LEFT, stream=True, answer_bytes=400_000)).tokens == PROMPT + ALLOWED


def test_a_cut_answer_that_is_no_stream_was_generated_whole() -> None:
    usual = Estimates().output_tokens(CHAT)
    assert cost(End(K.STREAM_BROKEN, answer_bytes=40)).tokens == PROMPT + usual


def test_an_error_in_an_answer_generated_nothing() -> None:
    assert cost(End(K.ERROR_IN_ANSWER, answer_bytes=400)).tokens == PROMPT


def test_an_error_in_a_stream_costs_what_was_seen_before_it() -> None:
    assert cost(End(K.ERROR_IN_ANSWER, stream=True, answer_bytes=20_000)).tokens == PROMPT + 200


def test_an_embedding_costs_its_input_however_large_its_answer() -> None:
    demand = Demand(text_bytes=4000, choices=0)
    assert cost(End(answer_bytes=60_000), demand=demand).tokens == 1000
    assert cost(End(K.STREAM_BROKEN, answer_bytes=60_000), demand=demand).tokens == 1000


@pytest.mark.parametrize("usage", [Usage(), Usage(10**12, 5), Usage(5, 10**12), Usage(MOST_TOKENS + 1)], ids=str)
def test_a_report_that_cannot_be_so_is_none(usage: Usage) -> None:
    assert cost(End(answer_bytes=400, usage=usage)) == cost(End(answer_bytes=400))


def test_a_prompt_that_is_not_reported_is_estimated() -> None:
    charged = cost(End(usage=Usage(0, 300)))
    assert charged == Charge(request=True, tokens=1300, usage=Usage(PROMPT, 300, estimated=True))


def test_a_prompt_is_never_taken_for_more_than_was_reserved() -> None:
    assert cost(End(K.UPSTREAM_ERROR, status=500), reserved=700).tokens == 700


@pytest.mark.parametrize("end", [End(), End(K.UPSTREAM_ERROR, status=500), End(K.CLIENT_LEFT, stream=True)], ids=str)
def test_a_body_that_is_not_understood_costs_what_was_reserved(end: End) -> None:
    assert cost(end, demand=None, reserved=321.0).tokens == 321.0


def test_a_body_that_is_not_understood_costs_what_is_reported() -> None:
    assert cost(End(usage=Usage(5, 6)), demand=None, reserved=321.0).tokens == 11


@pytest.mark.parametrize(("unused_output", "tokens"), [(0.0, 1100), (0.5, 1350), (1.0, 1600)])
def test_output_that_was_allowed_and_not_used_counts_where_the_provider_counts_it(
    unused_output: float, tokens: float
) -> None:
    count = CountSettings(unused_output=unused_output)
    assert cost(End(usage=Usage(1000, 100)), count).tokens == tokens


def test_a_refusal_of_a_provider_that_counts_what_is_allowed_costs_that_too() -> None:
    count = CountSettings(unused_output=1.0)
    assert cost(End(K.RATE_LIMITED, status=429), count).tokens == PROMPT + ALLOWED


COUNTS = st.builds(
    CountSettings, cached_input=st.floats(0, 1), reserve_output=st.booleans(), unused_output=st.floats(0, 1)
)
TOKENS = st.integers(0, 10**5) | st.integers(0, 10**13)
USAGES = st.none() | st.builds(Usage, TOKENS, TOKENS, TOKENS)
DEMANDS = st.none() | st.builds(
    Demand, text_bytes=st.integers(0, 10**7), max_output=st.none() | st.integers(1, 10**7), choices=st.integers(0, 9)
)
ATTEMPTS = st.builds(
    End,
    kind=st.sampled_from(ENDS),
    status=st.sampled_from([0, 200, 400, 429, 503]),
    sent=st.integers(0, 10**6),
    answer_bytes=st.integers(0, 10**9),
    usage=USAGES,
    stream=st.booleans(),
)


@given(ATTEMPTS, COUNTS, DEMANDS)
def test_every_end_has_its_price_and_only_one(end: End, count: CountSettings, demand: Demand | None) -> None:
    reserved = Estimates().reserve(demand, count)
    charged: Any = cost(end, count, demand=demand, reserved=reserved)
    assert charged == cost(end, count, demand=demand, reserved=reserved)
    assert charged.tokens >= 0
    if not end.sent:
        assert charged == FREE
    if end.usage is None and not end.answer_bytes and count.reserve_output and not count.unused_output:
        assert charged.tokens <= reserved * (1 + 1e-9)
    if charged.usage is not None:
        assert 0 <= charged.usage.cached_input <= charged.usage.input
        assert charged.usage.output >= 0
