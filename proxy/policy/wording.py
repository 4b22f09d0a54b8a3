"""pydantic's complaints → problems in plain words, with the place of the fault in the YAML tree.

One fault is one line: alternatives have been told apart before (`schema/types.py`), and a misspelt name
that must be there is not also reported as missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from proxy.policy.problem import (
    LONGEST_WORD,
    Path,
    Problem,
    did_you_mean,
    nearest,
    path_text,
    problem_at,
    secretive,
)
from proxy.policy.scalars import looks_like_number, resolve
from proxy.policy.schema.export import Schema, json_schema, known_names
from proxy.policy.schema.types import OURS
from proxy.policy.tree import Found, Items, Mapping, Node, Scalar, child, top

_PLAIN_NAME = re.compile(r"[a-z_]{1,24}")
"""What a misspelt name looks like; anything else in the place of one may be a secret."""
_IN_ADDRESSES = frozenset("@?#")
"""Where one of these stands, an address may hold a credential."""
_EXPECTED = {
    "model_type": "expected a mapping",
    "dict_type": "expected a mapping",
    "list_type": "expected a list",
    "string_type": "expected text",
    "bool_type": "expected true or false",
}
_SWITCHES = {"yes": "true", "on": "true", "no": "false", "off": "false"}


def problems_of(error: ValidationError, root: Node) -> tuple[Problem, ...]:
    """Returns all problems of a failed validation of the tree."""
    schema = json_schema()
    located = [(_locate(root, details["loc"]), details) for details in error.errors(include_url=False)]
    unknown = [found for found, details in located if details["type"] == "extra_forbidden"]
    misspelt = set(_meant(schema, unknown))
    return tuple(
        _problem(schema, found, details)
        for found, details in located
        if details["type"] != "missing" or path_text(found.path) not in misspelt
    )


def _locate(root: Node, loc: Sequence[int | str]) -> Found:
    """What a pydantic location stands for; its last part may be a name that is missing in the tree."""
    found = top(root)
    for number, part in enumerate(loc):
        if (below := child(found, part)) is not None:
            found = below
        elif not _artificial(part) and number == len(loc) - 1:
            return Found(path=(*found.path, part), key_place=found.key_place, node=found.node)
    return found


def _artificial(part: int | str) -> bool:
    return isinstance(part, str) and (part == "[key]" or (part.startswith("<") and part.endswith(">")))


def _meant(schema: Schema, unknown: Sequence[Found]) -> Iterator[str]:
    """Paths of the names that unknown ones were probably meant to be."""
    for found in unknown:
        *parent, word = found.path
        known = known_names(schema, tuple(parent))
        if word not in known and (name := nearest(str(word), known)):
            yield path_text((*parent, name))


def _problem(schema: Schema, found: Found, details: ErrorDetails) -> Problem:
    kind, path = details["type"], found.path
    if kind == "extra_forbidden":
        return problem_at(found.key_place, _discreet(path), _unknown(schema, path))
    if kind == "missing":
        return problem_at(found.key_place, path, "is required")
    if details["loc"][-1:] == ("[key]",):
        return problem_at(found.key_place, _discreet(path), _message(details))
    if kind == "too_short":
        return problem_at(found.node.place, path, "expected at least one entry")
    if kind == "literal_error":
        return problem_at(found.node.place, path, _choice(found, details))
    message = _message(details)
    return problem_at(found.node.place, path, message + _got(found, message))


def _discreet(path: Path) -> Path:
    """Returns the path without its last name, where that may be a secret."""
    *parent, name = path
    return path if not secretive(tuple(parent)) or _PLAIN_NAME.fullmatch(str(name)) else (*parent, "…")


def _message(details: ErrorDetails) -> str:
    if details["type"] == OURS:
        return details["msg"]
    return _EXPECTED.get(details["type"], "is not valid here")


def _unknown(schema: Schema, path: Path) -> str:
    *parent, word = path
    known = known_names(schema, tuple(parent))
    if word in known:
        return "does not go together with the other names here"
    if suggestion := did_you_mean(str(word), known):
        return f"unknown name{suggestion}"
    for name in sorted(known):
        if word in known_names(schema, (*parent, name)):
            return f"unknown name (did you mean {name}.{word}?)"
    names = ", ".join(sorted(known))
    return f"unknown name; known here: {names}" if names else "unknown name: there are none here"


def _choice(found: Found, details: ErrorDetails) -> str:
    expected = str(details.get("ctx", {}).get("expected", ""))
    known = re.findall(r"'([^']*)'", expected)
    message = "expected " + (" or ".join(known) or expected.lower())
    text = found.node.text if isinstance(found.node, Scalar) else ""
    return message + _got(found, message) + did_you_mean(text, known)


def _got(found: Found, expected: str) -> str:
    """What stands there instead, as far as it may be shown, and what would help."""
    match found.node:
        case Mapping():
            return ", found a mapping"
        case Items():
            return ", found a list"
        case Scalar(value=None):
            return ", found nothing"
        case Scalar(value=str(), text=text) if secretive(found.path) or _IN_ADDRESSES.intersection(text):
            return ", found some other text"
        case Scalar(value=value, text=text) as node:
            shown = f'"{_short(text)}"' if isinstance(value, str) else _short(text)
            return f", found {shown}{_hint(node, expected)}"


def _hint(node: Scalar, expected: str) -> str:
    if "number" in expected or "status" in expected:
        if node.quoted and type(resolve(node.text)) in (int, float):
            return " (remove the quotes)"
        if looks_like_number(node.text):
            return " (numbers have no leading zeros, colons or underscores)"
    if "duration" in expected and type(node.value) in (int, float):
        return f" (add a unit, such as {_short(node.text)}s)"
    if "text" in expected and not isinstance(node.value, str):
        return " (put it in quotes)"
    if "true or false" in expected and node.text in _SWITCHES:
        return f" (did you mean {_SWITCHES[node.text]}?)"
    return ""


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_WORD else text[: LONGEST_WORD - 1] + "…"
