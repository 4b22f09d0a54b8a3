"""Which requests go elsewhere: sample requests are made from the patterns of both policies and routed by each.

The rules are those of `decisions/classification.py`. Examples prove that something moves; that none is found proves
nothing, because patterns can meet in ways that no sample hits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice, product
from typing import Final

from proxy.decisions.classification import Matcher, MatchSettings
from proxy.policy.difference.fields import plain
from proxy.policy.difference.state import renamings
from proxy.policy.snapshot import PolicySnapshot

MOST_SAMPLES: Final = 20_000
"""A policy with hundreds of routes has more pairs of them than anybody waits for."""
MOST_OF_A_PAIR: Final = 48
FILLER: Final = "x"
FILLERS: Final = "x0-azA9_"
COMMON_PATH: Final = "/v1/chat/completions"

_WILD = re.compile(r"\*|\?|\[(!?)(.[^\]]*)\]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Sample:
    """A request, as far as routing looks at it."""

    path: str
    model: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        model = "" if self.model is None else f", model {plain(self.model)}"
        return plain(self.path) + model + "".join(f", {name}: {plain(value)}" for name, value in self.headers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Requests that go elsewhere: from where, to where, and one of them."""

    old: str
    new: str
    example: Sample


class Routing:
    """Where requests go by one policy."""

    __slots__ = ("_default", "_providers", "_routes")

    def __init__(self, policy: PolicySnapshot) -> None:
        self._routes = [(route.name, Matcher(route.match)) for route in policy.routes or ()]
        self._providers = {provider.name for provider in policy.providers}
        self._default = policy.providers[0].name if policy.routes is None else None

    def destination(self, sample: Sample) -> tuple[str, str]:
        """Returns (kind, name) of what takes the request: a route, a provider alone, or nothing."""
        headers = dict(sample.headers)
        for name, matcher in self._routes:
            if matcher.might(sample.path, headers) and matcher.model_matches(sample.model):
                return "route", name
        first = sample.path[1:].partition("/")[0]
        if first in self._providers:
            return "provider", first
        return ("provider", self._default) if self._default is not None else ("nothing", "")


def moves(old: PolicySnapshot, new: PolicySnapshot) -> list[Move]:
    """Returns the moves that samples show, one for each pair of places."""
    before, after = Routing(old), Routing(new)
    routes, providers = renamings(old.routes or (), new.routes or ()), renamings(old.providers, new.providers)
    found: dict[tuple[str, str], Move] = {}
    for sample in dict.fromkeys(islice(samples(old, new), MOST_SAMPLES)):
        kind, name = before.destination(sample)
        was = kind, (routes if kind == "route" else providers).get(name, name)
        now = after.destination(sample)
        if was != now:
            move = Move(old=_said((kind, name)), new=_said(now), example=sample)
            found.setdefault((move.old, move.new), move)
    return list(found.values())


def _said(place: tuple[str, str]) -> str:
    kind, name = place
    return {"route": f"route {name}", "provider": f"{name} alone"}.get(kind, "404 no_route")


def samples(old: PolicySnapshot, new: PolicySnapshot) -> Iterator[Sample]:
    """Yields requests that both policies' routes, and pairs of them, are about; the plainest ones first."""
    matches = list(dict.fromkeys(route.match for policy in (old, new) for route in policy.routes or ()))
    names = dict.fromkeys(provider.name for policy in (old, new) for provider in policy.providers)
    yield Sample(path=COMMON_PATH)
    for name in names:
        yield Sample(path=f"/{name}{COMMON_PATH}")
    for match in matches:
        yield from _meeting(match, match)
    for one, other in product(matches, matches):
        if one is not other:
            yield from _meeting(one, other)


def _meeting(one: MatchSettings, other: MatchSettings) -> Iterator[Sample]:
    """Yields requests that are made of the patterns of both."""
    paths = _both(one.path, other.path) or [COMMON_PATH]
    models: Sequence[str | None] = _both(one.model, other.model) or [None]
    here, there = dict(one.header), dict(other.header)
    names = dict.fromkeys([*here, *there])
    values = [_both(here.get(name, ()), there.get(name, ())) for name in names]
    for path, model, *texts in islice(product(paths, models, *values), MOST_OF_A_PAIR):
        assert path is not None
        headers = tuple((name, text) for name, text in zip(names, texts, strict=True) if text is not None)
        yield Sample(path=path, model=model, headers=headers)


def _both(one: Sequence[str], other: Sequence[str]) -> list[str]:
    """Returns texts made of a pattern of each side; none where neither has any."""
    return list(dict.fromkeys(text for a, b in product(one or ("",), other or ("",)) for text in _texts(a, b)))


def _texts(one: str, other: str) -> Iterator[str]:
    """Yields texts made from one pattern, and from one put into the stars of the other."""
    if one:
        yield _filled(one, FILLER)
    if other and other != one:
        yield _filled(other, FILLER)
        if one:
            yield _filled(one, _filled(other, FILLER))
            yield _filled(other, _filled(one, FILLER))


def _filled(pattern: str, star: str) -> str:
    """Returns a text that the pattern matches, with `star` for its stars."""
    return _WILD.sub(lambda found: star if found[0] == "*" else _one(found), pattern)


def _one(found: re.Match[str]) -> str:
    """A character for `?`, or one in or not in a set."""
    if found[2] is None:
        return FILLER
    if not found[1]:
        return found[2][0]
    return next((character for character in FILLERS if fnmatchcase(character, found[0])), FILLER)
