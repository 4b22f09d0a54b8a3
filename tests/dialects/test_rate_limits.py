"""What heads say of rate limits: every provider's spelling, and nothing out of junk."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.dialects.rate_limits import LARGEST, MOST_RESETS, RateLimits, rate_plan
from proxy.dialects.retry_after import LONGEST_SECONDS
from proxy.fields import fields_of
from tests.dialects.rate_limit_heads import HEADS, NOW, OPENAI, SECONDS_30


def said(head: str, *, wall_seconds: float = NOW) -> RateLimits | None:
    """What these lines say; None also where nothing in them is of interest."""
    pairs = [line.strip().split(":", 1) for line in head.strip().splitlines()]
    fields = fields_of([(name.encode(), value.strip(" ").encode()) for name, value in pairs])
    plan = rate_plan(fields.shape)
    return None if plan is None else plan.read(fields.lines, wall_seconds)


def words(rates: RateLimits | None) -> dict[str, Any]:
    """What was said, without what was not."""
    assert rates is not None
    pairs = ((name, getattr(rates, name)) for name in RateLimits.__slots__)
    return {name: value for name, value in pairs if value is not None}


@pytest.mark.parametrize("name", HEADS)
def test_every_providers_words_are_understood(name: str) -> None:
    head, expected = HEADS[name]
    assert words(said(head)) == pytest.approx(expected)


@pytest.mark.parametrize("name", HEADS)
def test_the_order_of_lines_means_nothing(name: str) -> None:
    head, expected = HEADS[name]
    assert words(said("\n".join(reversed(head.strip().splitlines())))) == pytest.approx(expected)


@pytest.mark.parametrize(
    "head",
    [
        "content-type: application/json",
        "x-ratelimit-reset-tokens: 6m0s",
        "x-ratelimit-limit-images: 5\nx-ratelimit-remaining-images: 4",
        "x-ratelimit-over-limit: no",
        "x-ratelimit: 5",
        "x-ratelimit-tokens-query-cost: 35",
        "my-x-ratelimit-remaining-tokens: 5",
        "ratelimit-policy: 100;w=60",
        "x-endpoint-monthly-call-limit: 1000",
    ],
)
def test_a_head_that_says_nothing_of_what_is_left_has_no_plan(head: str) -> None:
    name, _, value = head.partition(": ")
    assert rate_plan(fields_of([(name.encode(), value.encode())]).shape) is None
    assert said(head) is None


JUNK = [
    "-1",
    "-5",
    "1e3",
    "nan",
    "inf",
    "0x10",
    "+5",
    "5 left",
    "1_000",
    "٣",
    "²",
    "",
    "9" * 30,
    str(LARGEST),
    "1.2.3x",
]


@pytest.mark.parametrize("value", JUNK)
@pytest.mark.parametrize("name", ["x-ratelimit-remaining-requests", "anthropic-ratelimit-tokens-remaining"])
def test_what_is_no_count_says_nothing(name: str, value: str) -> None:
    found = said(f"{name}: {value}")
    assert found is None
    found = said(f"{name}: {value}\n{name.replace('remaining', 'limit')}: 100")
    assert found is not None
    assert (found.requests_remaining, found.tokens_remaining, found.part) == (None, None, None)


@pytest.mark.parametrize("limit", ["0", "-1", ""])
def test_nothing_left_of_nothing_is_unknown(limit: str) -> None:
    """Some of Azure's endpoints send 0 and -1 for what they do not know."""
    assert said(f"x-ratelimit-limit-tokens: {limit}\nx-ratelimit-remaining-tokens: 0") is None
    assert said("x-ratelimit-remaining-tokens: 0") is None
    assert words(said(f"x-ratelimit-limit-tokens: {limit}\nx-ratelimit-remaining-tokens: 7")) == {"tokens_remaining": 7}


def test_nothing_left_of_something_is_known() -> None:
    found = said("x-ratelimit-limit-tokens: 10\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 3s")
    assert words(found) == {
        "tokens_limit": 10, "tokens_remaining": 0, "tokens_reset": 3.0, "part": 0.0, "part_reset": 3.0,
    }  # fmt: skip


@pytest.mark.parametrize("value", [" 12", "12\t", "12.0", "12.9", "12, 12;w=60", "12;w=60", "0012"])
def test_a_count_may_be_dressed(value: str) -> None:
    fields = fields_of([(b"x-ratelimit-remaining-requests ", value.encode())])
    plan = rate_plan(fields.shape)
    assert plan is not None
    assert words(plan.read(fields.lines, NOW)) == {"requests_remaining": 12}


def test_what_is_said_twice_is_not_said() -> None:
    assert said("x-ratelimit-remaining-requests: 5\nX-RateLimit-Remaining-Requests: 900") is None
    found = said(OPENAI.rstrip() + "\nx-ratelimit-remaining-tokens: 5")
    assert found is not None
    assert (found.requests_remaining, found.tokens_remaining, found.tokens_limit) == (9999, None, 2000000)
    assert said('ratelimit: "a";r=5\nratelimit: "b";r=9') is None


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("12ms", 0.012),
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("17", 17.0),
        ("1796083230", 30.0),
        (SECONDS_30, 30.0),
        ("2026-12-01T01:00:30.5+01:00", 30.5),
        ("9" * 9, LONGEST_SECONDS),
        ("2099-01-01T00:00:00Z", LONGEST_SECONDS),
        ("2026-11-30T23:59:59Z", None),
        ("1970-01-01T00:00:00Z", None),
        ("0", None),
        ("0s", None),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("s", None),
        (".s", None),
        ("", None),
        ("1" * 300, None),
    ],
)
def test_resets(reset: str, seconds: float | None) -> None:
    found = said(f"x-ratelimit-limit-tokens: 4\nx-ratelimit-remaining-tokens: 1\nx-ratelimit-reset-tokens: {reset}")
    assert found is not None
    assert found.tokens_reset == (None if seconds is None else pytest.approx(seconds))
    assert found.part == 0.25


def test_a_reset_that_was_met_before_is_still_a_moment() -> None:
    pairs = ((b"limit", b"9"), (b"remaining", b"3"), (b"reset", SECONDS_30.encode()))
    fields = fields_of([(b"x-ratelimit-" + name, value) for name, value in pairs])
    plan = rate_plan(fields.shape)
    assert plan is not None
    assert [words(plan.read(fields.lines, NOW + late)).get("requests_reset") for late in (0, 10, 10, 40)] == [
        30.0, 20.0, 20.0, None,
    ]  # fmt: skip


def test_the_memory_of_resets_is_bounded() -> None:
    fields = fields_of([(b"x-ratelimit-limit", b"9"), (b"x-ratelimit-remaining", b"3"), (b"x-ratelimit-reset", b"")])
    plan = rate_plan(fields.shape)
    assert plan is not None
    for number in range(2 * MOST_RESETS):
        fields.lines[2] = b"%d.5s" % number
        assert words(plan.read(fields.lines, NOW))["requests_reset"] == number + 0.5
        assert len(plan._resets) <= MOST_RESETS


NAMES = sorted({line.strip().split(":")[0].encode() for head, _ in HEADS.values() for line in head.strip().split("\n")})
PIECES = st.sampled_from(
    [*(f"{n}" for n in (0, 1, 9, 60)), *'.-:,;="TZs', "ms", "m", "h", "nan", "inf", " ", "r=", "t="]
)
VALUES = (
    st.integers(0, 10**7).map(lambda number: b"%d" % number)
    | st.binary(max_size=40)
    | st.lists(PIECES, max_size=12).map(lambda parts: "".join(parts).encode())
    | st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.datetimes().map(lambda moment: moment.isoformat().encode() + b"Z")
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=16), st.floats(0, 4e9))
@example([(b"ratelimit", b"a;" * 127), (b"ratelimit-policy", b'"' * 255)], NOW)
def test_no_head_raises_or_leaves_the_bounds(pairs: list[tuple[bytes, bytes]], wall_seconds: float) -> None:
    fields = fields_of(pairs)
    plan = rate_plan(fields.shape)
    if plan is None:
        return
    found = plan.read(fields.lines, wall_seconds)
    if found is None:
        return
    for count in (found.requests_limit, found.tokens_limit):
        assert count is None or 0 < count < 2 * LARGEST
    for count in (found.requests_remaining, found.tokens_remaining):
        assert count is None or 0 <= count < 2 * LARGEST
    for seconds in (found.requests_reset, found.tokens_reset, found.part_reset):
        assert seconds is None or 0 < seconds <= LONGEST_SECONDS
    assert found.part is None or 0 <= found.part <= 1
    assert not math.isnan(found.part or 0.0)
    assert plan.read(fields.lines, wall_seconds) == found
