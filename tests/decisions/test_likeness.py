"""Names of requests: equal for those that one answer serves, and for no others."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.idempotency import NAME_BYTES
from proxy.decisions.likeness import VERSION_HEADERS, Likeness, headers_of
from proxy.exchange import Exchange
from proxy.fields import fields_of
from tests.decisions.asking import BODY, SCOPE, Lines, asked, name


def test_equal_requests_have_one_name() -> None:
    assert len(name(asked())) == NAME_BYTES
    assert name(asked()) == name(asked(json.dumps(dict(reversed(BODY.items())), indent=1).encode()))


def test_headers_that_change_no_answer_do_not_count() -> None:
    noise = [("user-agent", "x"), ("traceparent", "00-1"), ("x-request-id", "7"), ("authorization", "Bearer 1")]
    assert name(asked()) == name(asked(headers=noise))


ONE_CHANGE: dict[str, Exchange] = {
    "nothing": asked(),
    "model": asked({**BODY, "model": "m2"}),
    "text": asked({**BODY, "messages": [{"role": "user", "content": "Q"}]}),
    "role": asked({**BODY, "messages": [{"role": "system", "content": "q"}]}),
    "stream": asked({**BODY, "stream": True}),
    "stream said": asked({**BODY, "stream": False}),
    "temperature": asked({**BODY, "temperature": 1}),
    "temperature as it is written": asked({**BODY, "temperature": 1.0}),
    "seed": asked({**BODY, "seed": 1}),
    "big seed": asked({**BODY, "seed": 36893488147419103232}),
    "next big seed": asked({**BODY, "seed": 36893488147419103233}),
    "unknown": asked({**BODY, "unknown": None}),
    "user": asked({**BODY, "user": "u"}),
    "path": asked(target="/v2/chat/completions"),
    "query": asked(target="/v1/chat/completions?a=1"),
    "empty query": asked(target="/v1/chat/completions?"),
    "method": asked(method="PUT"),
    "tenant": asked(tenant="t2"),
    "nobody": asked(tenant=""),
    **{
        f"{header} {value!r}": asked(headers=[(header, value)])
        for header in VERSION_HEADERS
        for value in ("", "a", "b")
    },
    **{
        f"{header} {value}": asked(headers=[(header, value)])
        for header in ("openai-safety-identifier", "anthropic-new-switch", "X-Goog-User-Project")
        for value in "ab"
    },
    "two lines": asked(headers=[("accept", "a"), ("accept", "b")]),
    "two lines, other order": asked(headers=[("accept", "b"), ("accept", "a")]),
    "one line with both": asked(headers=[("accept", "a, b")]),
    "two headers": asked(headers=[("accept", "a"), ("accept-language", "b")]),
    "two headers, exchanged": asked(headers=[("accept", "b"), ("accept-language", "a")]),
}


def test_every_pair_of_requests_that_differ_in_one_thing_has_two_names() -> None:
    names = {what: name(exchange) for what, exchange in ONE_CHANGE.items()}
    assert all(names.values())
    assert not [pair for pair in combinations(names, 2) if names[pair[0]] == names[pair[1]]]


KEYED = replace(SCOPE, credentials=("authorization", "x-api-key"))
SCOPES = {
    "plain": SCOPE,
    "route": replace(SCOPE, route=b"other"),
    "target": replace(SCOPE, target=b"beta"),
    "shared": replace(SCOPE, scope="route"),
    "by credential": replace(KEYED, scope="credential"),
    "cut elsewhere": replace(SCOPE, route=b"chata", target=b"lpha"),
}


def test_no_two_scopes_share() -> None:
    exchange = asked(headers=[("authorization", "Bearer 1")])
    assert len({name(exchange, scope) for scope in SCOPES.values()}) == len(SCOPES)


def test_a_route_may_share_between_tenants() -> None:
    scope = replace(SCOPE, scope="route")
    assert name(asked(tenant="t1"), scope) == name(asked(tenant="t2"), scope)


@pytest.mark.parametrize("scope", ["tenant", "route", "credential"])
def test_callers_with_credentials_of_their_own_share_with_nobody_else(scope: Any) -> None:
    likeness = Likeness(replace(KEYED, scope=scope))
    credentials: list[Lines] = [
        [],
        [("authorization", "Bearer 1")],
        [("authorization", "Bearer 2")],
        [("x-api-key", "Bearer 1")],
        [("authorization", "Bearer 1"), ("x-api-key", "k")],
        [("authorization", "Bearer 1"), ("authorization", "Bearer 2")],
        [("authorization", "\udcff")],
    ]
    names = {likeness.name(asked(headers=lines)) for lines in credentials}
    assert len(names) == len(credentials)
    assert names == {likeness.name(asked(headers=lines)) for lines in credentials}


def test_one_credential_of_two_tenants_shares_where_the_policy_says_so() -> None:
    lines = [("authorization", "Bearer 1")]
    scope = replace(KEYED, scope="credential")
    assert name(asked(headers=lines, tenant="t1"), scope) == name(asked(headers=lines, tenant="t2"), scope)
    assert name(asked(headers=lines, tenant="t1"), KEYED) != name(asked(headers=lines, tenant="t2"), KEYED)


def test_tenants_without_any_credential_do_not_share_in_its_scope() -> None:
    scope = replace(KEYED, scope="credential")
    assert name(asked(tenant="t1"), scope) != name(asked(tenant="t2"), scope)


def test_a_credential_is_no_tenant() -> None:
    tenant, route = KEYED, replace(KEYED, scope="route")
    lines = [("authorization", "t1")]
    assert (
        len({name(asked(headers=lines, tenant=each), scope) for each in ("t1", "") for scope in (tenant, route)}) == 3
    )


def test_headers_of_the_route_count_whatever_their_case() -> None:
    likeness = Likeness(replace(SCOPE, headers=("X-Model-Set",)))
    names = {likeness.name(asked(headers=lines)) for lines in ([], [("X-MODEL-SET", "a")], [("x-model-set", "b")])}
    assert len(names) == 3
    assert likeness.keyed == {*VERSION_HEADERS, "x-model-set"}


def test_credentials_are_keyed() -> None:
    assert Likeness(KEYED).keyed == {*VERSION_HEADERS, "authorization", "x-api-key"}


def test_ignored_fields_do_not_count() -> None:
    scope = replace(SCOPE, ignore=frozenset({"user"}))
    assert (
        name(asked({**BODY, "user": "a"}), scope) == name(asked({**BODY, "user": "b"}), scope) == name(asked(), scope)
    )


@pytest.mark.parametrize(("field", "one", "other"), [("stream", True, False), ("model", "m1", "m2")])
def test_some_fields_count_in_any_case(field: str, one: Any, other: Any) -> None:
    scope = replace(SCOPE, ignore=frozenset({field}))
    assert name(asked({**BODY, field: one}), scope) != name(asked({**BODY, field: other}), scope)


def test_texts_are_normalised_where_the_policy_says_so() -> None:
    loud = {**BODY, "messages": [{"role": "user", "content": " Q "}]}
    assert name(asked(loud)) != name(asked())
    scope = replace(SCOPE, spaces=True, case=True)
    assert name(asked(loud), scope) == name(asked(), scope)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_needs_no_body(method: str) -> None:
    assert name(asked(b"", method=method, target="/v1/models"))


def test_reading_the_head_is_not_reading_it_all() -> None:
    names = {name(asked(b"", method=method, target=f"/v1/{path}")) for method in ("GET", "HEAD") for path in "ab"}
    assert len(names) == 4


NAMES = ("a", "b", "c")
LINES = st.lists(
    st.tuples(st.sampled_from([b"a", b"A", b"b", b"c", b"d", b"openai-x"]), st.binary(max_size=3)), max_size=5
)


def values_of(lines: list[tuple[bytes, bytes]]) -> list[list[str]]:
    """A reference: what each of the headers says, line by line; white space around it says nothing."""
    fields = fields_of(lines)
    return [fields.getall(each) for each in (*NAMES, "openai-x")]


@given(LINES, LINES)
def test_headers_are_equal_exactly_where_their_lines_are(
    one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]
) -> None:
    parts = [list(headers_of(fields_of(lines), NAMES)) for lines in (one, other)]
    assert (parts[0] == parts[1]) == (values_of(one) == values_of(other))


TEXTS = st.text(st.sampled_from("ab:1\udcff"), max_size=3)


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), min_size=2, max_size=2, unique=True))
def test_no_two_callers_or_heads_look_alike(cases: list[tuple[str, str, str, str]]) -> None:
    names = set()
    for route, tenant, credential, accept in cases:
        exchange = asked(tenant=tenant, headers=[("authorization", credential), ("accept", accept)])
        scope = replace(KEYED, route=route.encode("utf-8", "surrogateescape"))
        names.add(name(exchange, scope))
    assert len(names) == 2


FIELD_NAMES = st.sampled_from(["seed", "stop", "top_p", "tools", "n", "x"])
FIELD_VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(FIELD_NAMES, FIELD_VALUES), st.dictionaries(FIELD_NAMES, FIELD_VALUES))
def test_bodies_are_equal_exactly_where_their_fields_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (name(asked({**BODY, **one})) == name(asked({**BODY, **other}))) == same
