"""Which provider a request reaches, and under which path: rule 4 of the policy."""

from __future__ import annotations

import pytest

from tests.integration.harness import Lab, route
from tests.integration.messages import CHAT, says

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("clean")]

HERE = "http://127.0.0.1:{port}"
CHAT_PATH = "/v1/chat/completions"
POLICY = {
    "version": 1,
    "providers": {
        "alpha": {},
        "bare": {"base_url": HERE},
        "slashed": {"base_url": f"{HERE}/v1/"},
        "gemini": {"base_url": f"{HERE}/v1beta/openai"},
        "azure": {"base_url": f"{HERE}/openai/deployments/d", "query": {"api-version": "2026-10-01"}},
        "large": {},
        "tasks": {},
    },
    "routes": [
        route("large", "large", match={"path": CHAT_PATH, "model": ["big-*", "huge"]}),
        route("task", "tasks", match={"path": "/v1/*", "header": {"x-task": "re*"}}),
        route("gemini", "gemini", match={"path": CHAT_PATH, "model": "gem*"}),
        route("azure", "azure", match={"path": CHAT_PATH, "model": "az*"}),
        route("deep", "bare", match={"path": "/deep/*/end"}),
        route("chat", "alpha", match={"path": CHAT_PATH}),
    ],
}


async def reached(lab: Lab, name: str, path: str | bytes, **body: object) -> bytes:
    """Returns the target under which the provider saw the request."""
    answer = await lab.call(path, {**CHAT, **body})
    assert (answer.status, answer.provider) == (200, name)
    assert all(not provider.seen for other, provider in lab.providers.items() if other != name)
    return lab[name].only.target


async def test_path_that_begins_with_the_root_stays_as_it_is(lab: Lab) -> None:
    assert await reached(lab, "alpha", "/v1/chat/completions") == b"/v1/chat/completions"


async def test_leading_v1_is_replaced_by_another_root(lab: Lab) -> None:
    assert await reached(lab, "gemini", "/v1/chat/completions", model="gem-1") == b"/v1beta/openai/chat/completions"


async def test_leading_v1_is_replaced_by_a_deployment_and_its_query_is_added(lab: Lab) -> None:
    target = await reached(lab, "azure", "/v1/chat/completions", model="az-1")
    assert target == b"/openai/deployments/d/chat/completions?api-version=2026-10-01"


async def test_provider_prefix_is_removed_and_the_root_put_in_front(lab: Lab) -> None:
    assert await reached(lab, "alpha", "/alpha/chat/completions") == b"/v1/chat/completions"


@pytest.mark.parametrize(
    ("provider", "path", "target"),
    [
        ("alpha", "/alpha/v1/chat/completions", "/v1/chat/completions"),
        ("alpha", "/alpha/v1", "/v1"),
        ("alpha", "/alpha/v1beta/x", "/v1/v1beta/x"),
        ("bare", "/bare/v1/chat/completions", "/v1/chat/completions"),
        ("bare", "/bare/other/place", "/other/place"),
        ("slashed", "/slashed/chat/completions", "/v1/chat/completions"),
        ("slashed", "/slashed/v1/models", "/v1/models"),
        ("gemini", "/gemini/v1beta/openai/models", "/v1beta/openai/models"),
        ("gemini", "/gemini/v1beta/openai", "/v1beta/openai"),
        ("gemini", "/gemini/v1beta/openaix/models", "/v1beta/openai/v1beta/openaix/models"),
        ("gemini", "/gemini/v1/models", "/v1beta/openai/models"),
        ("gemini", "/gemini/models", "/v1beta/openai/models"),
    ],
)
async def test_prefixed_path_is_joined_by_whole_segments(lab: Lab, provider: str, path: str, target: str) -> None:
    assert await reached(lab, provider, path) == target.encode()


@pytest.mark.parametrize(
    "rest",
    [
        b"/models/org%2Fname",
        b"/a%3Bb",
        b"/a%20b+c",
        b"/x%25s3",
        b"/p%27q",
        b"/%41",
        b"/%c3%a9%C3%A9",
        b"//a/../b/./c",
        b"/..",
        b"/a//",
        b"/d/x:gen?alt=sse&k=a%2Bb&empty=&d=1&d=2",
        b"/q?",
        b"/q?a?b=/v1/../c",
        b"/bad%ZZescape",
    ],
)
async def test_path_and_query_arrive_byte_for_byte(lab: Lab, rest: bytes) -> None:
    assert await reached(lab, "alpha", b"/alpha/v1" + rest) == b"/v1" + rest


async def test_raw_bytes_that_no_target_may_hold_are_refused(lab: Lab) -> None:
    answer = await lab.call(b"/alpha/v1/caf\xc3\xa9", CHAT)
    assert (answer.status, answer.reason) == (400, "bad_request")
    assert not lab["alpha"].seen


@pytest.mark.parametrize(("query", "joined"), [("?a=1&a=2%2F", "?a=1&a=2%2F&"), ("", "?")])
async def test_providers_query_follows_the_callers(lab: Lab, query: str, joined: str) -> None:
    target = await reached(lab, "azure", f"/azure/x{query}")
    assert target.decode() == f"/openai/deployments/d/x{joined}api-version=2026-10-01"


async def test_first_matching_route_wins(lab: Lab) -> None:
    assert await reached(lab, "large", "/v1/chat/completions", model="big-1")
    lab["large"].forget()
    assert await reached(lab, "large", "/v1/chat/completions", model="huge")


async def test_route_matches_by_header(lab: Lab) -> None:
    answer = await lab.call(body=CHAT, headers=[("X-Task", "research")])
    assert answer.provider == "tasks"
    answer = await lab.call(body=CHAT, headers=[("X-Task", "other")])
    assert answer.provider == "alpha"


async def test_star_crosses_slashes(lab: Lab) -> None:
    assert await reached(lab, "bare", "/deep/a/b/c/end") == b"/deep/a/b/c/end"


async def test_query_takes_no_part_in_matching(lab: Lab) -> None:
    assert await reached(lab, "alpha", "/v1/chat/completions?model=big-1&x=/deep/a/end") == (
        b"/v1/chat/completions?model=big-1&x=/deep/a/end"
    )


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH", "OPTIONS", "PURGE"])
async def test_any_method_passes(lab: Lab, method: str) -> None:
    answer = await lab.call("/alpha/v1/files/f-1", method=method)
    assert (answer.status, lab["alpha"].only.method) == (200, method)


@pytest.mark.parametrize("path", ["/", "/v2/chat", "/alphabet/v1/models", "/ALPHA/v1/models", "/deep/x", "/v1/models"])
async def test_path_without_a_route_gets_no_route(lab: Lab, path: str) -> None:
    answer = await lab.call(path, CHAT)
    assert (answer.status, answer.reason) == (404, "no_route")
    assert answer.json()["error"]["code"] == "no_route"
    assert answer.header("x-sponson-request-id")
    assert not any(provider.seen for provider in lab.providers.values())


async def test_no_route_speaks_the_callers_dialect(lab: Lab) -> None:
    answer = await lab.call("/nowhere/v1/messages", CHAT)
    assert answer.status == 404
    assert (answer.json()["type"], answer.json()["error"]["type"]) == ("error", "not_found_error")


async def test_own_paths_never_reach_a_provider(lab: Lab) -> None:
    answer = await lab.call("/sponson/secret", method="GET")
    assert (answer.status, answer.reason) == (404, "no_route")


async def test_without_routes_everything_goes_to_the_first_provider() -> None:
    async with Lab({"version": 1, "providers": {"one": {}, "two": {}}}) as lab:
        lab["one"].script = lab["two"].script = says("hi")
        for path, provider, target in [
            ("/v1/chat/completions", "one", b"/v1/chat/completions"),
            ("/anything", "one", b"/v1/anything"),
            ("/two/v1/models", "two", b"/v1/models"),
        ]:
            answer = await lab.call(path, CHAT)
            assert answer.provider == provider
            assert lab[provider].seen[-1].target == target
