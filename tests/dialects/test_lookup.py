"""Which operation a path is."""

from __future__ import annotations

import pytest

from proxy.dialects.lookup import dialect_named, operation_of


@pytest.mark.parametrize(
    ("path", "kind", "name", "dialect", "streams"),
    [
        ("/v1/chat/completions", "chat", "chat", "openai", True),
        ("/alpha/v1/chat/completions", "chat", "chat", "openai", True),
        ("/alpha/chat/completions", "chat", "chat", "openai", True),
        ("/chat/completions", "chat", "chat", "openai", True),
        ("/openai/deployments/d/chat/completions", "chat", "chat", "openai", True),
        ("/v1beta/openai/chat/completions", "chat", "chat", "openai", True),
        ("/v1/completions", "completions", "text_completion", "openai", True),
        ("/openai/deployments/d/completions", "completions", "text_completion", "openai", True),
        ("/v1/fim/completions", "completions", "text_completion", "openai", True),
        ("/v1/embeddings", "embeddings", "embeddings", "openai", False),
        ("/openai/deployments/d/embeddings", "embeddings", "embeddings", "openai", False),
        ("/v1/responses", "responses", "chat", "openai", True),
        ("/v1/responses/input_tokens", "count_tokens", "count_tokens", "openai", False),
        ("/v1/moderations", "moderations", "moderations", "openai", False),
        ("/v2/rerank", "rerank", "rerank", "openai", False),
        ("/v1/messages", "messages", "chat", "anthropic", True),
        ("/gamma/v1/messages", "messages", "chat", "anthropic", True),
        ("/gamma/messages", "messages", "chat", "anthropic", True),
        ("/messages", "messages", "chat", "anthropic", True),
        ("/v1/messages/count_tokens", "count_tokens", "count_tokens", "anthropic", False),
    ],
)
def test_known_paths(path: str, kind: str, name: str, dialect: str, streams: bool) -> None:
    operation = operation_of(path)
    assert operation is not None
    assert (operation.kind, operation.name, operation.dialect.name) == (kind, name, dialect)
    assert operation.streams is streams
    assert operation.inference


def test_whose_streams_tell_usage_only_when_asked() -> None:
    paths = ["chat/completions", "completions", "fim/completions", "responses", "messages", "embeddings"]
    operations = [operation_of(f"/v1/{path}") for path in paths]
    assert [operation and operation.usage_on_request for operation in operations] == [True, True] + [False] * 4


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "*",
        "/v1/models",
        "/v1/files",
        "/v1/batches",
        "/v1/messages/batches",
        "/v1/threads/t/messages",
        "/v1/chat/completions/c/messages",
        "/v1/chat/completions/c",
        "/v1/chat/completions/",
        "/v1/Embeddings",
        "/v1/responses/r",
        "/v1/responses/r/cancel",
        "/v1/my-embeddings",
        "/v1/chat%2Fcompletions",
        "/v1/embeddings;x",
    ],
)
def test_other_paths(path: str) -> None:
    assert operation_of(path) is None


def test_dialects_by_name() -> None:
    assert [dialect_named(name).name for name in ("openai", "anthropic", "opaque")] == [
        "openai",
        "anthropic",
        "opaque",
    ]
    with pytest.raises(KeyError):
        dialect_named("latin")
