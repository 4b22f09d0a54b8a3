from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.exchange import Credential, Exchange, Facts
from proxy.fields import LARGEST_SHAPE, MOST_SHAPES, Fields, RawHeaders, Shapes, fields_of, pairs_of
from proxy.request import Request
from proxy.trace_context import TraceContext, parse_traceparent
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from tests.fakes import FakeReply, with_attempt

Lines = Sequence[tuple[bytes, bytes]]
TRACE_ID, SPAN_ID = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0xA1
OURS_LINE = (b"authorization", b"Bearer sk-ours")
KEY = Credential(key_id="k1", header=OURS_LINE)

HOP_BY_HOP = [
    *(b"Connection", b"Keep-Alive", b"Proxy-Connection", b"Proxy-Authorization", b"Proxy-Authenticate"),
    *(b"TE", b"Trailer", b"Transfer-Encoding", b"Upgrade", b"HTTP2-Settings"),
]
OURS = [b"Host", b"Content-Length", b"Expect"]
CREDENTIALS = [
    *(b"Authorization", b"x-api-key", b"API-Key", b"X-Goog-Api-Key", b"Cookie"),
    *(b"OpenAI-Organization", b"openai-project", b"apikey", b"X-Auth-Token", b"x-access-token"),
    *(b"X-Amz-Security-Token", b"Ocp-Apim-Subscription-Key", b"cf-aig-authorization"),
]
FOREIGN = [b"OpenAI-Beta", b"anthropic-beta", b"x-goog-user-project"]
PORTABLE = [b"Content-Type", b"accept", b"User-Agent", b"X-Tag", b"x-debug", b"anthropic-version", b"x-stainless-os"]
NAMED = [b"x-debug", b"X-Tag", b"close", b"keep-alive", b"authorization", b"Host", b"content-length"]

SHAPES = Shapes()

values = st.binary(max_size=12).map(lambda raw: raw.translate(None, b"\r\n\0").strip())
plain_fields = st.tuples(st.sampled_from(HOP_BY_HOP[1:] + OURS + CREDENTIALS + FOREIGN + PORTABLE), values)
connections = st.tuples(st.just(b"connection"), st.lists(st.sampled_from(NAMED), max_size=3).map(b" , ".join))
header_lists = st.lists(st.one_of(plain_fields, plain_fields, connections), max_size=12)


def low(names: Sequence[bytes]) -> set[bytes]:
    return {name.lower() for name in names}


def repeated(raw: RawHeaders) -> Fields:
    """The fields of a head as a connection has them: the shape of their names is known by now."""
    return Fields(SHAPES.of([name for name, _ in raw]), [value for _, value in raw])


def an_exchange(headers: RawHeaders = (), *, first: bool = True, key: Credential | None = None) -> Exchange:
    request = Request("POST", "/v1/x", repeated(headers))
    facts = Facts(request_id="r1", arrived_at=0.0, arrived_ns=0)
    facts.trace = TraceContext(
        trace_id=TRACE_ID, span_id=7, parent_span_id=0, sampled=True, tracestate="a=1", remote=False
    )
    exchange = Exchange(request, FakeReply(), facts)
    exchange.upstream_path, exchange.first_target, exchange.credential = "/v1/up?q=%2F", first, key
    with_attempt(exchange).span_id = SPAN_ID
    return exchange


def a_plan(*, own: bool = False, trace: bool = False, added: Lines = (), auth: bytes = b"") -> HeaderPlan:
    auths = frozenset({auth.lower()} if auth else ())
    return HeaderPlan(host="p.test:9", added=added, own_credential=own, auth_headers=auths, propagate_trace=trace)


def lines_of(head: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    assert head.endswith(b"\r\n\r\n")
    top, *lines = head[:-4].split(b"\r\n")
    fields = []
    for line in lines:
        name, mark, value = line.partition(b": ")
        assert mark, line
        fields.append((name, value))
    return top, fields


def head_of(plan: HeaderPlan, exchange: Exchange, length: int | None = 2) -> list[tuple[bytes, bytes]]:
    return lines_of(plan.request_head(exchange, length))[1]


@given(header_lists, st.booleans(), st.booleans())
def test_what_reaches_a_provider(headers: Lines, first: bool, own: bool) -> None:
    exchange = an_exchange(headers, first=first, key=KEY if own else None)
    host, *rest = head_of(a_plan(own=own), exchange)
    length = rest.pop()
    assert (host, length) == ((b"host", b"p.test:9"), (b"content-length", b"2"))
    if own:
        assert rest.pop() == OURS_LINE
    tokens = [token for name, value in headers if name == b"connection" for token in value.split(b",")]
    named = {token.strip().lower() for token in tokens} - low(CREDENTIALS + OURS)
    gone = low(HOP_BY_HOP + OURS) | named
    if own or not first:
        gone |= low(CREDENTIALS)
    if not first:
        gone |= low(FOREIGN)
    assert rest == [field for field in headers if field[0].lower() not in gone]


@given(header_lists)
def test_a_plan_answers_the_same_however_often_it_is_asked(headers: Lines) -> None:
    plan, used = a_plan(), a_plan()
    for first in (True, False, True):
        used.request_head(an_exchange(headers, first=first), 2)
    for first in (False, True):
        exchange = an_exchange(headers, first=first)
        assert used.request_head(exchange, 2) == plan.request_head(exchange, 2)


def test_what_a_connection_names_holds_for_its_own_request_only() -> None:
    plan, tag = a_plan(), (b"X-Tag", b"1")
    for connection, passes in [(b"keep-alive", True), (b"x-tag", False), (b"close", True), (b"x-tag", False)]:
        fields = head_of(plan, an_exchange([tag, (b"Connection", connection)]), -1)
        assert fields == [(b"host", b"p.test:9"), *[tag] * passes]


def test_it_forgets_before_callers_that_never_repeat_themselves_fill_the_memory() -> None:
    plan, answers = a_plan(), AnswerHeaders()
    for index in range(2 * MOST_SHAPES):
        field = (b"x-%d" % index, b"v")
        assert field in head_of(plan, an_exchange([field]))
        assert answers.forward(repeated([field])) == b"x-%d: v\r\n" % index
    assert 0 < len(plan._known[True]) <= MOST_SHAPES
    assert 0 < len(answers._known) <= MOST_SHAPES


def test_what_was_worked_out_for_a_head_too_large_to_be_known_again_is_not_kept() -> None:
    plan, answers = a_plan(), AnswerHeaders()
    large = [(b"x-%d-%b" % (index, b"n" * 60), b"v") for index in range(LARGEST_SHAPE // 60)]
    for _ in range(3):
        assert head_of(plan, an_exchange(large), -1) == [(b"host", b"p.test:9"), *large]
        assert pairs_of(answers.forward(repeated(large))) == large
    assert len(plan._known[True]) == len(answers._known) == 0


def test_a_percent_sign_in_a_name_or_an_added_value_is_no_format() -> None:
    plan = a_plan(added=[(b"x-rate", b"5%d")])
    assert head_of(plan, an_exchange([(b"x%b", b"%s")]), -1) == [
        (b"host", b"p.test:9"),
        (b"x%b", b"%s"),
        (b"x-rate", b"5%d"),
    ]


@pytest.mark.parametrize(
    ("length", "framing"),
    [
        (0, [(b"content-length", b"0")]),
        (7, [(b"content-length", b"7")]),
        (None, [(b"transfer-encoding", b"chunked")]),
        (-1, []),
    ],
)
def test_one_framing_of_our_own(length: int | None, framing: Lines) -> None:
    theirs = [(b"Content-Length", b"99"), (b"Transfer-Encoding", b"chunked")]
    assert head_of(a_plan(), an_exchange(theirs), length) == [(b"host", b"p.test:9"), *framing]


def test_the_request_line_has_the_path_byte_for_byte() -> None:
    exchange = an_exchange()
    exchange.upstream_path = "/a%2Fb/\udcff?x=%zz"
    assert lines_of(a_plan().request_head(exchange, -1))[0] == b"POST /a%2Fb/\xff?x=%zz HTTP/1.1"


def test_the_policy_s_own_headers_replace_the_caller_s() -> None:
    theirs = [(b"X-Team", b"theirs"), (b"x-other", b"1")]
    fields = head_of(a_plan(added=[(b"x-team", b"search")]), an_exchange(theirs), -1)
    assert fields == [(b"host", b"p.test:9"), (b"x-other", b"1"), (b"x-team", b"search")]


@pytest.mark.parametrize("added", [[], [(b"Accept-Encoding", b"br"), (b"x-team", b"search")]])
def test_an_answer_that_is_to_be_looked_through_must_come_unpacked(added: Lines) -> None:
    exchange = an_exchange([(b"Accept-Encoding", b"gzip"), (b"x-other", b"1"), (b"accept-encoding", b"br")])
    exchange.hides_usage = True
    fields = head_of(a_plan(added=added), exchange, -1)
    assert fields == [(b"host", b"p.test:9"), (b"x-other", b"1"), *added[1:], (b"accept-encoding", b"identity")]


def test_naming_a_field_of_ours_in_connection_does_not_remove_it() -> None:
    theirs = [(b"Connection", b"x-team, authorization, host"), (b"x-team", b"theirs")]
    fields = head_of(a_plan(own=True, added=[(b"x-team", b"search")]), an_exchange(theirs, key=KEY), -1)
    assert fields == [(b"host", b"p.test:9"), (b"x-team", b"search"), OURS_LINE]


@pytest.mark.parametrize("auth", [b"api-key", b"X-Custom-Key"])
def test_a_key_replaces_what_the_caller_sent_in_its_place(auth: bytes) -> None:
    key = Credential(key_id="k1", header=(auth, b"ours"))
    fields = head_of(a_plan(own=True, auth=auth), an_exchange([(auth.lower(), b"theirs")], key=key), -1)
    assert fields == [(b"host", b"p.test:9"), (auth, b"ours")]


@pytest.mark.parametrize(
    ("first", "own", "passes"), [(True, False, True), (False, False, False), (True, True, False), (False, True, False)]
)
@pytest.mark.parametrize("name", [b"x-acme-key", b"X-ACME-Key"])
@pytest.mark.parametrize("connection", [b"keep-alive", b"x-acme-key"], ids=["plain", "named in connection"])
def test_a_credential_in_any_provider_s_own_header_goes_only_where_the_caller_meant_it(
    connection: bytes, name: bytes, first: bool, own: bool, passes: bool
) -> None:
    theirs = [(b"Connection", connection), (name, b"theirs")]
    plan = a_plan(own=own, auth=b"x-acme-key")
    fields = head_of(plan, an_exchange(theirs, first=first), -1)
    assert fields == [(b"host", b"p.test:9"), *[(name, b"theirs")] * passes]


def test_without_a_key_there_is_no_credential_at_all() -> None:
    fields = head_of(a_plan(), an_exchange(first=False, key=Credential(key_id="none", header=None)), -1)
    assert fields == [(b"host", b"p.test:9")]


def test_exactly_one_trace_parent_with_this_attempt_as_the_parent() -> None:
    theirs = [
        (b"TraceParent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        (b"tracestate", b"b=2"),
        (b"baggage", b"x=1"),
    ]
    fields = head_of(a_plan(trace=True), an_exchange(theirs), -1)
    assert [name.lower() for name, _ in fields] == [b"host", b"baggage", b"traceparent", b"tracestate"]
    assert parse_traceparent(dict(fields)[b"traceparent"].decode()) == (TRACE_ID, SPAN_ID, True)
    assert dict(fields)[b"tracestate"] == b"a=1"


@pytest.mark.parametrize(("version", "spoken"), [((1, 1), b"1.1"), ((1, 0), b"1.0")])
@pytest.mark.parametrize("own", [True, False])
def test_our_name_in_via_follows_the_others_and_cannot_be_taken_away(
    version: tuple[int, int], spoken: bytes, own: bool
) -> None:
    plan = a_plan(own=own, added=[(b"x-team", b"search")])
    plan.pseudonym = b"sponson-1%"
    for connection in (b"keep-alive", b"close, x-debug"):
        exchange = an_exchange([(b"Via", b"1.1 a"), (b"connection", connection), (b"via", b"1.0 b")])
        exchange.request.version = version
        vias = [value for name, value in head_of(plan, exchange) if name.lower() == b"via"]
        assert vias == [b"1.1 a", b"1.0 b", spoken + b" sponson-1%"]
    named = an_exchange([(b"via", b"1.1 a"), (b"connection", b"via")])
    assert [value for name, value in head_of(plan, named) if name.lower() == b"via"] == [b"1.1 sponson-1%"]


def test_fields_of_our_own_that_a_caller_sends_do_not_go_on() -> None:
    theirs = [(b"X-Sponson-Trail", b"1"), (b"x-sponson-class", b"P2")]
    assert head_of(a_plan(), an_exchange(theirs), -1) == [(b"host", b"p.test:9")]


ANSWER_NAMES = [*HOP_BY_HOP[1:], b"Content-Length", b"Set-Cookie", b"Date", b"X-Up", b"content-encoding", b"link"]
answer_lists = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(ANSWER_NAMES), values),
        st.tuples(st.just(b"Connection"), st.sampled_from([b"close", b"X-Up, close", b"x-up", b"keep-alive"])),
    ),
    max_size=10,
)


@given(answer_lists)
def test_what_reaches_the_caller(headers: Lines) -> None:
    named = {t.strip().lower() for n, v in headers if n == b"Connection" for t in v.split(b",")}
    gone = low([*HOP_BY_HOP, b"content-length"]) | named
    assert pairs_of(AnswerHeaders().forward(fields_of(headers))) == [f for f in headers if f[0].lower() not in gone]


OF_CONTENT = [(b"Content-Type", b"text/plain"), (b"content-encoding", b"gzip"), (b"Content-Range", b"bytes 0-1/9")]


@pytest.mark.parametrize("name", [b"Content-Type", b"content-encoding, close", b"x-up, CONTENT-RANGE"])
def test_connection_cannot_take_away_what_tells_how_a_body_is_read(name: bytes) -> None:
    told = AnswerHeaders().forward(fields_of([(b"Connection", name), (b"x-up", b"1"), *OF_CONTENT]))
    assert pairs_of(told)[-3:] == OF_CONTENT
    asked = head_of(a_plan(), an_exchange([(b"connection", name), *OF_CONTENT]), 2)
    assert [field for field in asked if field in OF_CONTENT] == OF_CONTENT


def test_every_connection_line_of_an_answer_is_read() -> None:
    lines = [(b"Connection", b"keep-alive"), (b"X-Up", b"1"), (b"connection", b"x-up"), (b"Date", b"now")]
    assert AnswerHeaders().forward(fields_of(lines)) == b"Date: now\r\n"


def test_a_provider_cannot_speak_in_our_name() -> None:
    assert AnswerHeaders().forward(fields_of([(b"X-Sponson-Reason", b"no_route")])) == b""


@pytest.mark.parametrize("name", [b"content-length ", b"Transfer-Encoding ", b"connection "])
def test_a_name_with_a_space_before_its_colon_is_never_forwarded_as_it_is(name: bytes) -> None:
    """RFC 9112 §5.1: a proxy removes such white space from an answer. The parser lets these names through."""
    assert AnswerHeaders().forward(fields_of([(name, b"2")])) == b""
