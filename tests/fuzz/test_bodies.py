"""Request bodies that are nearly right: understood or refused, measured sanely, changed only where they should be."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.bodies import BodyMemory, BodySettings
from proxy.decisions.classification import Router
from proxy.decisions.idempotency import mark_of, name_of, read_key
from proxy.dialects.demand import demand_of
from proxy.dialects.injection import ask_for_usage
from proxy.dialects.lookup import operation_of
from proxy.dialects.splice import with_fields, with_model
from proxy.exchange import Exchange
from proxy.fields import fields_of
from proxy.outcome import OutcomeKind, Reason
from proxy.request import Request
from proxy.stages.classification import Classification
from tests.fakes import Ask, FakeUpload, make_exchange, settle
from tests.fuzz import drawn
from tests.fuzz.corpus import BODIES, PATHS
from tests.fuzz.mutations import CUTS, cut, mutated
from tests.scripted import ScriptedTerminal
from tests.stages.world import make_plan

SEEDS = (
    b"",
    b"{}",
    b"null",
    b"[{}]",
    b'{"model": 7, "model": "b", "mod\\u0065l": "c"}',
    b'{"model":"a","messages":[[],{},7,null,{"content":[[],{"type":[]},{"type":"image"}]}]}',
    b'{"model":"a","max_tokens":-1,"n":1e300,"best_of":"x","prompt":[[],[true],[[1]]]}',
    b'{"model":"a","max_tokens":1e400}',
    b'{"model":"a","input":[1,"x",2,[3]],"stream":1}',
    b'{"model":"\\ud800","messages":"x"}',
    b'{"model":"a","stream":true,"stream_options":[]}',
    b'{"model":"a","stream":true,"stream_options":{"include_usage":"yes"}}',
    b'{"model":"a" , \t"max_tokens" :\n3 }  ',
    b"\xef\xbb\xbf{}",
    b'{"a":' * 200 + b"1" + b"}" * 200,
    b"[" * 3000,
    b'{"model":"a","' + b"\\\\" * 50 + b'":1}',
)
TOKENS = (
    *(b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\\\", b'\\"', b"null", b"true", b"-1", b"1e999", b"0.5"),
    *(
        b'"model":',
        b'"model":"z",',
        b'"stream":true',
        b'"stream_options":{}',
        b'"messages":',
        b'"content":',
        b'"input":',
    ),
    *(b'"type":"image",', b'"max_tokens":3,', b'"n":2,', b"\\ud800", b"\xff", b"\0", b" ", b"\n", b"[[1,2]]", b"{}"),
    *(b"/* */", b"'", b"NaN", b"\\u006d", b"9" * 40, b'"x":"' + b"y" * 300 + b'",'),
)
REQUESTS = mutated((*BODIES, *SEEDS), TOKENS)
SET: dict[str, Any] = {"max_tokens": 5, "response_format": {"type": "json_object"}, 'odd "name"': None}


async def classified(body: bytes, path: str, places: list[int]) -> Exchange | None:
    """Lets a body in pieces be understood; None when it was refused as no JSON object."""
    terminal = ScriptedTerminal()
    plan = make_plan(terminal)
    plan.needs_document = True
    stage = Classification(Router([plan], by_provider={}, default=None), BodyMemory(BodySettings()))
    upload = FakeUpload(tuple(filter(None, cut(body, places))))
    exchange = make_exchange(Ask(target=path, headers=(("content-type", "application/json"),), upload=upload))
    outcome = await stage(exchange)
    await settle()
    if outcome.kind is OutcomeKind.OK:
        return exchange
    assert outcome.reason is Reason.BAD_REQUEST
    return None


def is_object(body: bytes) -> bool:
    try:
        return isinstance(orjson.loads(body), dict)
    except orjson.JSONDecodeError:
        return False


async def understood(body: bytes, path: str, places: list[int]) -> None:
    exchange = await classified(body, path, places)
    assert (exchange is not None) == (is_object(body) or not body)
    if exchange is None:
        return
    assert exchange.request.body == body
    assert (exchange.document is not None) == bool(body)
    demand = demand_of(exchange)
    if demand is not None:
        assert 0 <= demand.text_bytes <= len(body)
        assert all(0 <= count < math.inf for count in (demand.tokens, demand.media, demand.output_limit or 0))
        changed = demand.changed_by(SET)
        assert changed.output_limit is None or 0 <= changed.output_limit < math.inf
    bare = Request("POST", path, exchange.request.fields)
    assert (mark_of(exchange.request) == mark_of(bare)) == (not body)


def changed(body: bytes, path: str) -> None:
    """What a tier changes, and nothing else, is another value afterwards."""
    document = orjson.loads(body)
    for new, wanted in (
        (with_model(body, "other", document), {**document, "model": "other"}),
        (with_fields(body, document, SET), {**document, **SET}),
    ):
        assert orjson.loads(new) == wanted
    operation = operation_of(path)
    assert operation is not None
    asking = ask_for_usage(body, document, operation)
    if asking is not None:
        options = document.get("stream_options") or {}
        assert orjson.loads(asking) == {**document, "stream_options": {**options, "include_usage": True}}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", SEEDS)
async def test_kept_seeds(body: bytes, path: str) -> None:
    await understood(body, path, [1, 7])
    if is_object(body):
        changed(body, path)


@given(REQUESTS, st.sampled_from(PATHS), CUTS)
@drawn(120)
async def test_any_body_is_understood_or_refused(body: bytes, path: str, places: list[int]) -> None:
    await understood(body, path, places)


@given(REQUESTS.filter(is_object), st.sampled_from(PATHS))
@drawn(80)
def test_any_object_is_changed_only_where_it_should_be(body: bytes, path: str) -> None:
    changed(body, path)


PARTS = st.lists(st.binary(max_size=6), max_size=4)


@given(PARTS, PARTS)
@drawn(200)
def test_different_parts_never_have_one_name(some: list[bytes], others: list[bytes]) -> None:
    assert (name_of(some) == name_of(others)) == (some == others)


NAMES = st.sampled_from([b"idempotency-key", b"Idempotency-Key", b"x-task"])
VALUES = st.binary(max_size=9).map(lambda value: value.translate(None, b"\r\n\0"))


@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=4),
    st.sampled_from([("idempotency-key",), ("x-task", "idempotency-key")]),
)
@drawn(200)
def test_any_fields_give_a_key_or_the_reason_why_not(
    lines: list[tuple[bytes, bytes]], headers: tuple[str, ...]
) -> None:
    found = read_key(headers, fields_of(lines))
    if isinstance(found, str):
        assert found
    else:
        assert not found.detail or found.detail.isprintable()
