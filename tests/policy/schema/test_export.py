from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.policy.schema.export import json_schema, json_schema_text, known_names

SHIPPED = Path(__file__).parent.parent.parent.parent / "policies" / "policy.schema.json"


def test_the_shipped_schema_is_current() -> None:
    assert SHIPPED.read_text() == json_schema_text(), "sponson schema > policies/policy.schema.json"


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


def test_every_section_and_field_is_described() -> None:
    schema = json_schema()
    for name, kind in schema["$defs"].items():
        assert kind["description"], name
    for found in objects(schema):
        for name, field in found.get("properties", {}).items():
            assert field.get("description"), name


def test_defaults_are_written_as_operators_write_them() -> None:
    kinds = json_schema()["$defs"]
    assert kinds["Timeouts"]["properties"]["first_byte"]["default"] == "30s"
    assert kinds["Queue"]["properties"]["bytes"]["default"] == "64MiB"
    assert kinds["Breaker"]["properties"]["failure_ratio"]["default"] == 0.4
    assert kinds["Retry"]["properties"]["attempts"]["default"] == 3


def test_nothing_may_be_null_and_nothing_unknown() -> None:
    for found in objects(json_schema()):
        assert found.get("type") != "null"
        assert "default" not in found or found["default"] is not None
        assert "properties" not in found or found["additionalProperties"] is False


def test_numbers_have_bounds_that_editors_know() -> None:
    ratio = json_schema()["$defs"]["Breaker"]["properties"]["failure_ratio"]
    assert (ratio["minimum"], ratio["maximum"]) == (0, 1)


def test_names_known_at_a_path() -> None:
    schema = json_schema()
    assert {"version", "providers", "routes"} <= known_names(schema, ())
    assert "base_url" in known_names(schema, ("providers", "any"))
    assert "env" in known_names(schema, ("providers", "any", "keys", 3))
    assert {"probes", "slow"} <= known_names(schema, ("providers", "any", "breaker"))
    assert {"provider", "spread", "answer", "first_byte"} <= known_names(schema, ("routes", 0, "tiers", 9))
    assert known_names(schema, ("nowhere", "at", "all")) == frozenset()


def test_it_is_json() -> None:
    assert json.loads(json_schema_text())["title"] == "Sponson policy"
