"""Headers: what of the caller's reaches a provider, what is added, what of an answer reaches the caller.

Compiled once per provider. Rules: RFC 9110 §7.6.1 (connection-level fields end here), `policy.md` rule 4 (credentials).
Values are bytes throughout and never decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final, TypeVar

from proxy.dialects.rate_limits import RatePlan, rate_plan
from proxy.exchange import Exchange
from proxy.fields import MOST_SHAPES, Fields, Shape
from proxy.trace_context import traceparent_of
from proxy.websocket.handshake import OFFER, SWITCH, offer_line

T = TypeVar("T")

KEEP: Final = 0
DROP: Final = 1
CREDENTIAL: Final = 2
FOREIGN: Final = 3
"""Belongs to the provider that the caller meant: an account, a beta switch."""

_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade http2-settings".split()
)
_OURS: Final = frozenset([*b"host content-length expect".split(), OFFER])
_TRACE: Final = frozenset(b"traceparent tracestate".split())
_OTHER_TRACES: Final = frozenset(
    b"baggage b3 x-b3-traceid x-b3-spanid x-b3-parentspanid x-b3-sampled x-b3-flags uber-trace-id x-amzn-trace-id "
    b"x-cloud-trace-context x-datadog-trace-id x-datadog-parent-id x-datadog-sampling-priority x-datadog-origin "
    b"x-datadog-tags sentry-trace newrelic elastic-apm-traceparent".split()
)
"""What other tracers of the caller's put beside it, or in its place: theirs to pass on, where any may be."""
CREDENTIALS: Final = frozenset(
    b"authorization x-api-key api-key x-goog-api-key cookie openai-organization openai-project "
    b"apikey x-auth-token x-access-token x-amz-security-token ocp-apim-subscription-key cf-aig-authorization".split()
)
"""What tells a caller's account, at model services and at gateways, besides the headers that a policy names."""
_FOREIGN_PREFIXES: Final = (b"openai-", b"anthropic-beta", b"x-goog-")
_OF_CONTENT: Final = frozenset(b"content-type content-encoding content-range".split())
"""For everybody who reads the body (RFC 9110 §7.6.1: no option may name them): without them it would be misread."""
_UNTOUCHABLE: Final = CREDENTIALS | _OURS | _OF_CONTENT
_SEPARATOR: Final = b": "
_END: Final = b"\r\n"
_ACCEPT_ENCODING: Final = b"accept-encoding"


_FIRST, _UNPACKED, _KEYED, _OLD = 1, 2, 4, 8
_CURRENT: Final = (1, 1)


class HeaderPlan:
    """How one provider's request heads are built.

    `auth_headers` are those of every provider, in lower case: a caller's credential for one never reaches another.
    `key_header` carries a request's idempotency key, in the place of what the caller wrote there; without it the key
    goes no further than the caller's own headers take it. `pseudonym`, set before the first use, is ours in `Via`,
    behind those of the proxies before us (RFC 9110 §7.6.3); without it there is no such line.
    """

    __slots__ = (
        "_added", "_added_unpacked", "_credentials", "_dropped", "_host", "_key_header", "_key_line", "_known",
        "_own_credential", "_propagate_trace", "pseudonym",
    )  # fmt: skip

    def __init__(
        self,
        *,
        host: str,
        added: Iterable[tuple[bytes, bytes]] = (),
        own_credential: bool,
        auth_headers: frozenset[bytes] = frozenset(),
        key_header: str | None = None,
        propagate_trace: bool,
    ) -> None:
        added = tuple(added)
        self._host = host.encode("ascii") + _END
        self._added = b"".join(name + _SEPARATOR + value + _END for name, value in added)
        self._added_unpacked = (
            b"".join(name + _SEPARATOR + value + _END for name, value in added if name.lower() != _ACCEPT_ENCODING)
            + b"accept-encoding: identity\r\n"
        )
        # Where the trace is not passed on, the caller's own context is not either.
        self._dropped = _HOP_BY_HOP | _OURS | _TRACE | {name.lower() for name, _ in added}
        if not propagate_trace:
            self._dropped |= _OTHER_TRACES
        self._credentials = CREDENTIALS | auth_headers
        self._own_credential = own_credential
        self._propagate_trace = propagate_trace
        name = key_header.encode("latin-1") if key_header is not None else b""
        self._key_header = frozenset({name.lower()} if name else ())
        self._key_line = name + _SEPARATOR
        self.pseudonym = b""
        self._known: tuple[dict[Shape, Block], ...] = tuple({} for _ in range(16))

    def request_head(self, exchange: Exchange, length: int | None) -> bytes:
        """Builds the head of one attempt; `length` is the body's, None for chunked, -1 for no body at all."""
        request = exchange.request
        credential = exchange.credential
        kind, key_line = exchange.first_target + _UNPACKED * exchange.hides_usage, b""
        if self._key_header and (key := exchange.idempotency_key) is not None:
            kind, key_line = kind + _KEYED, self._key_line + key.encode("utf-8", "surrogateescape") + _END
        if request.version != _CURRENT:
            kind += _OLD
        return b"".join(
            (
                f"{request.method} {exchange.upstream_path} HTTP/1.1\r\nhost: ".encode("utf-8", "surrogateescape"),
                self._forwarded(request.fields, kind),
                credential.line if credential is not None else b"",
                key_line,
                self._trace(exchange) if self._propagate_trace else b"",
                _framing(length),
            )
        )

    def handshake_head(self, exchange: Exchange) -> bytes:
        """Builds the head that asks for a WebSocket; secrets in its offer go no further than the caller's own do."""
        secrets = exchange.first_target and not self._own_credential
        offer = offer_line(exchange.request.fields, secrets=secrets)
        return self.request_head(exchange, -1).removesuffix(_END) + SWITCH + offer + _END

    def _forwarded(self, fields: Fields, kind: int) -> bytes:
        """Returns our host, the caller's lines that go on, and what the policy adds; `kind` adds up what is asked for.

        `_FIRST`: the provider is the one that the caller meant. `_UNPACKED`: the answer must come as it is, because it
        is looked through; a packed one could not be. `_KEYED`: the line with the key follows, the only one of its name.
        `_OLD`: it came in version 1.0.
        """
        if named := connection_names(fields):
            return self._compiled(fields.shape, kind, named - self._credentials).fill(fields.lines)
        known = self._known[kind]
        block = known.get(fields.shape)
        if block is None:
            block = self._compiled(fields.shape, kind, _NONE)
            remember(known, fields.shape, block)
        return block.fill(fields.lines)

    def _compiled(self, shape: Shape, kind: int, named: frozenset[bytes]) -> Block:
        """Works out which lines of a head of this shape go on."""
        first, unpacked = kind & _FIRST, kind & _UNPACKED
        if unpacked:
            named |= {_ACCEPT_ENCODING}
        if kind & _KEYED:
            named |= self._key_header

        def passes(name: bytes) -> bool:
            action = self._judge(name)
            return name.lower() not in named and (
                action == KEEP
                or bool(first and (action == FOREIGN or (action == CREDENTIAL and not self._own_credential)))
            )

        after = self._added_unpacked if unpacked else self._added
        if self.pseudonym:
            after += b"via: %b %b\r\n" % (b"1.0" if kind & _OLD else b"1.1", self.pseudonym)
        return Block(shape, passes, before=self._host, after=after)

    def _judge(self, name: bytes) -> int:
        low = name.lower()
        if low in self._dropped or low.startswith(b"x-sponson-"):
            return DROP
        if low in self._credentials:
            return CREDENTIAL
        return FOREIGN if low.startswith(_FOREIGN_PREFIXES) else KEEP

    def _trace(self, exchange: Exchange) -> bytes:
        trace = exchange.facts.trace
        if trace is None or exchange.attempt is None:
            return b""
        value = traceparent_of(trace.trace_id, exchange.attempt.span_id, sampled=trace.sampled)
        line = f"traceparent: {value}\r\n"
        if trace.tracestate:
            line += f"tracestate: {trace.tracestate}\r\n"
        return line.encode("utf-8", "surrogateescape")


class Block:
    """The lines of one shape that go on, as one format that their values fill."""

    __slots__ = ("_format", "_take")

    def __init__(
        self, shape: Shape, passes: Callable[[bytes], bool], *, before: bytes = b"", after: bytes = b""
    ) -> None:
        kept = [index for index, name in enumerate(shape.names) if passes(name)]
        lines = b"".join(shape.names[index].replace(b"%", b"%%") + b": %b\r\n" for index in kept)
        self._format = before.replace(b"%", b"%%") + lines + after.replace(b"%", b"%%")
        # One index would give its value alone, and none nothing at all.
        self._take: Callable[[list[bytes]], tuple[bytes, ...]] = (
            itemgetter(*kept) if len(kept) > 1 else lambda values: tuple(values[index] for index in kept)
        )

    def fill(self, values: list[bytes]) -> bytes:
        """Returns the lines with these values."""
        return self._format % self._take(values)


def remember(known: dict[Shape, T], shape: Shape, what: T) -> None:
    """Keeps what was worked out for a shape, within bounds: the other side chooses shapes."""
    if not shape.lasting:
        return
    if len(known) >= MOST_SHAPES:
        known.clear()
    known[shape] = what


def _framing(length: int | None) -> bytes:
    if length is None:
        return b"transfer-encoding: chunked\r\n\r\n"
    return b"content-length: %d\r\n\r\n" % length if length >= 0 else _END


def connection_names(fields: Fields) -> frozenset[bytes]:
    """Returns the fields that `Connection` lines name, but those whose loss would break credentials or bodies."""
    shape = fields.shape
    at = shape.first.get("connection")
    if at is None or (fields.lines[at] in _PLAIN and "connection" not in shape.repeated):
        return _NONE
    lines = (line.encode("utf-8", "surrogateescape") for line in fields.getall("connection"))
    return frozenset(token.strip().lower() for line in lines for token in line.split(b",")) - _UNTOUCHABLE - _PLAIN


_NONE: Final[frozenset[bytes]] = frozenset()
_PLAIN: Final = frozenset({b"keep-alive", b"close", b"Keep-Alive", b"Close"})
"""Options that name no field, as they are spelled; no other is so common."""


class AnswerHeaders:
    """Which of a provider's fields reach the caller: all but connection-level ones and the length, which is ours.

    And which of them speak of its rate limits, where anybody `heeds_rates`.
    """

    __slots__ = ("_known", "_rates", "heeds_rates")

    def __init__(self, *, heeds_rates: bool = True) -> None:
        self.heeds_rates = heeds_rates
        self._known: dict[Shape, Block] = {}
        self._rates: dict[Shape, RatePlan | None] = {}

    def forward(self, fields: Fields) -> bytes:
        """Returns the lines of the end-to-end fields, in order, as they came."""
        shape = fields.shape
        if named := connection_names(fields):
            return Block(shape, lambda name: _reaches_callers(name) and name.lower() not in named).fill(fields.lines)
        block = self._known.get(shape)
        if block is None:
            block = Block(shape, _reaches_callers)
            remember(self._known, shape, block)
        return block.fill(fields.lines)

    def rates(self, shape: Shape) -> RatePlan | None:
        """Returns where heads of this shape speak of rate limits; None where they do not."""
        try:
            return self._rates[shape]
        except KeyError:
            plan = rate_plan(shape)
            remember(self._rates, shape, plan)
            return plan


def _reaches_callers(name: bytes) -> bool:
    low = name.lower()
    passes = low not in _HOP_BY_HOP and low != b"content-length" and not low.startswith(b"x-sponson-")
    # White space before a colon goes no further (RFC 9112 §5.1).
    return passes and low == low.strip()
