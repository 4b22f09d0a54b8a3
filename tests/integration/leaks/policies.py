"""Policies that are rejected, with a secret where it should not be; each holds as many mistakes as it can."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.leaks.marks import mark

M = mark("misplaced")
MISTAKES: tuple[dict[str, Any], ...] = (
    {"keys": M},
    {"keys": [M, {"id": M + "/", "env": "KEY"}, {"id": "a", "env": M}, {"id": "b", M: "x"}, {"id": "c", "value": M}]},
    {"keys": [{"id": "a", "env": "KEY", "weight": M}, {"id": "a", "file": [M]}]},
    {"headers": {"authorization": f"Bearer {M}\t", "x-b": {"env": f"Bearer {M}"}, "x-c": {M: "x"}, f"b {M}": "x"}},
    {"auth": f"Bearer {M}"},
    {"auth": {"header": f"Bearer {M}"}},
    {"query": f"key={M}"},
    {"query": {"key": [M]}},
    {"base_url": f"https://me:{M}@provider.test/v1"},
    {"base_url": f"https://provider.test/v1?key={M}"},
    {"base_url": [f"provider.test/v1?key={M}"]},
    {"api_key": M},
)


def mistaken() -> str:
    """Returns a policy with every mistake that leaves it YAML."""
    base = {"base_url": "https://provider.test/v1"}
    providers = {f"p{number}": {**base, **mistake} for number, mistake in enumerate(MISTAKES)}
    return json.dumps({"version": 1, "providers": providers})


UNREADABLE = {
    "flow": f"version: 1\nproviders:\n  a:\n    keys: [{{id: a, env: {M}\n",
    "escape": f'version: 1\nproviders:\n  a:\n    headers: {{x: "{M}\\q"}}\n',
    "alias": f"version: 1\nproviders:\n  a:\n    query: {{key: *{M} }}\n",
    "tag": f"version: 1\nproviders:\n  a:\n    query: {{key: !{M} x}}\n",
    "control": f"version: 1\nproviders:\n  a:\n    query: {{key: '{M}\x07'}}\n",
}
SPOILED = (
    f"{M}\n{M}\n".encode(),
    f"{M}\xff".encode("latin-1"),
    f"{M}\0".encode(),
    f"  {M}é  ".encode(),
)
"""Contents of a file that are no secret, though one is in them."""
