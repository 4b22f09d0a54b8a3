"""Every spelling of "wait"."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from proxy.dialects.retry_after import EARLIEST_UNIX_SECONDS, LONGEST_SECONDS, reset_moment, retry_after_seconds

NOW = 784111774.0
"""Sun, 06 Nov 1994 08:49:34 GMT."""


def waits(fields: dict[str, str], now: float = NOW) -> float | None:
    return retry_after_seconds(CIMultiDict(fields), wall_seconds=now)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2", 2.0),
        (" 2\t", 2.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("007", 7.0),
        ("6m0s", 360.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 3.0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 3.0),
        ("Sun Nov  6 08:49:37 1994", 3.0),
        ("sun, 06 nov 1994 08:49:37 gmt", 3.0),
        ("Sun, 06 Nov 1994 08:49:60 GMT", 25.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Saturday, 06-Nov-93 08:49:37 GMT", 0.0),
        ("Wednesday, 06-Nov-52 08:49:37 GMT", 0.0),
        ("Wed, 01 Jan 2200 00:00:00 GMT", LONGEST_SECONDS),
        ("9" * 60, LONGEST_SECONDS),
        ("9" * 400, None),
        ("-5", None),
        ("+5", None),
        ("abc", None),
        ("", None),
        (" ", None),
        ("1e3", None),
        ("inf", None),
        ("nan", None),
        ("0x10", None),
        ("٣", None),
        ("2, 2", None),
        ("5 seconds", None),
        ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 28:49:37 GMT", None),
        ("Sun, 06 Xyz 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 0000 08:49:37 GMT", None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert waits({"Retry-After": value}) == seconds


def test_two_digit_years_go_on_after_the_century() -> None:
    assert waits({"retry-after": "Tuesday, 01-Dec-26 00:00:03 GMT"}, now=1796083200.0) == 3.0
    assert waits({"retry-after": "Sunday, 01-Dec-80 00:00:03 GMT"}, now=1796083200.0) == 0.0


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250.5"}, 0.2505),
        ({"Retry-After-Ms": "250", "Retry-After": "30"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "30"}, 30.0),
        ({"retry-after-ms": "-1"}, None),
    ],
)
def test_milliseconds_beat_seconds(fields: dict[str, str], seconds: float | None) -> None:
    assert waits(fields) == seconds


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("60s", 60.0),
        ("1d", 86400.0),
        ("150µs", 0.00015),
        ("17", 17.0),
        (str(int(NOW) + 1_000_000_030), LONGEST_SECONDS),
        ("-1", None),
        ("", None),
        ("s", None),
        ("1s!", None),
        ("1 s", None),
    ],
)
def test_reset_of_a_limit_that_is_used_up(reset: str, seconds: float | None) -> None:
    fields = {"X-RateLimit-Remaining-Tokens": "0", "X-RateLimit-Reset-Tokens": reset}
    assert waits(fields) == (None if seconds is None else pytest.approx(seconds))


def test_reset_as_unix_time() -> None:
    now = 1796083200.0
    for reset in ("1796083230", "1796083230000"):
        assert waits({"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}, now) == 30.0


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-requests": "6m0s"}, None),
        ({"x-ratelimit-remaining-requests": "-1", "x-ratelimit-reset-requests": "6m0s"}, None),
        ({"x-ratelimit-reset-requests": "6m0s"}, None),
        (
            {
                "x-ratelimit-remaining-requests": "3",
                "x-ratelimit-reset-requests": "6m0s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "2s",
                "x-ratelimit-remaining-project-tokens": "0",
                "x-ratelimit-reset-project-tokens": "3s",
            },
            3.0,
        ),
        ({"retry-after": "1", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}, 1.0),
        ({"retry-after": "junk", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "9s"}, 9.0),
    ],
)
def test_only_limits_that_are_used_up_count(fields: dict[str, str], seconds: float | None) -> None:
    assert waits(fields) == seconds


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "9"}, 9.0),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "9"}, 9.0),
        ({"ratelimitbysize-remaining": "0", "ratelimitbysize-reset": "41"}, 41.0),
        ({"x-ratelimitbysize-remaining-minute": "0", "x-ratelimitbysize-reset-minute": "41"}, 41.0),
        ({"ratelimitbysize-remaining": "5", "ratelimitbysize-reset": "41"}, None),
        ({"x-ratelimit-remaining-requests-day": "0", "x-ratelimit-reset-requests-day": "33011.4"}, 33011.4),
        ({"ratelimit": '"default";r=0;t=30'}, 30.0),
        ({"ratelimit": '"a";r=5;t=9, "b";r=0;t=30, "c";r=0;t=12'}, 30.0),
        ({"ratelimit": '"a";r=5;t=9'}, None),
        ({"ratelimit": '"a";r=05;t=9, "b";pr=0;t=4'}, None),
        ({"ratelimit": '"a";r=0'}, None),
        ({"ratelimit": "limit=100, remaining=0, reset=30"}, 30.0),
        ({"ratelimit": "limit=100, remaining=50, reset=30"}, None),
        ({"ratelimit": "limit=0, remaining=50, reset=30"}, None),
        ({"x-ratelimit-limit-requests": "0", "x-ratelimit-reset-requests": "9"}, None),
        ({"x-my-reset": "9", "x-my-remaining": "0"}, None),
    ],
)
def test_resets_of_other_providers_and_of_gateways(fields: dict[str, str], seconds: float | None) -> None:
    assert waits(fields) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("6m0s", 360.0),
        ("1796083230", 1796083230.0),
        ("1796083230000", 1796083230.0),
        ("2026-12-01T00:00:30Z", 1796083230.0),
        ("1994-11-06T08:50:04Z", EARLIEST_UNIX_SECONDS),
        ("9" * 12 + "h", LONGEST_SECONDS),
        ("soon", None),
    ],
)
def test_a_reset_is_a_time_or_a_moment(text: str, moment: float | None) -> None:
    assert reset_moment(text) == moment


USED_UP = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}


def test_a_wait_in_the_body_stands_between_headers_made_for_it_and_resets() -> None:
    told = {**USED_UP, "retry-after": "5"}
    assert retry_after_seconds(told, wall_seconds=NOW, in_body=39.5) == 5.0
    assert retry_after_seconds(USED_UP, wall_seconds=NOW, in_body=39.5) == 39.5
    assert retry_after_seconds(USED_UP, wall_seconds=NOW) == 360.0
    assert retry_after_seconds({}, wall_seconds=NOW, in_body=1e9) == LONGEST_SECONDS


def test_a_limit_that_is_used_up_is_no_wait_for_what_failed_otherwise() -> None:
    assert retry_after_seconds(USED_UP, wall_seconds=NOW, limited=False) is None
    assert retry_after_seconds({**USED_UP, "retry-after": "5"}, wall_seconds=NOW, limited=False) == 5.0


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1994-11-06T08:50:04Z", 30.0),
        ("1994-11-06T09:50:04+01:00", 30.0),
        ("1994-11-06t08:50:04.500z", 30.5),
        ("1994-11-06T08:00:00Z", 0.0),
        ("1994-11-06T08:50:04", None),
        ("1994-11-06", None),
        ("0001-01-01T00:00:00+14:00", 0.0),
        ("30", None),
    ],
)
def test_anthropic_resets(reset: str, seconds: float | None) -> None:
    fields = {
        "Anthropic-RateLimit-Input-Tokens-Remaining": "0",
        "Anthropic-RateLimit-Input-Tokens-Reset": reset,
    }
    assert waits(fields) == seconds
    fields["Anthropic-RateLimit-Input-Tokens-Remaining"] = "100"
    assert waits(fields) is None


NAMES = st.sampled_from(
    [
        "retry-after",
        "retry-after-ms",
        "x-ratelimit-reset",
        "x-ratelimit-remaining",
        "x-ratelimit-reset-tokens",
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-tokens-remaining",
        "ratelimit",
        "ratelimit-reset",
        "ratelimit-remaining",
    ]
)
PIECES = st.sampled_from(
    [
        "0",
        "1",
        "9",
        "59",
        "60",
        ".",
        "-",
        ":",
        " ",
        ",",
        "T",
        "Z",
        "+",
        "h",
        "m",
        "s",
        "ms",
        "GMT",
        "Sun",
        "Nov",
        ";r=0",
        ";t=",
    ]
)
TEXTS = st.text() | st.lists(PIECES, max_size=14).map("".join) | st.datetimes().map(lambda d: d.isoformat() + "Z")


@given(st.dictionaries(NAMES, TEXTS | st.just("0")), st.floats(0, 4e9))
def test_no_text_raises_or_leaves_the_bounds(fields: dict[str, str], now: float) -> None:
    seconds = retry_after_seconds(fields, wall_seconds=now)
    assert seconds is None or 0 <= seconds <= LONGEST_SECONDS
