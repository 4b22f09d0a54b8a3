"""What a caller asked: target and header bytes as they came, and its body, whole or still arriving."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar, overload

RawHeaders = Sequence[tuple[bytes, bytes]]
D = TypeVar("D")
MAX_FIELD: Final = 65536
MAX_FIELDS: Final = 256
_SPACE: Final = (b" ", b"\t")


class Fields(Mapping[str, str]):
    """The first value of each header field by its name, whatever its case; values are decoded when they are asked for.

    `repeated` are the names (in lower case) that stand there more than once.
    """

    __slots__ = ("_raw", "_values", "repeated")

    def __init__(self, raw: RawHeaders) -> None:
        self._raw = raw
        self.repeated: frozenset[str] = frozenset()
        self._values: dict[str, bytes] = {name.lower().decode("latin-1"): value for name, value in raw}
        if len(self._values) != len(raw):
            self._keep_first()

    @overload
    def get(self, name: str, default: None = None, /) -> str | None: ...

    @overload
    def get(self, name: str, default: D, /) -> str | D: ...

    def get(self, name: str, default: D | None = None, /) -> str | D | None:
        """Returns the first value of this field; `name` is in lower case."""
        value = self._values.get(name)
        return default if value is None else value.decode("utf-8", "surrogateescape")

    def getall(self, name: str) -> list[str]:
        """Returns every value of this field, in order."""
        low = name.encode("latin-1")
        return [value.decode("utf-8", "surrogateescape") for key, value in self._raw if key.lower() == low]

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()].decode("utf-8", "surrogateescape")

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may be secrets.
        return f"<Fields {', '.join(self._values)}>"

    def _keep_first(self) -> None:
        repeated = set()
        seen: dict[str, bytes] = {}
        for name, value in self._raw:
            low = name.lower().decode("latin-1")
            if low in seen:
                repeated.add(low)
            else:
                seen[low] = value
        self._values = seen
        self.repeated = frozenset(repeated)


class HeadTooLarge(Exception):
    """A head beyond all measure."""


def tidy(raw: list[tuple[bytes, bytes]]) -> None:
    """Holds the fields that a parser found to their bounds, and takes off white space that is no part of them.

    RFC 9112 §5: white space after a value is not part of it, and before a colon it goes no further. Raises
    `HeadTooLarge`: the parsers have no limits of their own.
    """
    if len(raw) > MAX_FIELDS:
        raise HeadTooLarge
    for index, (name, value) in enumerate(raw):
        if len(name) + len(value) > MAX_FIELD:
            raise HeadTooLarge
        if value[-1:] in _SPACE or name[-1:] in _SPACE:
            raw[index] = (name.rstrip(), value.rstrip())


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
    def complete(self) -> bool:
        """True when the whole body has arrived."""
        ...

    @property
    def length(self) -> int | None:
        """Bytes announced by Content-Length; None when chunked."""
        ...

    async def read(self) -> bytes:
        """Returns the next piece, b"" at the end. Raises `BodyProblem`."""
        ...

    async def read_all(self) -> bytes:
        """Returns the whole body. Raises `BodyProblem`."""
        ...


class Request:
    """What the caller asked, as it came: target, path and header bytes are never normalised.

    `fields` is the first-value view of `headers`. `body` is set once the body has been read whole;
    `upload` is None when there is no body. `upload_taken`: bytes of it were passed on, it cannot be sent again.
    """

    __slots__ = (
        "body", "fields", "headers", "method", "path", "query", "target", "upload", "upload_taken", "version",
    )  # fmt: skip

    def __init__(
        self,
        *,
        method: str,
        target: str,
        headers: RawHeaders,
        fields: Mapping[str, str],
        upload: Upload | None = None,
        version: tuple[int, int] = (1, 1),
    ) -> None:
        self.method = method
        self.target = target
        self.path, mark, query = target.partition("?")
        self.query = mark + query
        self.headers = headers
        self.fields = fields
        self.upload = upload
        self.version = version
        self.upload_taken = False
        self.body: bytes | None = None if upload is not None else b""
