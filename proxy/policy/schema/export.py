"""The JSON Schema for editors, from the same classes, and the names that it knows at a path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from proxy.policy.problem import Path
from proxy.policy.schema.policy import Policy
from proxy.policy.schema.types import Duration, Size

Schema = dict[str, Any]


class _Generator(GenerateJsonSchema):
    """Writes defaults as operators do, and no generated titles."""

    def encode_default(self, dft: Any) -> Any:
        return str(dft) if isinstance(dft, Duration | Size) else super().encode_default(dft)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@cache
def json_schema() -> Schema:
    """Returns the JSON Schema of a policy: one object, which nobody changes, because it takes long to make."""
    schema = Policy.model_json_schema(by_alias=True, schema_generator=_Generator)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Sponson policy"}
    return {**head, **{name: value for name, value in _without_nothing(schema).items() if name not in head}}


def json_schema_text() -> str:
    """Returns the JSON Schema as the text that is shipped."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def known_names(schema: Schema, path: Path) -> frozenset[str]:
    """Returns the names that a mapping at `path` may have, all alternatives together."""
    return frozenset(name for found in _at(schema, schema, path) for name in found.get("properties", {}))


def _at(root: Schema, schema: Schema, path: Path) -> Iterator[Schema]:
    for one in _alternatives(root, schema):
        if not path:
            yield one
            continue
        for found in _below(one, path[0]):
            yield from _at(root, found, path[1:])


def _below(schema: Schema, part: str | int) -> Iterator[Schema]:
    if isinstance(part, str):
        yield from _properties(schema, part)
    elif "items" in schema:
        yield schema["items"]


def _properties(schema: Schema, name: str) -> Iterator[Schema]:
    if name in schema.get("properties", {}):
        yield schema["properties"][name]
        return
    yield from schema.get("patternProperties", {}).values()
    if isinstance(schema.get("additionalProperties"), dict):
        yield schema["additionalProperties"]


def _alternatives(root: Schema, schema: Schema) -> Iterator[Schema]:
    if "$ref" in schema:
        yield from _alternatives(root, root["$defs"][schema["$ref"].rpartition("/")[2]])
    elif kinds := schema.get("oneOf") or schema.get("anyOf"):
        # A section may state an alternative between its own names.
        if "properties" in schema:
            yield schema
            return
        for kind in kinds:
            yield from _alternatives(root, kind)
    else:
        yield schema


def _without_nothing(value: Any) -> Any:
    """Drops the defaults of absent fields: nobody may write null."""
    if isinstance(value, dict):
        kept = value.items()
        return {k: _without_nothing(v) for k, v in kept if not (k == "default" and v is None)}
    return [_without_nothing(item) for item in value] if isinstance(value, list) else value
