"""What a caller asked: target and header bytes as they came, and its body, whole or still arriving."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from proxy.fields import Fields, RawHeaders
from proxy.link import Link


class BodyProblem(Exception):
    """The caller's body cannot be read to its end: malformed or cut."""


class BodyTooLarge(BodyProblem):
    """The caller's body is larger than its route allows."""


class Upload(Protocol):
    """The caller's body while it still arrives. The first read answers `Expect: 100-continue`.

    `limit` in bytes may be set before the first read; a body that grows beyond it raises `BodyTooLarge`.
    """

    limit: int

    @property
    def length(self) -> int | None:
        """Bytes announced by Content-Length; None when chunked."""
        ...

    async def read(self) -> bytes:
        """Returns the next piece, b"" at the end. Raises `BodyProblem`."""
        ...


class Request:
    """What the caller asked, as it came: target, path and header bytes are never normalised.

    `body` is set once the body has been read whole;
    `upload` is None when there is no body. `upload_taken`: bytes of it were passed on, it cannot be sent again.
    `switch`, where a WebSocket is asked for: agrees with these fields, and hands the caller's connection over.
    """

    __slots__ = (
        "body", "fields", "method", "path", "query", "switch", "target", "upload", "upload_taken", "version",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        target: str,
        fields: Fields,
        *,
        upload: Upload | None = None,
        version: tuple[int, int] = (1, 1),
    ) -> None:
        self.method = method
        self.target = target
        self.path, mark, query = target.partition("?")
        self.query = mark + query
        self.fields = fields
        self.upload = upload
        self.version = version
        self.upload_taken = False
        self.switch: Callable[[bytes], Link] | None = None
        self.body: bytes | None = None if upload is not None else b""

    @property
    def headers(self) -> RawHeaders:
        """Every header line as it came, in order."""
        return self.fields.raw
