"""Requests that share nothing, and what callers say of that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.decisions.likeness import LARGEST_BODY, Wish, wish_of
from proxy.exchange import Exchange
from proxy.fields import fields_of
from proxy.link import Link
from tests.decisions.asking import BODY, SCOPE, Lines, asked, name


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_whatever_else_has_no_body_shares_nothing(method: str) -> None:
    assert name(asked(b"", method=method)) == b""


@pytest.mark.parametrize(
    "body", [b"[]", b"x", b'{"a":1,"a":2}', b'{"a":NaN}', b"--b\r\n\r\n", b'"text"', b'{"a":"\xff"}', b" "]
)
def test_a_body_that_is_no_plain_object_shares_nothing(body: bytes) -> None:
    assert name(asked(body)) == b""


def of_size(size: int) -> Exchange:
    """A request whose body has that many bytes."""
    return asked(b'{"a":"%b"}' % (b"x" * (size - 8)))


def test_large_bodies_share_nothing() -> None:
    assert name(of_size(LARGEST_BODY))
    assert name(of_size(LARGEST_BODY + 1)) == b""


@pytest.mark.parametrize(
    "fields",
    [{"background": True}, {"background": 1}, {"background": "yes"}, {"conversation": "c1"}, {"conversation": {}}],
)
def test_what_goes_on_at_the_providers_shares_nothing(fields: dict[str, Any]) -> None:
    assert name(asked({**BODY, **fields})) == b""
    assert name(asked({**BODY, **fields}), replace(SCOPE, ignore=frozenset(fields))) == b""


@pytest.mark.parametrize("fields", [{"background": False}, {"background": None}, {"conversation": None}])
def test_what_does_not_go_on_has_a_name(fields: dict[str, Any]) -> None:
    assert name(asked({**BODY, **fields}))


@pytest.mark.parametrize(
    "header",
    [
        ("content-encoding", "gzip"), ("content-encoding", "identity"), ("cache-control", "no-store"),
        ("Cache-Control", "max-age=0, No-Store"), ("x-sponson-cache", "bypass"), ("X-Sponson-Cache", " BYPASS "),
        ("range", "bytes=0-1"), ("if-none-match", '"a"'), ("if-modified-since", "x"), ("if-match", "*"),
        ("if-unmodified-since", "x"), ("if-range", "x"),
    ],
)  # fmt: skip
def test_heads_that_ask_for_something_of_their_own_share_nothing(header: tuple[str, str]) -> None:
    assert name(asked(headers=[header])) == b""


def test_a_call_that_must_not_be_repeated_shares_nothing() -> None:
    exchange = asked()
    exchange.repeatable = False
    assert name(exchange) == b""


def test_a_call_that_begins_at_a_later_tier_shares_nothing() -> None:
    exchange = asked()
    exchange.first_tier = 2
    assert name(exchange) == b""


def test_a_body_that_was_not_read_shares_nothing() -> None:
    exchange = asked()
    exchange.request.body = None
    assert name(exchange) == b""


def test_a_websocket_shares_nothing() -> None:
    def switch(lines: bytes) -> Link:
        raise AssertionError

    exchange = asked(b"", method="GET")
    exchange.request.switch = switch
    assert name(exchange) == b""


@pytest.mark.parametrize(
    ("lines", "wish"),
    [
        ([], Wish.NOTHING),
        ([("accept", "no-store")], Wish.NOTHING),
        ([("cache-control", "max-age=0")], Wish.NOTHING),
        ([("cache-control", "bypass, refresh")], Wish.NOTHING),
        ([("x-sponson-cache", "no-store, no-cache")], Wish.NOTHING),
        ([("cache-control", "no-cache")], Wish.REFRESH),
        ([("cache-control", "private, NO-CACHE=x")], Wish.REFRESH),
        ([("x-sponson-cache", "Refresh")], Wish.REFRESH),
        ([("cache-control", "no-cache"), ("cache-control", "no-store")], Wish.BYPASS),
        ([("cache-control", "no-cache"), ("x-sponson-cache", "bypass")], Wish.BYPASS),
        ([("cache-control", "no-store"), ("x-sponson-cache", "refresh")], Wish.BYPASS),
        ([("cache-control", "\udcff,no-cache")], Wish.REFRESH),
    ],
)
def test_callers_say_what_they_wish(lines: Lines, wish: Wish) -> None:
    fields = fields_of((key.encode(), value.encode("utf-8", "surrogateescape")) for key, value in lines)
    assert wish_of(fields) is wish


def test_a_wish_for_news_does_not_change_the_name() -> None:
    assert name(asked(headers=[("cache-control", "no-cache"), ("x-sponson-cache", "refresh")])) == name(asked())
