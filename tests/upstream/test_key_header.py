"""The header by which a provider knows keyed requests: it carries the key, once, and to nobody else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from proxy.exchange import Exchange
from proxy.fields import Fields, Shapes
from proxy.request import Request
from proxy.upstream.headers import HeaderPlan
from tests.fakes import FakeReply, make_exchange, with_attempt

Lines = Sequence[tuple[bytes, bytes]]
SHAPES = Shapes()


def an_exchange(lines: Lines, key: str | None) -> Exchange:
    exchange = make_exchange(reply=FakeReply())
    fields = Fields(SHAPES.of([name for name, _ in lines]), [value for _, value in lines])
    exchange.request = Request("POST", "/v1/x", fields)
    exchange.upstream_path, exchange.idempotency_key = "/v1/x", key
    with_attempt(exchange)
    return exchange


def sent(plan: HeaderPlan, lines: Lines, key: str | None) -> list[tuple[bytes, ...]]:
    head = plan.request_head(an_exchange(lines, key), -1)
    return [tuple(line.split(b": ", 1)) for line in head[:-4].split(b"\r\n")[2:]]


def a_plan(key_header: str | None) -> HeaderPlan:
    return HeaderPlan(host="p.test", own_credential=True, key_header=key_header, propagate_trace=False)


TAG = (b"x-tag", b"1")


@pytest.mark.parametrize("own", [(b"idempotency-key", b'"k/1"'), (b"Idempotency-Key", b"other"), (b"x-other", b"k")])
def test_it_carries_the_key_in_the_place_of_what_the_caller_wrote_there(own: tuple[bytes, bytes]) -> None:
    plan = a_plan("Idempotency-Key")
    for _ in range(2):
        rest = [own] if own[0] == b"x-other" else []
        assert sent(plan, [own, TAG], '"k/1"') == [*rest, TAG, (b"Idempotency-Key", b'"k/1"')]
        assert sent(plan, [own, TAG], None) == [own, TAG]


def test_a_provider_without_such_a_header_gets_only_the_caller_s_own() -> None:
    assert sent(a_plan(None), [(b"Idempotency-Key", b"k"), TAG], "k") == [(b"Idempotency-Key", b"k"), TAG]
    assert sent(a_plan(None), [(b"x-agent-id", b"a"), TAG], "a:1:2") == [(b"x-agent-id", b"a"), TAG]


def test_it_goes_along_whatever_a_connection_names() -> None:
    connection = (b"connection", b"x-tag")
    assert sent(a_plan("X-Once"), [connection, TAG, (b"x-once", b"mine")], "k") == [(b"X-Once", b"k")]


def test_bytes_that_are_no_text_pass_as_they_came() -> None:
    key = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert sent(a_plan("X-Once"), [TAG], key) == [TAG, (b"X-Once", b"\xff\xfe")]
