"""Rules that look at more than one value, walked over the tree: they speak up whatever else is wrong.

What the schema says about a single value is not said again: a value of the wrong form is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from proxy.decisions.breaker import BreakerSettings
from proxy.decisions.deadline import TimeoutSettings
from proxy.policy.problem import Problem, did_you_mean, problem_at
from proxy.policy.tree import Found, Mapping, Node, Scalar, child, children, plain, select, text_at
from proxy.policy.units import format_duration, parse_duration

OURS_TO_SET = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding"}
    | {"proxy-connection", "upgrade"}
)
"""Headers about the connection and the body's length: they follow from what is sent."""

CREDENTIALS = frozenset({"api-key", "authorization", "cookie", "proxy-authorization", "x-api-key"})
FINAL_TIERS = ("answer", "later")


def references(root: Node) -> Iterator[Problem]:
    """All problems between the values of a policy."""
    rules = (_unknown_providers, _repeated, _renamed, _one_of, _fleet, _breakers, _headers, _tiers, _hosts)
    for rule in rules:
        yield from rule(root)


def _unknown_providers(root: Node) -> Iterator[Problem]:
    known = [str(found.path[-1]) for found in select(root, "providers.*")]
    for pattern in ("routes.[].tiers.[].provider", "routes.[].tiers.[].spread.[].provider"):
        for found in select(root, pattern):
            name = _text(found)
            if name is not None and name not in known:
                message = f'no provider "{name}"{did_you_mean(name, known) or _listed(known)}'
                yield problem_at(found.node.place, found.path, message)


def _listed(known: Iterable[str]) -> str:
    names = ", ".join(known)
    return f"; known: {names}" if 0 < len(names) <= 200 else ""


def _repeated(root: Node) -> Iterator[Problem]:
    yield from _same(select(root, "routes.[].name"))
    for provider in select(root, "providers.*"):
        yield from _same(select(provider, "keys.[].id"))


def _same(names: Iterable[Found]) -> Iterator[Problem]:
    first: dict[str, Found] = {}
    for found in names:
        name = _text(found)
        if name is not None and first.setdefault(name, found) is not found:
            place = first[name].node.place
            yield problem_at(found.node.place, found.path, f'"{name}" is defined twice; first at {place}')


def _renamed(root: Node) -> Iterator[Problem]:
    providers = {str(found.path[-1]) for found in select(root, "providers.*")}
    yield from _was(providers, select(root, "providers.*.was"))
    yield from _was(_texts(select(root, "routes.[].name")), select(root, "routes.[].was"))
    for provider in select(root, "providers.*"):
        yield from _was(_texts(select(provider, "keys.[].id")), select(provider, "keys.[].was"))


def _was(names: set[str], old: Iterable[Found]) -> Iterator[Problem]:
    taken: dict[str, Found] = {}
    for found in old:
        name = _text(found)
        if name is None:
            continue
        if name in names:
            yield problem_at(found.node.place, found.path, f'"{name}" still exists: it keeps its own state')
        elif taken.setdefault(name, found) is not found:
            place = taken[name].node.place
            yield problem_at(found.node.place, found.path, f'"{name}" was renamed already at {place}')


def _one_of(root: Node) -> Iterator[Problem]:
    rules = (
        ("providers.*.keys.[]", ("env", "file")),
        ("providers.*.headers.*", ("env", "file")),
        ("routes.[].cache.store.password", ("env", "file")),
        ("fleet.size", ("static", "dns", "endpoints", "leases")),
        ("tenants.from.[]", ("header", "credential")),
    )
    for pattern, names in rules:
        for found in select(root, pattern):
            if not isinstance(found.node, Mapping):
                continue
            given = [below for name in names if (below := child(found, name)) is not None]
            if len(given) == 1:
                continue
            culprit = given[1] if given else found
            message = f"expected exactly one of {', '.join(names)}"
            yield problem_at(culprit.key_place, culprit.path, message)


def _fleet(root: Node) -> Iterator[Problem]:
    for found in select(root, "fleet"):
        size = child(found, "size")
        kinds = {str(kind.path[-1]) for kind in children(size)} if size else set()
        if kinds & {"dns", "endpoints", "leases"} and child(found, "max_size") is None:
            message = "is required unless the size is static"
            yield problem_at(found.key_place, (*found.path, "max_size"), message)


def _breakers(root: Node) -> Iterator[Problem]:
    settings = BreakerSettings()
    for provider in select(root, "providers.*"):
        first_byte = _seconds(provider, "timeouts.first_byte", TimeoutSettings().first_byte)
        for after in select(provider, "breaker.slow.after"):
            seconds = parse_duration(_text(after) or "")
            if seconds is not None and seconds >= first_byte:
                limit = format_duration(first_byte)
                message = f"must be below first_byte ({limit}): nothing is slow before it is late"
                yield problem_at(after.node.place, after.path, message)
        for opens in select(provider, "breaker.open"):
            first = _seconds(opens, "first", settings.open_first)
            cap = _seconds(opens, "cap", settings.open_cap)
            if cap < first:
                culprit = child(opens, "cap") or child(opens, "first") or opens
                message = f"first ({format_duration(first)}) is above cap ({format_duration(cap)})"
                yield problem_at(culprit.node.place, culprit.path, message)


def _headers(root: Node) -> Iterator[Problem]:
    for headers in (*select(root, "providers.*.headers"), *select(root, "routes.[].match.header")):
        first: dict[str, Found] = {}
        for found in children(headers):
            name = str(found.path[-1]).lower()
            if first.setdefault(name, found) is not found:
                message = f"is defined twice; first at {first[name].key_place}"
                yield problem_at(found.key_place, found.path, message)
    for found in select(root, "providers.*.headers.*"):
        name = str(found.path[-1]).lower()
        if name in OURS_TO_SET:
            yield problem_at(found.key_place, found.path, "is set by the proxy itself")
        elif name in CREDENTIALS and isinstance(found.node, Scalar):
            message = "a secret is named, never written here: expected {env: NAME} or {file: PATH}"
            yield problem_at(found.node.place, found.path, message)


def _tiers(root: Node) -> Iterator[Problem]:
    for tiers in select(root, "routes.[].tiers"):
        final: Found | None = None
        for tier in children(tiers):
            if final is not None:
                message = f"is never reached: {'.'.join(map(str, final.path))} always answers"
                yield problem_at(tier.node.place, tier.path, message)
            elif isinstance(tier.node, Mapping) and _is_final(tier):
                final = tier
    for answer in select(root, "routes.[].tiers.[].answer"):
        status, body = child(answer, "status"), child(answer, "json")
        if status and body and plain(status.node) in (204, 205, 304):
            message = f"an answer with status {plain(status.node)} has no body"
            yield problem_at(body.key_place, body.path, message)


def _hosts(root: Node) -> Iterator[Problem]:
    """What is written for two providers would go to the first, whatever the second one says."""
    first: dict[str, Found] = {}
    for found in select(root, "providers.*.hosts.[]"):
        name = (_text(found) or "").lower()
        if name and first.setdefault(name, found) is not found:
            place = first[name].node.place
            yield problem_at(found.node.place, found.path, f'"{name}" belongs to a provider already, at {place}')


def _is_final(tier: Found) -> bool:
    if child(tier, "provider") or child(tier, "spread"):
        return False
    return any(isinstance(below.node, Mapping) for name in FINAL_TIERS if (below := child(tier, name)))


def _seconds(found: Found, pattern: str, default: float) -> float:
    seconds = parse_duration(text_at(found, pattern) or "")
    return default if seconds is None else seconds


def _text(found: Found) -> str | None:
    return found.node.value if isinstance(found.node, Scalar) and isinstance(found.node.value, str) else None


def _texts(found: Iterable[Found]) -> set[str]:
    return {text for one in found if (text := _text(one)) is not None}
