"""A manifest as the texts of its documents: together they are the manifest, to the byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# At the start of a line these end or begin a document, whatever is around them (YAML 1.2, 9.1.2).
BEGIN = re.compile(r"---(?=\s|$)")
END = re.compile(r"\.\.\.(?=\s|$)")
NOTHING = re.compile(r"\s*(#.*)?$", re.DOTALL)
LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The text of one document."""

    head: str
    """Comments, directives and the line `---` before it."""
    body: str
    tail: str
    """Comments after it, and the line `...`."""
    line: int
    """Of its body in the manifest, from 1."""

    @property
    def whole(self) -> str:
        """The text as it was."""
        return self.head + self.body + self.tail


def split(manifest: str) -> list[Text]:
    """Returns the documents of a manifest; comments alone are a document with an empty body."""
    found, line = [], 1
    for lines in _chunks(LINE.findall(manifest)):
        found.append(_text(lines, line))
        line += len(lines)
    return found


def _chunks(lines: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    begun = False
    for line in lines:
        if begun and BEGIN.match(line):
            yield chunk
            chunk, begun = [], False
        chunk.append(line)
        if END.match(line):
            yield chunk
            chunk, begun = [], False
        elif not _is_before(line):
            begun = True
    if chunk:
        yield chunk


def _is_before(line: str) -> bool:
    """Whether the line, before a document has begun, does not begin it."""
    return line.startswith("%") or NOTHING.match(line) is not None


def _text(lines: list[str], line: int) -> Text:
    start = next((i for i, each in enumerate(lines) if not _is_head(each)), len(lines))
    stop = len(lines)
    while stop > start and (END.match(lines[stop - 1]) or NOTHING.match(lines[stop - 1])):
        stop -= 1
    # Blank lines may be the end of a text; a comment never is.
    while stop < len(lines) and not lines[stop].strip():
        stop += 1
    head, body, tail = ("".join(lines[part]) for part in (slice(start), slice(start, stop), slice(stop, None)))
    return Text(head=head, body=body, tail=tail, line=line + start)


def _is_head(line: str) -> bool:
    return _is_before(line) or (BEGIN.match(line) is not None and NOTHING.match(line[3:]) is not None)
