"""Right inputs, as providers, callers and operators send and write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from tests.dialects.recorded import RECORDED
from tests.dialects.streams import STREAMS

PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"),
    *("/v1/moderations", "/v1/rerank", "/v1/messages/count_tokens"),
)
EVENTS = tuple(dict.fromkeys(stream.data for stream in (*RECORDED, *STREAMS) if len(stream.data) < 4000))
_BODIES: tuple[dict[str, Any], ...] = (
    {"model": "m", "messages": [{"role": "user", "content": "good day"}], "stream": True},
    {"model": "m", "messages": [], "stream": True, "stream_options": {"include_usage": False, "x": 1}},
    {"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "be brief"}], "messages": [{"content": [
            {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
            {"type": "tool_result", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
        ]}]},
    {"model": "e", "input": ["a", "b"], "dimensions": 3},
    {"model": "e", "input": [[1, 2, 3], [4]]},
    {"model": "c", "prompt": ["x", [1, 2]], "n": 2, "best_of": 3, "max_tokens": 1e3},
        {"input": "x", "max_output_tokens": 10**18, "model": None, "stream": "yes"},
    {"model": "m\u00fc\U0001f600", "usage": None, "error": {}, "messages": "text"},
)  # fmt: skip
_ANSWERS: tuple[Any, ...] = (
        {"choices": [{"message": {"content": "hi"}}], "usage": {"prompt_tokens": 5, "completion_tokens": 3}},
        {"content": [], "usage": {"input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 2}},
        {"error": {"message": "no", "type": "overloaded_error", "code": "server_overloaded"}},
        {"type": "error", "error": {"type": "rate_limit_error", "details": {"error_code": "x"}}},
        [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [
            {"retryDelay": "7.5s"}, {"violations": [{"quotaId": "PerDay"}]}]}}],
        {"object": "error", "code": 503, "message": "busy"},
        {"data": [{"embedding": [0.5], "index": 0}], "usage": {"prompt_tokens": 5, "total_tokens": 5}},
        {"response": {"usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}}, "usage": None},
)  # fmt: skip
BODIES, ANSWERS = (tuple(map(orjson.dumps, documents)) for documents in (_BODIES, _ANSWERS))
POLICIES = tuple(
    path.read_bytes() for path in sorted((Path(__file__).parent.parent.parent / "policies").glob("*.yaml"))
)
