"""Rules between the values of limits: addresses, equals, lanes, tenants and idempotency keys.

Walked over the tree like `references`: they speak up whatever else is wrong, and say nothing of a value that has the
wrong form already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proxy.decisions.callers import SECRET_HEADERS
from proxy.policy.build_providers import PORTS
from proxy.policy.problem import Problem, problem_at
from proxy.policy.references import CREDENTIALS, OURS_TO_SET
from proxy.policy.schema.types import split_url
from proxy.policy.tree import Found, Items, Node, Scalar, child, children, select, text_at

ROUNDING = 1e-9


def limit_references(root: Node) -> Iterator[Problem]:
    """All problems between the values of limits."""
    for rule in (_addresses, _equals, _lanes, _too_long, _key_headers, _provider_header):
        yield from rule(root)


def _addresses(root: Node) -> Iterator[Problem]:
    for urls in select(root, "providers.*.base_url"):
        listed = list(select(urls, "[]"))
        parts = [(one, split) for one in listed if (split := split_url(_text(one) or "")) is not None]
        for found, split in parts[1:]:
            first, wanted = parts[0][0], parts[0][1].path.rstrip("/")
            if split.path.rstrip("/") != wanted:
                message = (
                    f"all addresses of a provider must have the same path: expected {wanted or 'none'}, "
                    f"as at {first.node.place}"
                )
                yield problem_at(found.node.place, found.path, message)
        where = ((one, f"{split.hostname}:{split.port or PORTS[split.scheme]}") for one, split in parts)
        yield from _twice(where, "is listed twice; first at {}")


def _equals(root: Node) -> Iterator[Problem]:
    for members in select(root, "routes.[].tiers.[].spread"):
        if not isinstance(members.node, Items) or not members.node.nodes:
            continue
        if len(members.node.nodes) == 1:
            message = "expected at least two equals: a single one is a tier of its own, {provider: NAME}"
            yield problem_at(members.node.place, members.path, message)
        named = [(one, text_at(one, "provider"), text_at(one, "model")) for one in children(members)]
        targets = ((one, f"{provider}/{model or ''}") for one, provider, model in named if provider is not None)
        yield from _twice(targets, "is the same as the equal at {}: expected another provider or model")


def _lanes(root: Node) -> Iterator[Problem]:
    for lanes in select(root, "routes.[].lanes"):
        shares = [share for one in select(lanes, "[].share") if (share := _number(one)) is not None]
        if max(shares, default=1.0) < 1 <= sum(shares) + ROUNDING:
            message = f"shares add up to {sum(shares):g}: expected less than 1, longer answers need a part, too"
            yield problem_at(lanes.node.place, lanes.path, message)
        before: tuple[Found, float] | None = None
        for found in select(lanes, "[].max_output"):
            if (most := _number(found)) is None:
                continue
            if before is not None and most <= before[1]:
                message = f"expected more than the {before[1]:g} at {before[0].node.place}: from short to long"
                yield problem_at(found.node.place, found.path, message)
            before = found, most


def _too_long(root: Node) -> Iterator[Problem]:
    """A tier that no route has helps nobody; single routes with fewer tiers get a warning (`tenant_reach`)."""
    routes = [(found.node.place, len(list(children(found)))) for found in select(root, "routes.[].tiers")]
    place, most = max(routes, key=lambda route: route[1], default=(None, 1))
    for pattern in ("tenants.default.too_long.tier", "tenants.overrides.*.too_long.tier"):
        for found in select(root, pattern):
            tier = _number(found)
            if tier is None or tier <= most:
                continue
            where = "without routes there is one" if place is None else f"the most are {most}, at {place}"
            yield problem_at(found.node.place, found.path, f"no route has {tier:g} tiers: {where}")


def _key_headers(root: Node) -> Iterator[Problem]:
    for found in select(root, "routes.[].idempotency"):
        header, several = child(found, "header"), child(found, "from")
        if header is not None and several is not None:
            message = "expected either header or from, not both: the key is in one header, or made of several"
            yield problem_at(header.key_place, header.path, message)
        names = [(one, text.lower()) for one in select(found, "from.[]") if (text := _text(one)) is not None]
        yield from _twice(names, "is listed twice; first at {}")
        single = [(header, text.lower())] if header is not None and (text := _text(header)) is not None else []
        for one, name in (*names, *single):
            if name in OURS_TO_SET | SECRET_HEADERS:
                message = "has a meaning of its own: expected a header that callers make for their keys"
                yield problem_at(one.node.place, one.path, message)


def _provider_header(root: Node) -> Iterator[Problem]:
    for provider in select(root, "providers.*"):
        found = child(provider, "idempotency_header")
        name = (_text(found) or "").lower() if found is not None else ""
        if found is None or not name:
            continue
        if name in OURS_TO_SET | CREDENTIALS:
            message = "has a meaning of its own: expected the header by which the provider de-duplicates"
            yield problem_at(found.node.place, found.path, message)
        for header in select(provider, "headers.*"):
            if str(header.path[-1]).lower() == name:
                message = f"has another value already, at {header.key_place}"
                yield problem_at(found.node.place, found.path, message)


def _twice(named: Iterable[tuple[Found, str]], message: str) -> Iterator[Problem]:
    first: dict[str, Found] = {}
    for found, name in named:
        if (earlier := first.setdefault(name, found)) is not found:
            yield problem_at(found.node.place, found.path, message.format(earlier.node.place))


def _text(found: Found) -> str | None:
    return found.node.value if isinstance(found.node, Scalar) and isinstance(found.node.value, str) else None


def _number(found: Found) -> float | None:
    value = found.node.value if isinstance(found.node, Scalar) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
