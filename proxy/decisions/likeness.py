"""Likeness: which requests are equal, so that one answer will do for all of them (`semantics.md` §6a).

A name is a digest over everything that may change an answer: route, intended target, who asks, method, path and query,
version headers, and every field of the body. A request about which anything is doubtful shares nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from proxy.decisions.idempotency import credential_of, name_of
from proxy.dialects.canonical import read_exact, spelled
from proxy.exchange import Exchange
from proxy.fields import Fields
from proxy.request import Request

LARGEST_BODY: Final = 1024 * 1024
"""Bytes of a body that is compared; naming a larger one takes longer than it is likely to save."""
SHARES_NOTHING: Final = b""
VERSION_HEADERS: Final = (
    "accept",
    "accept-encoding",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "content-type",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "origin",
    "prefer",
)
"""Headers, in lower case, on which answers depend."""
_OF_VENDORS: Final = ("anthropic-", "openai-", "x-goog-")
"""Begin the headers in which vendors put versions, accounts and switches; there are new ones every year."""
CONDITIONS: Final = frozenset(
    {"if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "range"}
)
"""Headers that ask for a part of an answer, or only for news (RFC 9110 §13, §14)."""
_NEVER_IGNORED: Final = frozenset({"background", "conversation", "model", "stream"})


class Wish(StrEnum):
    """What a caller says of caching."""

    NOTHING = "nothing"
    REFRESH = "refresh"
    """No kept answer is wanted; the new one may be kept."""
    BYPASS = "bypass"
    """Nothing is to be shared or kept."""


def wish_of(fields: Fields) -> Wish:
    """Returns the caller's wish: `x-sponson-cache`, or `Cache-Control` (RFC 9111 §5.2.1)."""
    names = fields.shape.first
    if "cache-control" not in names and "x-sponson-cache" not in names:
        return Wish.NOTHING
    words = {*_words(fields, "cache-control"), *(f"our {word}" for word in _words(fields, "x-sponson-cache"))}
    if "no-store" in words or "our bypass" in words:
        return Wish.BYPASS
    return Wish.REFRESH if "no-cache" in words or "our refresh" in words else Wish.NOTHING


def headers_of(fields: Fields, names: Collection[str]) -> Iterator[bytes]:
    """Yields what these headers (in lower case) and all of vendors say; no two sets of lines look alike."""
    present = fields.shape.first
    vendors = sorted(name for name in present if name.startswith(_OF_VENDORS) and name not in names)
    for name in (*names, *vendors):
        if name not in present:
            continue
        values = fields.getall(name)
        yield name.encode("latin-1", "replace")
        yield b"%d" % len(values)
        for value in values:
            yield value.encode("utf-8", "surrogateescape")


@dataclass(frozen=True, slots=True, kw_only=True)
class LikenessScope:
    """In what requests to a route must agree beyond what they say.

    `credentials` are headers that tell callers' accounts apart, where the caller's own goes along. `headers` count
    like version headers. `ignore`, `spaces`, `case`: what does not count in a body (`dialects/canonical`).
    """

    route: bytes
    target: bytes
    scope: Literal["tenant", "route", "credential"] = "tenant"
    credentials: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    ignore: frozenset[str] = frozenset()
    spaces: bool = False
    case: bool = False


class Likeness:
    """Names the requests of one route. `keyed` are the headers (lower case) in which equal requests agree."""

    __slots__ = ("_headers", "_ignore", "_scope", "keyed")

    def __init__(self, scope: LikenessScope) -> None:
        self._scope = scope
        self._headers = tuple(sorted({*VERSION_HEADERS, *(name.lower() for name in scope.headers)}))
        self._ignore = scope.ignore - _NEVER_IGNORED
        self.keyed = frozenset((*self._headers, *scope.credentials))

    def __repr__(self) -> str:
        return f"<Likeness by {self._scope.scope}>"

    def name(self, exchange: Exchange) -> bytes:
        """Returns the name that equal requests have in common, b"" for one that shares nothing."""
        request = exchange.request
        if not exchange.repeatable or exchange.first_tier != 1 or not _plain(request):
            return SHARES_NOTHING
        asked = self._asked(request)
        return SHARES_NOTHING if asked is None else name_of(self._parts(exchange, asked))

    def _asked(self, request: Request) -> bytes | None:
        """Returns what is asked, None where that cannot be compared."""
        body = request.body
        if not body:
            return b"" if body is not None and request.method in ("GET", "HEAD") else None
        if len(body) > LARGEST_BODY:
            return None
        document = read_exact(body)
        if document is None or _stateful(document):
            return None
        scope = self._scope
        return spelled(document, ignore=self._ignore, spaces=scope.spaces, case=scope.case)

    def _parts(self, exchange: Exchange, asked: bytes) -> Iterator[bytes]:
        request, scope = exchange.request, self._scope
        yield from (b"likeness 1", scope.route, scope.target, scope.scope.encode())
        yield from _section(self._who(exchange))
        yield from (
            request.method.encode("utf-8", "surrogateescape"),
            request.target.encode("utf-8", "surrogateescape"),
        )
        yield from _section([*headers_of(request.fields, self._headers)])
        yield asked

    def _who(self, exchange: Exchange) -> list[bytes]:
        """Returns who may share: a caller without any credential is known by its tenant."""
        scope = self._scope
        who = [*credential_of(exchange.request.fields, scope.credentials)]
        if scope.scope == "tenant" or (scope.scope == "credential" and not who):
            who += (b"", exchange.facts.tenant.encode("utf-8", "surrogateescape"))
        return who


def _section(parts: Sequence[bytes]) -> Iterator[bytes]:
    yield b"%d" % len(parts)
    yield from parts


def _plain(request: Request) -> bool:
    """Whether a request is one that an answer for another one may serve, as far as its head tells."""
    names = request.fields.shape.first
    return (
        request.switch is None
        and "content-encoding" not in names
        and CONDITIONS.isdisjoint(names)
        and wish_of(request.fields) is not Wish.BYPASS
    )


def _stateful(document: dict[str, Any]) -> bool:
    """Whether an answer stands for something that goes on at the provider's: a job, or a conversation that grows."""
    background = document.get("background")
    return (background is not None and background is not False) or document.get("conversation") is not None


def _words(fields: Fields, name: str) -> Iterator[str]:
    for value in fields.getall(name):
        for word in value.lower().split(","):
            yield word.partition("=")[0].strip()
