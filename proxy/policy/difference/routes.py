"""The sections of routes, and of where requests go by the routes of each policy."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.policy.difference.change import Findings, Section, Sign
from proxy.policy.difference.fields import REQUEST, ROUTE, compare, plain
from proxy.policy.difference.requests import moves
from proxy.policy.difference.saved import compare_saved
from proxy.policy.difference.shares import Reload
from proxy.policy.difference.state import renamings
from proxy.policy.difference.tiers import chain, compare_tiers
from proxy.policy.snapshot import PolicySnapshot, RouteSnapshot


def routes(reload: Reload) -> Iterator[Section | None]:
    """Yields the sections of all routes; None for each that does not change."""
    before = {route.name: route for route in reload.old.routes or ()}
    renamed = renamings(reload.old.routes or (), reload.new.routes or ())
    names = {new: old for old, new in renamed.items()}
    stay = set()
    for route in reload.new.routes or ():
        match = before.get(names.get(route.name, route.name))
        if match is None:
            yield _new(route, reload)
        else:
            stay.add(match.name)
            yield _changed(match, route, reload)
    for route in reload.old.routes or ():
        if route.name not in stay:
            yield _gone(route, reload)


def _changed(old: RouteSnapshot, new: RouteSnapshot, reload: Reload) -> Section | None:
    findings = Findings()
    if old.name != new.name:
        findings.value("name", old.name, new.name, note=REQUEST)
    differ = compare(findings, ROUTE, old, new)
    compare_tiers(findings, old, new, reload)
    compare_saved(findings, old, new, reload)
    _budgets(findings, (old, new), reload)
    if "retry.budget" in differ:
        findings.effect("what the retry budget has counted stays counted")
    _classes_and_keys(findings, differ, old, new)
    if new.observe and not old.observe:
        findings.warn("shares and breakers hold none of its requests back any more")
    if old.observe and not new.observe:
        findings.warn("shares and breakers hold its requests back again; a breaker that is open now refuses them")
    return findings.changes(f"route {new.name}")


def _classes_and_keys(findings: Findings, differ: set[str], old: RouteSnapshot, new: RouteSnapshot) -> None:
    if "class" in differ:
        findings.effect("who waits keeps its place and the class that it came with")
    if "class_from_header" in differ and new.class_from_header:
        findings.warn("callers may raise their calls to P0 now, by x-sponson-class")
    if "idempotency" in differ:
        findings.effect("answers that are kept already are given again only where the new headers have the same value")
        if new.idempotency.all_required and not old.idempotency.all_required:
            findings.warn(f"requests without all of {', '.join(new.idempotency.headers)} are refused: 400 bad_request")
    if "idempotency.keep" in differ:
        findings.effect("answers that are kept already stay as long as they were to")
    if "lanes" in differ:
        findings.effect("who waits keeps its place; permits in use stay counted where they were taken")


def _budgets(findings: Findings, pair: tuple[RouteSnapshot, RouteSnapshot], reload: Reload) -> None:
    """A renamed route keeps the budgets of the providers that it goes on to ask."""
    old, new = pair
    names = renamings(reload.old.providers, reload.new.providers)
    asked = {names.get(tier.provider, tier.provider) for tier in old.asked()}
    begun = [provider for _, _, provider in reload.fates.begun("budget", new.name) if provider in asked]
    if begun:
        findings.effect(f"retry budgets of {', '.join(begun)} begin anew: calls and retries are counted from zero")
    elif old.name != new.name:
        findings.effect("keeps its retry budgets: what was counted stays counted")


def _new(route: RouteSnapshot, reload: Reload) -> Section:
    findings = Findings()
    findings.value("tiers", "none", plain(tuple(chain(route))), note=REQUEST)
    if route.was is not None:
        findings.warn(f"`was: {route.was}` has no effect: there is no such route in the old policy")
    stay = {name for one in reload.new.routes or () for name in (one.name, one.was)}
    for one in reload.old.routes or ():
        if one.name not in stay and (one.match, one.tiers) == (route.match, route.tiers):
            findings.warn(f"equals {one.name}, which goes: `was: {one.name}` would keep its retry budgets")
    return findings.section(Sign.ADDED, f"route {route.name}")


def _gone(route: RouteSnapshot, reload: Reload) -> Section:
    findings = Findings()
    for one in reload.new.routes or ():
        if one.was == route.name:
            findings.warn(f"`was: {route.name}` of {one.name} has no effect: {one.name} keeps its own state")
    findings.effect("requests that it has taken end by it; its retry budgets are put aside for 10 minutes")
    return findings.section(Sign.REMOVED, f"route {route.name}")


def requests(reload: Reload) -> Section | None:
    """Returns examples of requests that go elsewhere; None where none is found and the order is the same."""
    findings = Findings()
    if (reload.old.routes is None) != (reload.new.routes is None):
        findings.value("routes", *("none" if p.routes is None else "some" for p in (reload.old, reload.new)))
    for move in moves(reload.old, reload.new):
        findings.value(str(move.example), move.old, move.new)
        if move.new.startswith("404"):
            findings.warn("requests that were taken before are refused: 404 no_route")
    if not findings.values and _reordered(reload):
        findings.value("order of routes", *(_order(policy) for policy in (reload.old, reload.new)))
        findings.effect("no request was found that another route takes")
    return findings.changes("where requests go")


def _order(policy: PolicySnapshot) -> str:
    return plain(tuple(route.name for route in policy.routes or ()))


def _reordered(reload: Reload) -> bool:
    """Whether routes that are in both policies stand in another order."""
    renamed = renamings(reload.old.routes or (), reload.new.routes or ())
    before = [renamed.get(route.name, route.name) for route in reload.old.routes or ()]
    after = [route.name for route in reload.new.routes or ()]
    return [name for name in before if name in after] != [name for name in after if name in before]
