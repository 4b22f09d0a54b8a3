"""Heads that are nearly right: another parser finds in what goes on exactly what should, and no line more.

h11 reads every head that is made; which fields it must find is said here once more, by the words of RFC 9110 §7.6.1
and of the policy's rules on credentials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.rate_limits import rate_plan
from proxy.dialects.retry_after import retry_after_seconds
from proxy.exchange import Credential, Exchange, Facts
from proxy.fields import cleaned, fields_of
from proxy.request import Request
from proxy.trace_context import Sampler, join_trace, parse_traceparent
from proxy.upstream.headers import AnswerHeaders, HeaderPlan
from tests.dialects.rate_limit_heads import HEADS
from tests.fakes import FakeReply, counting_bits, with_attempt
from tests.fuzz import drawn

Line = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding "
    b"upgrade http2-settings".split()
)
OURS = frozenset(b"host content-length expect sec-websocket-protocol".split())
CREDENTIALS = frozenset(
    b"authorization x-api-key api-key x-goog-api-key cookie openai-organization openai-project x-own-key apikey "
    b"x-auth-token x-access-token x-amz-security-token ocp-apim-subscription-key cf-aig-authorization".split()
)
STAY = frozenset(b"content-type content-encoding content-range".split())
"""What tells how a body is read: `Connection` cannot name it away."""
NAMES = st.one_of(
    st.sampled_from(sorted(HOP_BY_HOP | OURS | CREDENTIALS | STAY)),
    st.sampled_from(b"x-a X-A x-added traceparent TraceState accept-encoding x-sponson-class via openai-beta".split()),
    st.sampled_from(
        b"anthropic-beta x-goog-user-project idempotency-key Content-type AUTHORIZATION cOnnection".split()
    ),
    st.text("abcXYZ019!#$%&'*+-.^_`|~", min_size=1, max_size=12).map(str.encode),
)
VALUES = st.one_of(
    st.sampled_from(
        (
            *(b"", b"x", b"close", b"keep-alive, x-a", b"x-a,,authorization , host", b"content-type", b"chunked"),
            *(b"%s %b", b"\xff\xfe", b"caf\xc3\xa9", b"a\tb", b"a=1,b=2", b"\\r\\n", b"h2c", b"0", b"-1", b"1e9"),
            *(b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01", b"Sun, 06 Nov 1994 08:49:37 GMT", b"6m0s"),
            b'"x";r=1;t=2, "y";r=0',
        )
    ),
    st.text([chr(code) for code in (9, *range(32, 127), *range(128, 256))], max_size=20).map(
        lambda text: text.encode("latin-1")
    ),
)
LINES = st.lists(st.tuples(NAMES, VALUES.map(lambda value: value.strip(b" \t"))), max_size=10)
KEY = Credential(key_id="k", header=(b"authorization", b"Bearer ours"))
ADDED = ((b"X-Added", b"by the policy"),)


def named(lines: Iterable[Line]) -> set[bytes]:
    """Returns the names that `Connection` names, in lower case."""
    values = (value for name, value in lines if name.lower() == b"connection")
    return {token.strip(b" \t").lower() for value in values for token in value.split(b",")}


def normal(lines: Iterable[Line]) -> list[Line]:
    """Returns fields as h11 tells them."""
    return [(name.lower(), value.strip(b" \t")) for name, value in lines]


def forwarded(lines: Sequence[Line], *, first: bool, own: bool, keyed: bool) -> list[Line]:
    """Returns what of a caller's fields goes on."""
    gone = named(lines) - CREDENTIALS - OURS - STAY
    foreign = (b"openai-", b"anthropic-beta", b"x-goog-")

    def passes(name: bytes) -> bool:
        if name in HOP_BY_HOP | OURS | gone | {b"traceparent", b"tracestate", b"x-added"}:
            return False
        if name.startswith(b"x-sponson-") or (keyed and name == b"idempotency-key"):
            return False
        if name in CREDENTIALS:
            return first and not own
        return first or not name.startswith(foreign)

    return [(name.lower(), value) for name, value in lines if passes(name.lower())]


def an_exchange(lines: Sequence[Line], *, first: bool, own: bool, key: str | None) -> Exchange:
    """Returns an exchange whose trace is the one that its own fields tell."""
    fields = fields_of(lines)
    facts = Facts(request_id="r", arrived_at=0.0, arrived_ns=0)
    state = ",".join(fields.getall("tracestate"))
    facts.trace = join_trace(fields.get("traceparent"), state, sampler=Sampler(ratio=1.0), bits=counting_bits)
    exchange = Exchange(Request("POST", "/v1/x", fields), FakeReply(), facts)
    exchange.upstream_path, exchange.first_target = "/v1/up?q=%2F&x=%ff", first
    exchange.credential = KEY if own else None
    exchange.idempotency_key = key
    with_attempt(exchange).span_id = 0xA1
    return exchange


def read_request(head: bytes) -> tuple[bytes, bytes, list[Line]]:
    """Reads a head as a server does; anything beyond one request fails."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(head + b"{}")
    request, data = server.next_event(), server.next_event()
    assert isinstance(request, h11.Request)
    assert isinstance(data, h11.Data)
    assert isinstance(server.next_event(), h11.EndOfMessage)
    assert server.trailing_data == (b"", False)
    return request.method, request.target, list(request.headers)


def goes_on(lines: Sequence[Line], *, first: bool, own: bool, key: str | None, hides: bool) -> None:
    plan = HeaderPlan(
        host="p.test:9",
        added=ADDED,
        own_credential=own,
        auth_headers=frozenset({b"x-own-key"}),
        key_header="Idempotency-Key",
        propagate_trace=True,
    )
    plan.pseudonym = b"sponson-7"
    exchange = an_exchange(lines, first=first, own=own, key=key)
    exchange.hides_usage = hides
    expected = forwarded(lines, first=first, own=own, keyed=key is not None)
    if hides:
        expected = [line for line in expected if line[0] != b"accept-encoding"]
    expected = [(b"host", b"p.test:9"), *normal(expected), *normal(ADDED)]
    expected += [(b"accept-encoding", b"identity")] * hides + [(b"via", b"1.1 sponson-7")]
    expected += [(b"authorization", b"Bearer ours")] * own
    expected += [] if key is None else [(b"idempotency-key", key.encode("utf-8", "surrogateescape"))]
    trace = exchange.facts.trace
    assert trace is not None
    for _ in range(2):  # the first builds what the second finds
        method, target, found = read_request(plan.request_head(exchange, 2))
        assert (method, target) == (b"POST", b"/v1/up?q=%2F&x=%ff")
        traced = [line for line in found if line[0] in (b"traceparent", b"tracestate")]
        assert [line for line in found if line not in traced] == [*expected, (b"content-length", b"2")]
        told = parse_traceparent(traced[0][1].decode())
        assert told is not None
        assert told[:2] == (trace.trace_id, 0xA1)


SEEDS: tuple[tuple[Line, ...], ...] = (
    (),
    ((b"Connection", b"authorization, HOST, content-length, x-a"), (b"x-a", b"1"), (b"Authorization", b"Bearer x")),
    ((b"connection", b"content-encoding"), (b"Content-Encoding", b"gzip")),
    ((b"X-%s", b"%b%d%"), (b"x-added", b"theirs"), (b"X-ADDED", b"too")),
    ((b"traceparent", b"00-" + b"0" * 32 + b"-" + b"1" * 16 + b"-01"), (b"tracestate", b"a=1"), (b"tracestate", b"")),
    ((b"traceparent", b"01-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01-more"), (b"tracestate", b"\xff=\xfe")),
    ((b"Cookie", b"a=1"), (b"cookie", b"b=2"), (b"COOKIE", b"")),
    ((b"keep-alive", b"timeout=5"), (b"TE", b"trailers"), (b"Trailer", b"x-a"), (b"x-a", b"\t1\t2")),
    ((b"idempotency-key", b"theirs"), (b"Idempotency-Key", b"twice")),
)
KEYS = st.none() | st.text("ab-_/=+ .~\xe9\udcff", min_size=1, max_size=9).map(str.strip).filter(bool)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("lines", SEEDS)
def test_kept_seeds_of_requests(lines: Sequence[Line], first: bool, own: bool) -> None:
    goes_on(lines, first=first, own=own, key="k\udce9", hides=first)


@given(LINES, st.booleans(), st.booleans(), KEYS, st.booleans())
@drawn(250)
def test_another_parser_finds_what_should_go_on(
    lines: list[Line], first: bool, own: bool, key: str | None, hides: bool
) -> None:
    goes_on(lines, first=first, own=own, key=key, hides=hides)


def comes_back(lines: Sequence[Line]) -> None:
    """An answer's head, read by h11 as its caller."""
    gone = HOP_BY_HOP | {b"content-length"} | (named(lines) - STAY - OURS - (CREDENTIALS - {b"x-own-key"}))
    names = [name for name, _ in lines]
    values = cleaned([value for _, value in lines])
    made = AnswerHeaders().forward(fields_of(zip(names, values, strict=True)))
    caller = h11.Connection(h11.CLIENT)
    caller.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    caller.send(h11.EndOfMessage())
    caller.receive_data(b"HTTP/1.1 200 OK\r\n" + made + b"content-length: 0\r\n\r\n")
    answer = caller.next_event()
    assert isinstance(answer, h11.Response)
    kept = [
        (name, value) for name, value in zip(names, values, strict=True)
        if name.lower() not in gone and not name.lower().startswith(b"x-sponson-")
    ]  # fmt: skip
    assert list(answer.headers) == [*normal(kept), (b"content-length", b"0")]


DIRTY = st.binary(max_size=20).map(lambda value: value.translate(None, b"\r\n\0").strip(b" \t"))


@given(st.lists(st.tuples(NAMES, VALUES.map(lambda value: value.strip(b" \t")) | DIRTY), max_size=10))
@drawn(250)
def test_another_parser_finds_what_should_come_back(lines: list[Line]) -> None:
    comes_back(lines)


RATE_NAMES = st.sampled_from(
    sorted({line.partition(":")[0].strip().encode() for head, _ in HEADS.values() for line in head.split("\n") if line})
)
RATED = st.lists(st.tuples(RATE_NAMES | NAMES, VALUES | DIRTY), max_size=10)


@given(RATED, st.floats(0, 4e9), st.booleans())
@drawn(250)
def test_what_is_read_of_limits_and_waits_in_any_head_is_sane(lines: list[Line], wall: float, limited: bool) -> None:
    fields = fields_of(lines)
    plan = rate_plan(fields.shape)
    if plan is not None:
        for _ in range(2):  # a reset that was read is remembered
            rates = plan.read(fields.lines, wall)
            if rates is not None:
                resets = [rates.requests_reset, rates.tokens_reset]
                assert all(reset is None or 0 <= reset < math.inf for reset in resets)
                counts = [rates.requests_remaining, rates.tokens_remaining]
                assert all(count is None or 0 <= count < math.inf for count in counts)
    seconds = retry_after_seconds(fields, wall_seconds=wall, limited=limited)
    assert seconds is None or 0 <= seconds <= 86400


@given(VALUES | DIRTY | st.text("0123456789abcdefF-", max_size=60).map(str.encode))
@drawn(250)
def test_any_traceparent_is_one_or_none(value: bytes) -> None:
    found = parse_traceparent(value.decode("utf-8", "surrogateescape"))
    if found is not None:
        trace_id, span_id, _ = found
        assert 0 < trace_id < 1 << 128
        assert 0 < span_id < 1 << 64
        assert f"{trace_id:032x}-{span_id:016x}".encode() in value
