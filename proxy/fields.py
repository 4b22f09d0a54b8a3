"""Header fields: bytes as they came, found by name.

Callers and providers repeat themselves: which names stand in a head, in which order, is understood once (a `Shape`),
and whatever is decided by names alone is decided once for each shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar, overload

RawHeaders = Sequence[tuple[bytes, bytes]]
D = TypeVar("D")

MAX_FIELD: Final = 65536
MAX_FIELDS: Final = 256
MAX_HEAD: Final = 262144
"""Bytes of a whole head, and of what a body's framing may say without content."""
MOST_SHAPES: Final = 512
LARGEST_SHAPE: Final = 4096
"""Bytes of all names together; the shape of a larger head is not remembered."""
_HOPS: Final = frozenset({"via", "max-forwards"})


_CONTROLS: Final = bytes((*range(0x09), *range(0x0A, 0x20), 0x7F))
_SPACES: Final = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))


class HeadTooLarge(Exception):
    """A head beyond all measure; the parsers have no limits of their own."""


class TargetTooLong(HeadTooLarge):
    """A target, or a phrase, beyond all measure."""


class Shape:
    """The names of a head's fields, in order.

    `first` tells where the first field of a name (in lower case) stands; `repeated` are names that stand there more
    than once. White space before a colon is no part of a name (RFC 9112 §5.1). `lasting`: the next head with these
    names has this very shape, so that it is worth keeping what was worked out for it. `counts_hops`: there is a field
    that every hop has to read and change.
    """

    __slots__ = ("counts_hops", "first", "lasting", "names", "repeated")

    def __init__(self, names: tuple[bytes, ...]) -> None:
        self.names = names
        self.lasting = False
        self.first: dict[str, int] = {}
        repeated = set()
        for index, name in enumerate(names):
            low = name.rstrip().lower().decode("latin-1")
            if low in self.first:
                repeated.add(low)
            else:
                self.first[low] = index
        self.repeated = frozenset(repeated)
        self.counts_hops = not _HOPS.isdisjoint(self.first)

    def __repr__(self) -> str:
        return f"<Shape {', '.join(self.first)}>"


class Shapes:
    """Remembers shapes, within bounds: the other side chooses names."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], Shape] = {}

    def of(self, names: list[bytes]) -> Shape:
        """Returns the shape of a head with these names. Raises `HeadTooLarge`."""
        key = tuple(names)
        return self._known.get(key) or self._new(key)

    def _new(self, key: tuple[bytes, ...]) -> Shape:
        size = sum(map(len, key))
        if len(key) > MAX_FIELDS or size > MAX_FIELD:
            raise HeadTooLarge
        shape = Shape(key)
        if size <= LARGEST_SHAPE:
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            self._known[key] = shape
            shape.lasting = True
        return shape

    def __repr__(self) -> str:
        return f"<Shapes {len(self._known)} known>"


class Fields(Mapping[str, str]):
    """The fields of one head: the first value of each name; `lines` are all values as they came.

    White space after a value is no part of it, but is passed on as it came.
    """

    __slots__ = ("lines", "shape")

    def __init__(self, shape: Shape, lines: list[bytes]) -> None:
        self.shape = shape
        self.lines = lines

    @property
    def raw(self) -> list[tuple[bytes, bytes]]:
        """Names and values as they came, in order."""
        return list(zip(self.shape.names, self.lines, strict=True))

    @property
    def repeated(self) -> frozenset[str]:
        """Names, in lower case, that stand there more than once."""
        return self.shape.repeated

    @overload
    def get(self, name: str, default: None = None, /) -> str | None: ...

    @overload
    def get(self, name: str, default: D, /) -> str | D: ...

    def get(self, name: str, default: D | None = None, /) -> str | D | None:
        """Returns the first value of this field; `name` is in lower case."""
        index = self.shape.first.get(name)
        return default if index is None else _text(self.lines[index])

    def getall(self, name: str) -> list[str]:
        """Returns every value of this field, in order."""
        return [_text(value) for key, value in self.raw if key.rstrip().lower().decode("latin-1") == name]

    def __getitem__(self, name: str) -> str:
        return _text(self.lines[self.shape.first[name.lower()]])

    def __contains__(self, name: object) -> bool:
        return name in self.shape.first

    def __iter__(self) -> Iterator[str]:
        return iter(self.shape.first)

    def __len__(self) -> int:
        return len(self.shape.first)

    def __repr__(self) -> str:
        # Values may be secrets.
        return f"<Fields {', '.join(self.shape.first)}>"


def fields_of(raw: Iterable[tuple[bytes, bytes]]) -> Fields:
    """Returns the fields of header lines that came from elsewhere than a parser."""
    pairs = list(raw)
    return Fields(Shape(tuple(name for name, _ in pairs)), [value for _, value in pairs])


def lines_of(raw: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Returns fields as lines, ready for a head."""
    return b"".join(b"%b: %b\r\n" % field for field in raw)


def pairs_of(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the names and values of such lines."""
    return [(name, value) for name, _, value in (line.partition(b": ") for line in lines.split(b"\r\n")[:-1])]


def check_lines(lines: list[bytes], first: bytes = b"") -> None:
    """Raises `HeadTooLarge` for values, or a `first` line's target or phrase, beyond all measure."""
    if len(first) > MAX_FIELD:
        raise TargetTooLong
    if any(len(line) > MAX_FIELD for line in lines) or sum(map(len, lines)) > MAX_HEAD:
        raise HeadTooLarge


def cleaned(lines: list[bytes]) -> list[bytes]:
    """Returns values in which every control character is a space (RFC 9110 §5.5). Raises ValueError for NUL."""
    together = b"".join(lines)
    if len(together.translate(None, _CONTROLS)) == len(together):
        return lines
    if b"\0" in together:
        raise ValueError("NUL in a field")
    return [in_one_line(line) for line in lines]


def in_one_line(text: bytes) -> bytes:
    """Returns text in which every control character but the tab is a space."""
    return text.translate(_SPACES)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape").strip(" \t")
