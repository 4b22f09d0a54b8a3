"""What is wrong with a policy, and where; one line each: `file:line:column: path: message`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]
"""Where something stands in a policy: names and list positions from 0."""

LONGEST_WORD = 64
"""Characters of the operator's text that a message repeats, and that a suggestion looks at."""


SECRETIVE = frozenset({"auth", "headers", "keys", "query", "store"})
"""Below these names no message repeats what the operator wrote: it may be a secret in the wrong place."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """A position in a file; line and column count characters from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return one_line(f"{self.file}:{self.line}:{self.column}")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Problem:
    """One fault: where it is, what it is about, what was expected."""

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        return one_line(f"{self.file}:{self.line}:{self.column}: {self.path}: {self.message}")


class PolicyError(Exception):
    """A policy that cannot be used; `problems` has all that is wrong with it, by place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class PolicyUnreadable(Exception):
    """A policy that cannot be read at all: missing, not permitted, a directory without policy files."""

    def __init__(self, path: str, why: str) -> None:
        self.problem = Problem(file=path, line=1, column=1, path="policy", message=why)
        super().__init__(str(self.problem))


def problem_at(place: Place, path: Path, message: str) -> Problem:
    """Returns the problem of what stands at `place` and is called `path`."""
    return Problem(file=place.file, line=place.line, column=place.column, path=path_text(path), message=message)


def path_text(path: Path) -> str:
    """Returns the dotted form; the policy itself is `policy`."""
    return ".".join(str(part) for part in path) or "policy"


def secretive(path: Path) -> bool:
    """Whether what stands at `path` may be a secret."""
    return not SECRETIVE.isdisjoint(path)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean x?)` for the nearest known name, or nothing."""
    name = nearest(word, known)
    return f" (did you mean {name}?)" if name else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Returns the known name that is most like `word`, None where none is."""
    if not 0 < len(word) <= LONGEST_WORD:
        return None
    plain = {name.lower().replace("-", "_"): name for name in known}
    found = difflib.get_close_matches(word.lower().replace("-", "_"), plain, n=1)
    return plain[found[0]] if found else None


def one_line(text: str) -> str:
    """Returns the text with everything escaped that would break its line or hide in it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
