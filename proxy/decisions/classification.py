"""Classification: which route a request takes (`policy.md` rule 4).

Matchers are compiled once, at assembly; patterns are shell-style, `*` crosses `/`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proxy.dialects.base import Operation
from proxy.dialects.lookup import operation_of
from proxy.plan import RoutePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSettings:
    """`match`: patterns for the raw path, the model, and headers (lower-case names); empty means anything."""

    path: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    header: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Matcher:
    """A compiled `match`."""

    __slots__ = ("_headers", "_model", "_path", "_paths", "needs_headers", "needs_model")

    def __init__(self, settings: MatchSettings) -> None:
        self._paths = frozenset(p for p in settings.path if _literal(p))
        self._path = _compiled(tuple(p for p in settings.path if not _literal(p)), empty=not settings.path)
        self._model = _compiled(settings.model, empty=True)
        self._headers = tuple((name, _compiled(patterns, empty=True)) for name, patterns in settings.header)
        self.needs_model = bool(settings.model)
        self.needs_headers = bool(settings.header)

    def might(self, path: str, fields: Mapping[str, str]) -> bool:
        """Returns True when path and headers match, whatever the model."""
        if path not in self._paths and not (self._path is not None and self._path.match(path)):
            return False
        for name, pattern in self._headers:
            value = fields.get(name)
            if value is None or (pattern is not None and not pattern.match(value)):
                return False
        return True

    def model_matches(self, model: str | None) -> bool:
        """Returns True when the model matches; an unknown model matches only where no model is asked for."""
        if not self.needs_model:
            return True
        return model is not None and self._model is not None and bool(self._model.match(model))


def _literal(pattern: str) -> bool:
    return not any(mark in pattern for mark in "*?[")


def _compiled(patterns: Sequence[str], *, empty: bool) -> re.Pattern[str] | None:
    """One expression for all patterns; for none, one that matches anything (`empty`) or None."""
    if not patterns:
        return re.compile("", re.DOTALL) if empty else None
    return re.compile("|".join(f"(?:{fnmatch.translate(p)})" for p in patterns))


REMEMBERED_PATHS = 256
"""How many paths' routes are remembered; callers choose paths, so the number is bounded."""
REMEMBERED_MODELS = 64
"""How many models' routes are remembered for each path."""


LONGEST_REMEMBERED = 1024
"""How long a path or a model may be to be remembered: callers choose both."""


class Candidates:
    """What a path may mean: its operation, and the routes that path and headers allow, in order.

    `body_max` (bytes) and `total` (seconds) are the largest of all; `needs_document`: one of them reads the body.
    """

    __slots__ = ("_chosen", "body_max", "needs_document", "operation", "routes", "total")

    def __init__(self, routes: Sequence[RoutePlan], operation: Operation | None) -> None:
        self.routes = tuple(routes)
        self.operation = operation
        self.body_max = max((route.body_max for route in routes), default=0)
        self.total = max((route.total for route in routes), default=0.0)
        self.needs_document = operation is not None or any(
            route.needs_document or route.reads_document for route in routes
        )
        self._chosen: dict[str | None, RoutePlan | None] = {}

    def choose(self, model: str | None) -> RoutePlan | None:
        """Returns the first route that the model allows."""
        plan = self._chosen.get(model)
        if plan is None:
            plan = next((route for route in self.routes if route.matcher.model_matches(model)), None)
            if len(self._chosen) < REMEMBERED_MODELS and (model is None or len(model) <= LONGEST_REMEMBERED):
                self._chosen[model] = plan
        return plan

    def __repr__(self) -> str:
        return f"<Candidates {', '.join(route.name for route in self.routes)}>"


class Router:
    """Where requests go: routes in order, then `/<provider>/…`, then the first provider if there are no routes."""

    __slots__ = ("_by_headers", "_by_path", "_by_provider", "_default", "_routes")

    def __init__(
        self, routes: Sequence[RoutePlan], *, by_provider: Mapping[str, RoutePlan], default: RoutePlan | None
    ) -> None:
        self._routes = tuple(routes)
        self._by_provider = dict(by_provider)
        self._default = default
        self._by_headers = any(route.matcher.needs_headers for route in self._routes)
        self._by_path: dict[str, Candidates] = {}

    def candidates(self, path: str, fields: Mapping[str, str]) -> Candidates:
        """Returns the routes that path and headers allow; which one it is may depend on the model."""
        found = self._by_path.get(path)
        if found is None:
            found = self._find(path, fields)
            if not self._by_headers and len(self._by_path) < REMEMBERED_PATHS and len(path) <= LONGEST_REMEMBERED:
                self._by_path[path] = found
        return found

    def _find(self, path: str, fields: Mapping[str, str]) -> Candidates:
        found = [route for route in self._routes if route.matcher.might(path, fields)]
        named = self._by_provider.get(path[1:].partition("/")[0]) if path.startswith("/") else None
        if named is not None:
            found.append(named)
        elif self._default is not None:
            found.append(self._default)
        return Candidates(found, operation_of(path))

    def __repr__(self) -> str:
        return f"<Router {len(self._routes)} routes, {len(self._by_provider)} providers>"


class AnyRequest:
    """The matcher of `/<provider>/…` and of a policy without routes."""

    __slots__ = ("needs_headers", "needs_model")

    def __init__(self) -> None:
        self.needs_model = self.needs_headers = False

    def might(self, path: str, fields: Mapping[str, str]) -> bool:
        """Returns True."""
        return True

    def model_matches(self, model: str | None) -> bool:
        """Returns True."""
        return True
