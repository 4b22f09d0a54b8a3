"""Policies for tests, and short ways to load them."""

from __future__ import annotations

import pytest

from proxy.policy.load import load_policy
from proxy.policy.parse import parse
from proxy.policy.problem import PolicyError
from proxy.policy.snapshot import PolicySnapshot, ProviderSnapshot, RouteSnapshot
from proxy.policy.source import PolicyBytes
from proxy.policy.tree import Node

GOOD = """\
version: 1
providers:
  a:
    base_url: http://127.0.0.1:1/v1
"""
ROUTE = """\
routes:
  - name: chat
    match: {path: /v1/chat/completions}
    tiers: [{provider: a}]
"""


def tree(text: str) -> Node:
    """The tree of a text without problems."""
    parsed = parse("p.yaml", text.encode())
    assert parsed.problems == ()
    return parsed.root


def files(**texts: str) -> PolicyBytes:
    """Bytes of a directory: `a="…"` is the file a.yaml."""
    return PolicyBytes(files=tuple((f"{name}.yaml", text.encode()) for name, text in texts.items()))


def load(text: str) -> PolicySnapshot:
    """The snapshot of the file p.yaml."""
    return load_policy(files(p=text))


def provider(below: str = "") -> ProviderSnapshot:
    """The snapshot of a provider with these lines in it."""
    return load(GOOD + "".join(f"    {line}\n" for line in below.splitlines())).providers[0]


def route(below: str = "") -> RouteSnapshot:
    """The snapshot of a route with these lines in it."""
    routes = load(GOOD + ROUTE + "".join(f"    {line}\n" for line in below.splitlines())).routes
    assert routes is not None
    return routes[0]


def problems(text: str, **more: str) -> list[str]:
    """What is wrong with p.yaml (and other files beside it), a line each."""
    with pytest.raises(PolicyError) as caught:
        load_policy(files(p=text, **more))
    return [str(problem) for problem in caught.value.problems]


def problem(text: str) -> str:
    """The only thing that is wrong with p.yaml."""
    (line,) = problems(text)
    return line


def provider_problems(below: str) -> list[str]:
    """What is wrong with a provider that has these lines."""
    return problems(GOOD + "".join(f"    {line}\n" for line in below.splitlines()))


def route_problems(below: str) -> list[str]:
    """What is wrong with a route that has these lines."""
    return problems(GOOD + ROUTE + "".join(f"    {line}\n" for line in below.splitlines()))
