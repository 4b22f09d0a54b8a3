"""What of an answer's framing concerns its connection: whether another answer may follow on it (RFC 9112 §6, §9.3)."""

from __future__ import annotations

from typing import Protocol

from proxy.fields import Fields


class Unclear(Exception):
    """What the answer says of its framing cannot be relied on."""


class AnswerParser(Protocol):
    """What is asked of the parser; it stands behind a head."""

    def get_http_version(self) -> str:
        """Returns the version of the status line."""
        ...

    def should_keep_alive(self) -> bool:
        """Whether the head says so."""
        ...

    def set_dangerous_leniencies(self, *, lenient_optional_cr_before_lf: bool) -> None:
        """Sets whether a line may end without CR."""
        ...


def lasts(parser: AnswerParser, fields: Fields) -> bool:
    """Whether the connection serves another request. Raises `Unclear` for another version of HTTP.

    The parser lets `keep-alive` win over `close` in version 1.0, and a coding stand there, whose end that version does
    not know.
    """
    lasting = parser.should_keep_alive()
    version = parser.get_http_version()
    if version == "1.1":
        return lasting
    if version != "1.0":
        raise Unclear
    closes = any("close" in line.lower() for line in fields.getall("connection"))
    return lasting and not closes and "transfer-encoding" not in fields


def meant(fields: Fields, raw: list[bytes]) -> None:
    """Raises `Unclear` where the parser has read the framing otherwise than it now stands in the fields."""
    for name in ("transfer-encoding", "content-length"):
        at = fields.shape.first.get(name)
        if at is not None and fields.lines[at] != raw[at]:
            raise Unclear


def is_chunked(fields: Fields) -> bool:
    """Whether a coded body comes in chunks. Raises `Unclear` for other codings: their end could not be known."""
    at = fields.shape.first["transfer-encoding"]
    if fields.lines[at].rstrip(b" ").lower() != b"chunked" or "transfer-encoding" in fields.repeated:
        # The parser reads all else, a tab behind it too, as a body that ends with its connection.
        raise Unclear
    return True


def begin_chunks(parser: AnswerParser) -> None:
    """In a body in chunks every line ends with CRLF: readers differ in what a bare LF ends."""
    parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=False)


def end_chunks(parser: AnswerParser) -> None:
    """The next head may be a careless one again."""
    parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)


def has_body(fields: Fields) -> bool:
    """Whether an answer that cannot have a body announces one all the same: it may still come."""
    return "transfer-encoding" in fields or fields.get("content-length", "0") != "0"
