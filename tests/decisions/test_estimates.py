"""Estimates follow what is reported, keep to what can be, and reserve too little only now and then."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.counting import MOST_TOKENS, CountSettings
from proxy.decisions.estimates import (
    BYTES_PER_TOKEN,
    EVENT_BYTES,
    FEWEST,
    LEAST_BYTES,
    MEDIA_TOKENS,
    MOST_BYTES,
    OUTPUT_TOKENS,
    REMEMBERED,
    RESERVED_BYTES_PER_TOKEN,
    UNKNOWN_TOKENS,
    Estimates,
)
from proxy.dialects.demand import Demand
from proxy.exchange import Attempt, Usage
from proxy.outcome import OutcomeKind
from tests.fakes import LIMITS

COUNT = CountSettings()
INPUT_ONLY = CountSettings(reserve_output=False)
CHAT = Demand(text_bytes=4000)


def ended(usage: Usage | None, *, kind: OutcomeKind = OutcomeKind.OK, answer_bytes: int = 400) -> Attempt:
    attempt = Attempt(1, 1, "alpha", "m", LIMITS)
    attempt.kind, attempt.usage, attempt.answer_bytes = kind, usage, answer_bytes
    return attempt


def teach(estimates: Estimates, demand: Demand, usage: Usage, *, times: int = 1) -> None:
    for _ in range(times):
        estimates.learn(demand, ended(usage), stream=False)


def test_it_begins_with_what_is_usual() -> None:
    estimates = Estimates()
    assert estimates.input_tokens(CHAT) == 4000 / BYTES_PER_TOKEN
    assert estimates.reserve(CHAT, COUNT) == 4000 / RESERVED_BYTES_PER_TOKEN + OUTPUT_TOKENS


@pytest.mark.parametrize(
    ("demand", "output"),
    [
        (Demand(text_bytes=0, max_output=100), 100),
        (Demand(text_bytes=0, max_output=100, choices=4), 400),
        (Demand(text_bytes=0, max_output=100, choices=4, prompts=3), 1200),
        (Demand(text_bytes=0), OUTPUT_TOKENS),
        (Demand(text_bytes=0, choices=4), OUTPUT_TOKENS * 4),
        (Demand(text_bytes=0, choices=0), 0),
        (Demand(text_bytes=0, choices=0, max_output=100), 0),
    ],
)
def test_the_reservation_holds_all_that_the_caller_allows(demand: Demand, output: float) -> None:
    assert Estimates().reserve(demand, COUNT) == output
    assert Estimates().reserve(demand, INPUT_ONLY) == 0


def test_token_arrays_and_media_are_counted_beside_the_text() -> None:
    estimates = Estimates()
    demand = Demand(text_bytes=400, tokens=7, media=2, max_output=1)
    assert estimates.input_tokens(demand) == 400 / BYTES_PER_TOKEN + 7 + 2 * MEDIA_TOKENS


def test_a_body_that_is_not_understood_reserves_little_whatever_its_size() -> None:
    estimates = Estimates()
    assert estimates.reserve(None, COUNT) == 0
    assert estimates.reserve(None, COUNT, size=300) == 100
    assert estimates.reserve(None, COUNT, size=25_000_000) == UNKNOWN_TOKENS


def test_bytes_per_token_are_learned_from_what_is_reported() -> None:
    estimates = Estimates()
    teach(estimates, CHAT, Usage(2000, 10), times=REMEMBERED)
    assert estimates.input_tokens(CHAT) == 2000
    assert estimates.reserve(CHAT, INPUT_ONLY) == 2000


def test_few_reports_never_make_a_reservation_bolder() -> None:
    estimates = Estimates()
    teach(estimates, CHAT, Usage(400, 10), times=FEWEST - 1)
    assert estimates.reserve(CHAT, INPUT_ONLY) == 4000 / RESERVED_BYTES_PER_TOKEN
    teach(estimates, CHAT, Usage(400, 10))
    assert estimates.reserve(CHAT, INPUT_ONLY) == 400


def test_one_dense_prompt_makes_reservations_more_careful_at_once() -> None:
    estimates = Estimates()
    teach(estimates, CHAT, Usage(2200, 10))
    assert estimates.reserve(CHAT, INPUT_ONLY) == 2200


def test_what_changes_is_learned_anew() -> None:
    estimates = Estimates()
    teach(estimates, CHAT, Usage(500, 10), times=1000)
    teach(estimates, CHAT, Usage(2000, 10), times=REMEMBERED)
    assert estimates.input_tokens(CHAT) == 2000
    assert estimates.statistics().reports == REMEMBERED


@pytest.mark.parametrize("seed", range(5))
def test_a_reservation_is_too_small_for_a_few_calls_in_a_hundred(seed: int) -> None:
    """Bodies from 200 bytes to 100 kB, prose and code mixed, an envelope around each."""
    estimates, random = Estimates(), Random(seed)
    small, calls = 0, 4000
    reserved = used = 0.0
    for number in range(calls + REMEMBERED):
        size = int(10 ** random.uniform(2.3, 5))
        tokens = max(round((size - 60) / random.gauss(4.2, 0.5)), 1)
        demand = Demand(text_bytes=size)
        if number >= REMEMBERED:
            reservation = estimates.reserve(demand, INPUT_ONLY)
            small += reservation < tokens
            reserved += reservation
            used += tokens
        teach(estimates, demand, Usage(tokens, 1))
    assert 0.02 <= small / calls <= 0.10
    assert reserved <= used * 1.4


def test_rare_large_prompts_are_reserved_for_too() -> None:
    """Small bodies are mostly envelope: by them alone, the large ones would be taken for a third of their tokens."""
    estimates = Estimates()
    large = Demand(text_bytes=100_000)
    for number in range(200):
        teach(estimates, *((large, Usage(25_000, 9)) if number % 50 == 0 else (Demand(text_bytes=120), Usage(10, 9))))
    assert estimates.reserve(large, INPUT_ONLY) >= 25_000


def test_one_large_prompt_does_not_speak_for_the_small_ones() -> None:
    estimates = Estimates()
    small = Demand(text_bytes=300)
    for number in range(REMEMBERED):
        teach(estimates, *((Demand(text_bytes=900_000), Usage(90_000, 9)) if number == 50 else (small, Usage(100, 9))))
    assert estimates.reserve(small, INPUT_ONLY) >= 100


@pytest.mark.parametrize("seed", range(5))
def test_open_answers_are_reserved_for_as_nearly_all_of_them_are(seed: int) -> None:
    estimates, random = Estimates(), Random(seed)
    small, calls = 0, 4000
    for number in range(calls + REMEMBERED):
        tokens = round(random.lognormvariate(5, 0.8)) + 1
        small += number >= REMEMBERED and estimates.output_tokens(CHAT) < tokens
        teach(estimates, CHAT, Usage(1000, tokens))
    assert 0.03 <= small / calls <= 0.13


def test_answers_that_were_bounded_say_nothing_of_open_ones() -> None:
    estimates = Estimates()
    teach(estimates, Demand(text_bytes=4000, max_output=10), Usage(1000, 10), times=100)
    assert estimates.output_tokens(CHAT) == OUTPUT_TOKENS
    assert estimates.output_tokens(Demand(text_bytes=0, max_output=10, choices=2)) == 20


def test_several_answers_are_several() -> None:
    estimates = Estimates()
    teach(estimates, Demand(text_bytes=4000, choices=4), Usage(1000, 400), times=100)
    assert estimates.output_tokens(CHAT) == 100


def test_what_media_take_is_learned_apart_from_text() -> None:
    estimates = Estimates()
    pictures = Demand(text_bytes=400, media=3)
    teach(estimates, pictures, Usage(100 + 3 * 85, 10), times=200)
    assert estimates.input_tokens(pictures) == pytest.approx(355, rel=0.01)
    assert estimates.input_tokens(CHAT) == 1000


def test_token_arrays_say_nothing_of_text() -> None:
    estimates = Estimates()
    teach(estimates, Demand(text_bytes=0, tokens=500, choices=0), Usage(500), times=100)
    assert estimates.input_tokens(CHAT) == 1000
    assert estimates.statistics().reports == 0


def test_a_stream_has_more_bytes_a_token_than_a_whole_answer() -> None:
    estimates = Estimates()
    assert estimates.answer_tokens(1000, stream=True) == 1000 / EVENT_BYTES
    for _ in range(200):
        estimates.learn(CHAT, ended(Usage(1000, 100), answer_bytes=25_000), stream=True)
        estimates.learn(CHAT, ended(Usage(1000, 100), answer_bytes=900), stream=False)
    assert estimates.answer_tokens(25_000, stream=True) == pytest.approx(100, rel=0.01)
    assert estimates.answer_tokens(900, stream=False) == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize(
    "attempt",
    [
        ended(None),
        ended(Usage(0, 0)),
        ended(Usage(0, 500)),
        ended(Usage(10**12, 5)),
        ended(Usage(5, 10**12)),
        ended(Usage(-5, 5)),
        ended(Usage(1000, 5, estimated=True)),
        ended(Usage(1000, 1), kind=OutcomeKind.STREAM_BROKEN),
        ended(Usage(1000, 1), kind=OutcomeKind.CLIENT_LEFT),
        ended(Usage(1, 1)),
        ended(Usage(MOST_TOKENS, 1)),
    ],
    ids=str,
)
def test_what_cannot_be_so_teaches_nothing_of_text(attempt: Attempt) -> None:
    estimates = Estimates()
    for _ in range(50):
        estimates.learn(CHAT, attempt, stream=False)
    assert estimates.input_tokens(CHAT) == 1000
    assert estimates.reserve(CHAT, INPUT_ONLY) == 4000 / RESERVED_BYTES_PER_TOKEN


def test_a_body_that_is_not_understood_teaches_nothing() -> None:
    estimates = Estimates()
    estimates.learn(None, ended(Usage(1000, 1)), stream=False)
    assert estimates.statistics() == Estimates().statistics()


NUMBERS = st.integers(-10, 10**13)
DEMANDS = st.builds(
    Demand,
    text_bytes=st.integers(0, 10**8),
    tokens=st.integers(0, 10**6),
    media=st.integers(0, 100),
    max_output=st.none() | st.integers(1, 10**7),
    choices=st.integers(0, 128),
    prompts=st.integers(1, 2048),
)


@given(st.lists(st.tuples(DEMANDS, NUMBERS, NUMBERS, st.integers(0, 10**9), st.booleans()), max_size=60), DEMANDS)
def test_no_report_drives_an_estimate_beyond_what_can_be(
    reports: list[tuple[Demand, int, int, int, bool]], demand: Demand
) -> None:
    estimates = Estimates()
    for reported, given_tokens, output, answer_bytes, stream in reports:
        estimates.learn(reported, ended(Usage(given_tokens, output), answer_bytes=answer_bytes), stream=stream)
    known = estimates.statistics()
    for ratio in (known.bytes_per_token, known.reserved_bytes_per_token):
        assert LEAST_BYTES <= ratio <= MOST_BYTES
    assert 0 <= known.media_tokens <= 100_000
    assert 1 <= known.output_tokens <= MOST_TOKENS
    assert 0 <= estimates.input_tokens(demand) <= estimates.reserve(demand, COUNT) * 1.4
    assert estimates.reserve(demand, INPUT_ONLY) <= estimates.reserve(demand, COUNT)
    assert estimates.output_tokens(demand) >= 0


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=300, max_size=400))
def test_memory_is_bounded_and_what_is_old_is_forgotten(pairs: list[tuple[int, int]]) -> None:
    estimates = Estimates()
    for size, tokens in pairs:
        teach(estimates, Demand(text_bytes=size), Usage(tokens, 7))
    assert estimates.statistics().reports <= REMEMBERED
    teach(estimates, CHAT, Usage(1000, 7), times=REMEMBERED)
    assert estimates.input_tokens(CHAT) == 1000
    assert estimates.reserve(CHAT, INPUT_ONLY) == 1000
    assert estimates.output_tokens(CHAT) == 7


def test_it_says_what_it_knows() -> None:
    assert repr(Estimates()) == "<Estimates 4.00 bytes a token, 512 tokens an answer>"
