"""A tree as text again: YAML in blocks, or JSON where it was JSON. Comments inside of the document are lost."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from proxy.kubernetes.tree import MAPPING, SEQUENCE, STRING, compose, read, read_json, same, tag_of, text_of

# What no reader of YAML takes for a number, a date or a truth; all other texts that are added here are quoted.
PLAIN = re.compile(r"[A-Za-z/][A-Za-z./-]{2,}|[A-Za-z/-][A-Za-z0-9./:$()=,'\[\]_-]{6,}")
WIDEST = 1 << 20
"""Columns: long lines are not broken."""


class _Dumper(yaml.SafeDumper):
    """Serializes nodes; block texts that its base class may write wrongly are quoted."""


def write_yaml(tree: Any, *, line_break: str = "\n") -> str:
    """Returns the tree as a YAML document without `---`."""
    text: str = yaml.serialize(_node(tree), Dumper=_Dumper, width=WIDEST, allow_unicode=True, line_break=line_break)
    if (again := compose(text)) is None or not same(read(again), tree):
        raise AssertionError("the document cannot be written again as it was read")
    return text


def write_json(tree: Any) -> str:
    """Returns the tree as JSON, indented, with a line break at its end."""
    text = "".join(_json(tree, "\n")) + "\n"
    assert same(read_json(text), tree)
    return text


def _node(value: Any) -> yaml.Node:
    match value:
        case dict():
            pairs = [(_node(key), _node(inner)) for key, inner in value.items()]
            return yaml.MappingNode(MAPPING, pairs, flow_style=not pairs)
        case list():
            return yaml.SequenceNode(SEQUENCE, [_node(inner) for inner in value], flow_style=not value)
    text = text_of(value)
    return yaml.ScalarNode(tag_of(value), text, style=_style(value, text))


def _style(value: Any, text: str) -> str | None:
    if not hasattr(value, "style"):
        return '"' if isinstance(value, str) and not _is_plain(text) else None
    style: str | None = value.style
    if style is not None and style in "|>":
        return "|" if text.strip() and not text[0].isspace() else '"'
    return '"' if "\n" in text else style


def _is_plain(text: str) -> bool:
    resolved = yaml.SafeDumper.yaml_implicit_resolvers.get(text[:1], [])
    return PLAIN.fullmatch(text) is not None and not any(found.match(text) for _, found in resolved)


def _json(value: Any, line: str) -> list[str]:
    match value:
        case dict() if value:
            inner = line + "  "
            pairs = [
                json.dumps(str(key), ensure_ascii=False) + ": " + "".join(_json(value[key], inner)) for key in value
            ]
            return ["{", inner, f",{inner}".join(pairs), line, "}"]
        case list() if value:
            inner = line + "  "
            return ["[", inner, f",{inner}".join("".join(_json(each, inner)) for each in value), line, "]"]
        case dict() | list():
            return [json.dumps(value)]
    text = text_of(value)
    return [json.dumps(text, ensure_ascii=False) if tag_of(value) == STRING else text]
