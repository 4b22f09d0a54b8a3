"""Which path a provider is asked for: the examples of the policy's page, and what never changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.joining import join, starts_with_path, without_credentials

SEGMENTS = st.lists(st.text(alphabet="ab1%2F.~-", max_size=4), max_size=4).map(lambda parts: "/" + "/".join(parts))
ROOTS = st.lists(st.text(alphabet="abv1", min_size=1, max_size=3), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/v1/chat/completions", "/v1", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1beta/openai", "/v1beta/openai/chat/completions"),
        ("/v1/chat/completions", "/openai/deployments/d", "/openai/deployments/d/chat/completions"),
        ("/chat/completions", "/v1", "/v1/chat/completions"),
        ("/v1/chat/completions", "", "/v1/chat/completions"),
        ("/openai/deployments/d/chat/completions", "/openai/deployments/d", "/openai/deployments/d/chat/completions"),
        ("/v1", "/api", "/api"),
        ("/v1/", "/api", "/api/"),
        ("/", "/api", "/api/"),
    ],
)
def test_examples_of_the_policy(path: str, root: str, expected: str) -> None:
    assert join(path, root) == expected


@pytest.mark.parametrize(
    ("path", "root", "expected"),
    [
        ("/v1beta/models", "/api", "/api/v1beta/models"),
        ("/v10/models", "/v1", "/v1/v10/models"),
        ("/openai/deployments/d2/x", "/openai/deployments/d", "/openai/deployments/d/openai/deployments/d2/x"),
    ],
)
def test_only_whole_segments_count(path: str, root: str, expected: str) -> None:
    assert join(path, root) == expected


@pytest.mark.parametrize("rest", ["/files/a%2Fb", "/a/../b", "//double", "/a%00", "/ünïcode", "/trailing/"])
def test_what_stands_after_the_join_stays_byte_for_byte(rest: str) -> None:
    assert join("/v1" + rest, "/api/v3") == "/api/v3" + rest


@given(path=SEGMENTS, root=ROOTS)
def test_joining_twice_is_joining_once(path: str, root: str) -> None:
    assert join(join(path, root), root) == join(path, root)


@given(path=SEGMENTS, root=ROOTS)
def test_the_result_begins_with_the_root_and_ends_as_the_caller_asked(path: str, root: str) -> None:
    joined = join(path, root)
    assert starts_with_path(joined, root)
    assert joined.endswith(path.removeprefix("/v1"))


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("", ""),
        ("?", "?"),
        ("?key=a", ""),
        ("?alt=sse&KEY=a&x=%2f", "?alt=sse&x=%2f"),
        ("?%6Bey=a&api%5Fkey=b&y", "?y"),
        ("?api-key=a&access_token=b&subscription-key=c&apikey", ""),
        ("?keys=a&monkey=b&key-id=c&x=key&=key", "?keys=a&monkey=b&key-id=c&x=key&=key"),
        ("?&&a=1&key=a&&", "?&&a=1&&"),
    ],
)
def test_a_credential_in_a_query_goes_and_every_other_byte_stays(query: str, left: str) -> None:
    assert without_credentials(query) == left
