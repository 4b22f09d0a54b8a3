"""The lines that the proxy logs, as they come: JSON objects of `proxy.runtime.log_line`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson


class LogReader:
    """Reads a growing file; a line is taken once it is whole, and what is no JSON object is passed over."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._part = b""

    def new_lines(self) -> Iterator[dict[str, Any]]:
        """Yields what was written since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            found = file.read()
        self._offset += len(found)
        *lines, self._part = (self._part + found).split(b"\n")
        for line in lines:
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(document, dict):
                yield document


def bug_in(line: Mapping[str, Any]) -> str:
    """Returns the traceback that a line has, "" when it has none: the proxy's own fault."""
    return str(line.get("exception", ""))
