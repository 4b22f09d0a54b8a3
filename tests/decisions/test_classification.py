"""Which route a request takes (rule 4)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from proxy.decisions.classification import (
    LONGEST_REMEMBERED,
    REMEMBERED_MODELS,
    REMEMBERED_PATHS,
    AnyRequest,
    Matcher,
    MatchSettings,
    Router,
)
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind
from proxy.plan import RoutePlan

NOTHING: Mapping[str, str] = {}


async def answer(exchange: Exchange) -> Outcome:
    return Outcome(OutcomeKind.OK)


def a_route(name: str, match: MatchSettings | None = None) -> RoutePlan:
    return RoutePlan(
        name=name,
        matcher=Matcher(match) if match is not None else AnyRequest(),
        call=answer,
        total=600.0,
        body_max=1,
        body_replay=1,
        repeatable=None,
        needs_document=False,
    )


def a_router(*routes: RoutePlan, default: RoutePlan | None = None) -> Router:
    providers = {name: a_route(f"only {name}") for name in ("alpha", "beta")}
    return Router(routes, by_provider=providers, default=default)


def names(router: Router, path: str, fields: Mapping[str, str] = NOTHING) -> list[str]:
    return [route.name for route in router.candidates(path, fields).routes]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/v1/chat/completions", "/v1/chat/completions", True),
        ("/v1/chat/completions", "/v1/chat/completions/", False),
        ("/v1/chat/completions", "/V1/chat/completions", False),
        ("/v1/*", "/v1/files/f1/content", True),
        ("/v1/*", "/v1", False),
        ("*/completions", "/v1/chat/completions", True),
        ("/v?/models", "/v1/models", True),
        ("/v?/models", "/v10/models", False),
        ("/v[12]/models", "/v2/models", True),
        ("/v[!1]/models", "/v1/models", False),
        ("/v1/a%2Fb", "/v1/a%2Fb", True),
        ("/v1/a%2Fb", "/v1/a/b", False),
        ("/v1/*", "/v1/two\nlines", True),
        ("/v1.chat", "/v1xchat", False),
    ],
)
def test_patterns_look_at_the_raw_path(pattern: str, path: str, matches: bool) -> None:
    assert Matcher(MatchSettings(path=(pattern,))).might(path, NOTHING) is matches


def test_one_pattern_of_a_list_is_enough() -> None:
    matcher = Matcher(MatchSettings(path=("/v1/models", "/v1/chat/*", "*.json")))
    found = [p for p in ("/v1/models", "/v1/chat/x", "/a.json", "/v1/files") if matcher.might(p, NOTHING)]
    assert found == ["/v1/models", "/v1/chat/x", "/a.json"]


def test_an_empty_match_takes_everything() -> None:
    matcher = Matcher(MatchSettings())
    assert matcher.might("/anything/at all", NOTHING)
    assert matcher.model_matches(None)
    assert matcher.model_matches("any")


def test_a_header_must_be_there_and_match() -> None:
    matcher = Matcher(MatchSettings(header=(("x-task", ("research", "plan-*")), ("x-team", ()))))
    assert matcher.needs_headers
    assert matcher.might("/", {"x-task": "plan-b", "x-team": "anything"})
    assert not matcher.might("/", {"x-task": "other", "x-team": "anything"})
    assert not matcher.might("/", {"x-task": "research"})
    assert not matcher.might("/", {"x-team": "anything"})


def test_the_model_is_asked_for_only_where_the_route_names_one() -> None:
    matcher = Matcher(MatchSettings(model=("gpt-*", "o3")))
    assert matcher.needs_model
    assert [m for m in ("gpt-5", "o3", "o3-mini", "GPT-5", None) if matcher.model_matches(m)] == ["gpt-5", "o3"]


def test_the_first_match_wins() -> None:
    router = a_router(
        a_route("chat", MatchSettings(path=("/v1/chat/*",))),
        a_route("rest", MatchSettings(path=("/v1/*",))),
    )
    assert names(router, "/v1/chat/completions") == ["chat", "rest"]
    assert names(router, "/v1/models") == ["rest"]


def test_which_candidate_it_is_depends_on_the_model() -> None:
    router = a_router(
        a_route("large", MatchSettings(model=("gpt-*",))),
        a_route("other", MatchSettings(path=("/v1/*",))),
    )
    candidates = router.candidates("/v1/chat/completions", NOTHING)
    chosen = [candidates.choose(model) for model in ("gpt-5", "llama", None)]
    assert [route.name if route else None for route in chosen] == ["large", "other", "other"]


def test_a_model_that_no_route_takes_finds_none() -> None:
    router = a_router(a_route("large", MatchSettings(model=("gpt-*",))))
    assert router.candidates("/v1/chat/completions", NOTHING).choose("llama") is None


@pytest.mark.parametrize("path", ["/alpha/chat/completions", "/alpha/", "/alpha", "/alpha//v1/../x"])
def test_every_provider_has_a_path_of_its_own(path: str) -> None:
    assert names(a_router(a_route("chat", MatchSettings(path=("/v1/*",)))), path) == ["only alpha"]


def test_routes_stand_before_the_providers_own_paths() -> None:
    router = a_router(a_route("all", MatchSettings(path=("/alpha/*",))))
    assert names(router, "/alpha/x") == ["all", "only alpha"]


@pytest.mark.parametrize("path", ["/gamma/x", "/alphabet/x", "/Alpha/x", "/", "", "*", "xalpha/y", "//alpha/x"])
def test_anything_else_has_no_route(path: str) -> None:
    assert names(a_router(a_route("chat", MatchSettings(path=("/v1/*",)))), path) == []


def test_without_routes_anything_goes_to_the_default() -> None:
    router = a_router(default=a_route("first"))
    assert names(router, "/anything") == ["first"]
    assert names(router, "/beta/x") == ["only beta"]


def test_a_path_asked_for_again_meets_the_same_routes() -> None:
    router = a_router(a_route("chat", MatchSettings(path=("/v1/*",))))
    assert [names(router, "/v1/x") for _ in range(3)] == [["chat"]] * 3
    assert [names(router, "/v2/x") for _ in range(3)] == [[]] * 3


def test_routes_by_header_are_not_remembered_by_path() -> None:
    router = a_router(
        a_route("research", MatchSettings(header=(("x-task", ("research",)),))),
        a_route("rest", MatchSettings()),
    )
    assert names(router, "/v1/x") == ["rest"]
    assert names(router, "/v1/x", {"x-task": "research"}) == ["research", "rest"]
    assert names(router, "/v1/x") == ["rest"]


def test_paths_that_callers_invent_are_routed_beyond_what_is_remembered() -> None:
    router = a_router(a_route("chat", MatchSettings(path=("/v1/*",))))
    for number in range(REMEMBERED_PATHS + 50):
        assert names(router, f"/v1/{number}") == ["chat"]
    assert len(router._by_path) == REMEMBERED_PATHS
    assert repr(router) == "<Router 1 routes, 2 providers>"


def test_what_is_remembered_is_bounded_in_length_too() -> None:
    router = a_router(a_route("chat", MatchSettings(path=("/v1/*",))))
    long = "x" * (LONGEST_REMEMBERED + 1)
    assert names(router, f"/v1/{long}") == ["chat"]
    found = router.candidates("/v1/chat/completions", NOTHING)
    for model in (*map(str, range(REMEMBERED_MODELS + 50)), long):
        plan = found.choose(model)
        assert plan is not None
    assert set(router._by_path) == {"/v1/chat/completions"}
    assert len(found._chosen) == REMEMBERED_MODELS
    assert router.candidates("/v1/chat/completions", NOTHING).choose(long) is not None
