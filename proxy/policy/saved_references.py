"""Rules about saved work that look at more than one value: caches and their tiers, merging, connections kept ready."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy.problem import Problem, problem_at
from proxy.policy.snapshot import ConnectionSettings
from proxy.policy.tree import Found, Node, Scalar, child, children, select, text_at
from proxy.policy.units import parse_duration


def saved_references(root: Node) -> Iterator[Problem]:
    """All problems between the values of what saves work."""
    for route in select(root, "routes.[]"):
        yield from _stale_tiers(route)
        yield from _merging(route)
    for connections in select(root, "providers.*.connections"):
        yield from _warm(connections)


def _stale_tiers(route: Found) -> Iterator[Problem]:
    for tier in select(route, "tiers.[]"):
        if (stale := child(tier, "stale_cache")) is None:
            continue
        if child(route, "cache") is None:
            message = "there is nothing to give: the route has no cache (add `cache: {ttl: 5m}` to it)"
            yield problem_at(stale.key_place, stale.path, message)
        elif tier.path[-1] == 0:
            message = "nothing has failed yet: put it after the tiers that it stands in for"
            yield problem_at(stale.key_place, stale.path, message)


def _merging(route: Found) -> Iterator[Problem]:
    for merge in select(route, "merge"):
        inputs, results = child(merge, "inputs"), child(merge, "results")
        if (one := inputs or results) is not None and None in (inputs, results):
            other = "results" if inputs else "inputs"
            message = f"needs {other}, too: the fields of the inputs and of the results are named together"
            yield problem_at(one.key_place, one.path, message)
    asks = text_at(route, "merge.inputs")
    for field in select(route, "cache.ignore.[]"):
        if asks is not None and isinstance(field.node, Scalar) and field.node.value == asks:
            message = f'"{asks}" is the question itself: it has the inputs (merge.inputs)'
            yield problem_at(field.node.place, field.path, message)


def _warm(connections: Found) -> Iterator[Problem]:
    numbers = {
        str(found.path[-1]): found.node.value
        for found in children(connections)
        if isinstance(found.node, Scalar) and isinstance(found.node.value, int | float)
    }
    warm, most = numbers.get("warm", 0), numbers.get("max", ConnectionSettings().max)
    found = child(connections, "warm")
    if found is None or not warm:
        return
    if warm > most > 0:
        yield problem_at(found.node.place, found.path, f"{warm:g} is above max ({most:g}): so many there never are")
    elif parse_duration(text_at(connections, "idle") or "") == 0:
        yield problem_at(found.node.place, found.path, "idle is 0s: no connection is kept, so none can be ready")
