"""Headers: what of the caller's reaches a provider, what is added, what of an answer reaches the caller.

Compiled once per provider. Rules: RFC 9110 §7.6.1 (connection-level fields end here), `policy.md` rule 4 (credentials).
Values are bytes throughout and never decoded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from proxy.exchange import Exchange
from proxy.request import Fields, RawHeaders
from proxy.trace_context import traceparent_of

KEEP: Final = 0
DROP: Final = 1
CREDENTIAL: Final = 2
FOREIGN: Final = 3
"""Belongs to the provider that the caller meant: an account, a beta switch."""

_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer "
    b"transfer-encoding upgrade http2-settings".split()
)
_OURS: Final = frozenset(b"host content-length expect".split())
_TRACE: Final = frozenset(b"traceparent tracestate".split())
_CREDENTIALS: Final = frozenset(
    b"authorization x-api-key api-key x-goog-api-key cookie openai-organization openai-project".split()
)
_FOREIGN_PREFIXES: Final = (b"openai-", b"anthropic-beta", b"x-goog-")
_MEMO_SIZE: Final = 512
_MEMO_VALUE: Final = 256
_UNTOUCHABLE: Final = _CREDENTIALS | _OURS
_SEPARATOR: Final = b": "
_END: Final = b"\r\n"
_CONNECTION: Final = b"connection"
_PLAIN: Final = frozenset({b"keep-alive", b"close"})
"""Options that name no field; nothing else is so common."""
_PLAIN_TEXT: Final = frozenset(option.decode() for option in _PLAIN)
_ACCEPT_ENCODING: Final = b"accept-encoding"
TRACEPARENT: Final = b"traceparent: "


class HeaderPlan:
    """How one provider's request heads are built.

    `auth_headers` are those of every provider, in lower case: a caller's credential for one never reaches another.
    """

    __slots__ = (
        "_added",
        "_added_unpacked",
        "_credentials",
        "_dropped",
        "_host",
        "_lines",
        "_own_credential",
        "_propagate_trace",
    )

    def __init__(
        self,
        *,
        host: str,
        added: Iterable[tuple[bytes, bytes]] = (),
        own_credential: bool,
        auth_headers: frozenset[bytes] = frozenset(),
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
        self._credentials = _CREDENTIALS | auth_headers
        self._own_credential = own_credential
        self._propagate_trace = propagate_trace
        self._lines: tuple[dict[tuple[bytes, bytes], bytes], dict[tuple[bytes, bytes], bytes]] = ({}, {})

    def request_head(self, exchange: Exchange, length: int | None) -> bytes:
        """Builds the head of one attempt; `length` is the body's, None for chunked, -1 for no body at all."""
        request = exchange.request
        parts = [
            f"{request.method} {exchange.upstream_path} HTTP/1.1\r\nhost: ".encode("utf-8", "surrogateescape"),
            self._host,
        ]
        if exchange.hides_usage:
            # A packed answer could not be looked through.
            headers = [field for field in request.headers if field[0].lower() != _ACCEPT_ENCODING]
            parts += self._forwarded(headers, exchange.first_target)
            parts.append(self._added_unpacked)
        else:
            parts += self._forwarded(request.headers, exchange.first_target)
            parts.append(self._added)
        credential = exchange.credential
        if credential is not None and credential.header is not None:
            name, value = credential.header
            parts += (name, _SEPARATOR, value, _END)
        if self._propagate_trace:
            self._trace(parts, exchange)
        if length is None:
            parts.append(b"transfer-encoding: chunked\r\n\r\n")
        elif length >= 0:
            parts.append(b"content-length: %d\r\n\r\n" % length)
        else:
            parts.append(_END)
        return b"".join(parts)

    def _forwarded(self, headers: RawHeaders, first: bool) -> list[bytes]:
        lines = []
        known = self._lines[first].get
        for field in headers:
            line = known(field)
            if line is None:
                line = self._line(field, first)
                if line is None:
                    return self._unnamed(headers, first)
            lines.append(line)
        return lines

    def _unnamed(self, headers: RawHeaders, first: bool) -> list[bytes]:
        """The same, where `Connection` names fields that end here, but for credentials: those are ours to judge."""
        named = connection_names(headers) - self._credentials
        return [self._line(field, first) or b"" for field in headers if field[0].lower() not in named]

    def _line(self, field: tuple[bytes, bytes], first: bool) -> bytes | None:
        """Returns a caller's field as a line, b"" when it does not go on; remembers it: callers repeat themselves.

        None, and nothing to remember, for a `Connection` that names other fields.
        """
        name, value = field
        action = self._judge(name)
        if action == DROP and name.lower() == _CONNECTION and value.strip().lower() not in _PLAIN:
            return None
        passes = action == KEEP or (
            first and (action == FOREIGN or (action == CREDENTIAL and not self._own_credential))
        )
        line = name + _SEPARATOR + value + _END if passes else b""
        if len(name) + len(value) <= _MEMO_VALUE:
            lines = self._lines[first]
            if len(lines) >= _MEMO_SIZE:
                lines.clear()
            lines[field] = line
        return line

    def _judge(self, name: bytes) -> int:
        low = name.lower()
        if low in self._dropped or low.startswith(b"x-sponson-"):
            return DROP
        if low in self._credentials:
            return CREDENTIAL
        return FOREIGN if low.startswith(_FOREIGN_PREFIXES) else KEEP

    def _trace(self, parts: list[bytes], exchange: Exchange) -> None:
        trace = exchange.facts.trace
        if trace is None or exchange.attempt is None:
            return
        value = traceparent_of(trace.trace_id, exchange.attempt.span_id, sampled=trace.sampled)
        parts += (TRACEPARENT, value.encode("ascii"), _END)
        if trace.tracestate:
            parts += (b"tracestate: ", trace.tracestate.encode("utf-8", "surrogateescape"), _END)


def connection_names(headers: RawHeaders) -> frozenset[bytes]:
    """Returns the fields that `Connection` lines name, but those whose loss would break credentials or framing."""
    lines = (value for name, value in headers if name.lower() == _CONNECTION)
    return frozenset(token.strip().lower() for line in lines for token in line.split(b",")) - _UNTOUCHABLE


class AnswerHeaders:
    """Which of a provider's fields reach the caller: all but connection-level ones and the length, which is ours."""

    __slots__ = ("_memo",)

    def __init__(self) -> None:
        self._memo: dict[bytes, bool] = {}

    def forward(self, headers: RawHeaders, fields: Fields) -> list[tuple[bytes, bytes]]:
        """Returns the end-to-end fields, in order, as they came. `fields` are the same."""
        connection = fields.get("connection")
        if connection is not None and not (connection.lower() in _PLAIN_TEXT and "connection" not in fields.repeated):
            named = connection_names(headers)
            headers = [field for field in headers if field[0].lower() not in named]
        memo = self._memo
        try:
            return [field for field in headers if memo[field[0]]]
        except KeyError:
            return [field for field in headers if self._passes(field[0])]

    def _passes(self, name: bytes) -> bool:
        passes = self._memo.get(name)
        return self._judge(name) if passes is None else passes

    def _judge(self, name: bytes) -> bool:
        low = name.lower()
        passes = low not in _HOP_BY_HOP and low != b"content-length" and not low.startswith(b"x-sponson-")
        passes = passes and low == low.strip()
        if len(self._memo) < _MEMO_SIZE and len(name) <= _MEMO_VALUE:
            self._memo[name] = passes
        return passes
