"""Every attribute and metric name, in one table.

Owns the words. Own names begin with `sponson.`; the others are OpenTelemetry's: HTTP (stable) and GenAI, of
which two generations exist. `GENAI_1_41` is what tools and dashboards know; `GENAI_LATEST` is chosen by
`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HTTP_METHOD: Final = "http.request.method"
HTTP_RESEND_COUNT: Final = "http.request.resend_count"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
URL_PATH: Final = "url.path"
URL_SCHEME: Final = "url.scheme"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

GENAI_OPERATION: Final = "gen_ai.operation.name"
GENAI_PROVIDER: Final = "gen_ai.provider.name"
GENAI_MODEL: Final = "gen_ai.request.model"
GENAI_STREAM: Final = "gen_ai.request.stream"
GENAI_INPUT: Final = "gen_ai.usage.input_tokens"
GENAI_OUTPUT: Final = "gen_ai.usage.output_tokens"
GENAI_CACHED_INPUT: Final = "gen_ai.usage.cache_read.input_tokens"
GENAI_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GENAI_TOKEN_TYPE: Final = "gen_ai.token.type"

REQUEST_ID: Final = "sponson.request_id"
ROUTE: Final = "sponson.route"
CLASS: Final = "sponson.class"
TENANT: Final = "sponson.tenant"
TIER: Final = "sponson.tier"
FROM_TIER: Final = "sponson.from_tier"
TO_TIER: Final = "sponson.to_tier"
PROVIDER: Final = "sponson.provider"
MODEL: Final = "sponson.model"
REQUESTED_MODEL: Final = "sponson.requested_model"
KEY_ID: Final = "sponson.key_id"
OUTCOME: Final = "sponson.outcome"
REASON: Final = "sponson.reason"
ATTEMPTS: Final = "sponson.attempts"
ATTEMPT: Final = "sponson.attempt"
QUEUED: Final = "sponson.queued_seconds"
SECONDS: Final = "sponson.seconds"
LACKING: Final = "sponson.lacking"
OTHER_KEY: Final = "sponson.other_key"
REUSED: Final = "sponson.connection_reused"
REDIALS: Final = "sponson.redials"
ESTIMATED: Final = "sponson.estimated"
DIRECTION: Final = "sponson.direction"
LIMIT: Final = "sponson.limit"
MODE: Final = "sponson.mode"
UNIT: Final = "sponson.unit"
STATE: Final = "sponson.state"
RESULT: Final = "sponson.result"
CACHE: Final = "sponson.cache"
STORE: Final = "sponson.store"
HOW: Final = "sponson.how"
SAVED_INPUT: Final = "sponson.saved.input_tokens"
SAVED_OUTPUT: Final = "sponson.saved.output_tokens"
CALLERS: Final = "sponson.callers"
INPUTS: Final = "sponson.inputs"
CARRIES: Final = "sponson.carries"
WHY: Final = "sponson.why"
REVISION: Final = "sponson.policy.revision"
PROBLEMS: Final = "sponson.policy.problems"

EVENT_WAITED: Final = "sponson.waited"
EVENT_REFUSED: Final = "sponson.refused"
EVENT_OBSERVED: Final = "sponson.observed"
EVENT_RETRIED: Final = "sponson.retried"
EVENT_FELL_BACK: Final = "sponson.fell_back"
EVENT_SHARED: Final = "sponson.shared"
EVENT_MERGED: Final = "sponson.merged"
EVENT_SPLIT: Final = "sponson.split"

HTTP_DURATION: Final = "http.server.request.duration"
HTTP_ACTIVE: Final = "http.server.active_requests"
REQUESTS: Final = "sponson.requests"
ATTEMPTS_ENDED: Final = "sponson.attempts"
ATTEMPTS_ACTIVE: Final = "sponson.attempts.active"
REFUSALS: Final = "sponson.refusals"
OBSERVED: Final = "sponson.observed"
QUEUE_WAIT: Final = "sponson.queue.wait"
BODIES: Final = "sponson.bodies"
QUEUE_WAITING: Final = "sponson.queue.waiting"
RETRIES: Final = "sponson.retries"
FALLBACKS: Final = "sponson.fallbacks"
TOKENS: Final = "sponson.tokens"
BREAKER_CHANGES: Final = "sponson.breaker.changes"
BREAKER_STATE: Final = "sponson.breaker.state"
KEY_CHANGES: Final = "sponson.key.changes"
KEYS: Final = "sponson.keys"
PERMITS_USED: Final = "sponson.permits.used"
PERMITS_SHARE: Final = "sponson.permits.share"
QUOTA_LEFT: Final = "sponson.quota.left"
QUOTA_CAPACITY: Final = "sponson.quota.capacity"
CONNECTIONS: Final = "sponson.connections"
CONNECTION_REQUESTS: Final = "sponson.connection.requests"
CONNECTION_DIALS: Final = "sponson.connection.dials"
CONNECTION_ENDED: Final = "sponson.connection.ended"
FLEET_SIZE: Final = "sponson.fleet.size"
POLICY_RELOADS: Final = "sponson.policy.reloads"
POLICY_REVISION: Final = "sponson.policy.revision"
POLICY_CURRENT: Final = "sponson.policy.current"
POLICY_LOADED: Final = "sponson.policy.loaded"
SPANS_LOST: Final = "sponson.spans.lost"
CACHE_REQUESTS: Final = "sponson.cache.requests"
CACHE_REFRESHES: Final = "sponson.cache.refreshes"
CACHE_REFRESHING: Final = "sponson.cache.refreshing"
CACHE_BYPASSED: Final = "sponson.cache.bypassed"
CACHE_OFFERED: Final = "sponson.cache.offered"
CACHE_ENTRIES: Final = "sponson.cache.entries"
CACHE_SIZE: Final = "sponson.cache.size"
CACHE_CAPACITY: Final = "sponson.cache.capacity"
CACHE_EVICTIONS: Final = "sponson.cache.evictions"
CACHE_STORE_UP: Final = "sponson.cache.store.up"
CACHE_STORE_WRITTEN: Final = "sponson.cache.store.written"
CACHE_STORE_LOST: Final = "sponson.cache.store.lost"
CACHE_STORE_ERRORS: Final = "sponson.cache.store.errors"
SAVED_CALLS: Final = "sponson.saved.calls"
SAVED_TOKENS: Final = "sponson.saved.tokens"
SHARED_ACTIVE: Final = "sponson.shared.active"
MERGE_CALLERS: Final = "sponson.merge.callers"
MERGE_INPUTS: Final = "sponson.merge.inputs"
MERGE_SPLITS: Final = "sponson.merge.splits"
MERGE_WAITING: Final = "sponson.merge.waiting"

INTEGERS: Final = frozenset({HTTP_STATUS, SERVER_PORT})
"""Labels whose values OTLP carries as integers."""

METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
OTHER_METHOD: Final = "_OTHER"
UNKNOWN: Final = "unknown"

OPERATIONS: Final[dict[str, str]] = {
    "chat": "chat",
    "messages": "chat",
    "responses": "chat",
    "completions": "text_completion",
    "text_completion": "text_completion",
    "embeddings": "embeddings",
    "generate_content": "generate_content",
}
"""The dialects' operations → `gen_ai.operation.name`; any other call is plain HTTP to GenAI tools."""

_KNOWN_PROVIDERS: Final = (
    ("api.openai.com", "openai"),
    (".openai.azure.com", "azure.ai.openai"),
    (".services.ai.azure.com", "azure.ai.inference"),
    ("api.anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    (".amazonaws.com", "aws.bedrock"),
    ("api.mistral.ai", "mistral_ai"),
    (".cohere.com", "cohere"),
    ("api.groq.com", "groq"),
    ("api.deepseek.com", "deepseek"),
    ("api.perplexity.ai", "perplexity"),
    ("api.x.ai", "x_ai"),
    ("api.moonshot.ai", "moonshot_ai"),
)
"""Ends of host names → `gen_ai.provider.name`; a provider elsewhere goes by its name in the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenAiMetrics:
    """The metric names in which the generations of the GenAI conventions differ; "" where one has none."""

    duration: str
    first_chunk: str
    token_usage: str = ""
    """One histogram for both directions, told apart by `gen_ai.token.type`."""
    input_per_call: str = ""
    output_per_call: str = ""
    input_total: str = ""
    output_total: str = ""
    cached_input_total: str = ""


GENAI_1_41: Final = GenAiMetrics(
    duration="gen_ai.client.operation.duration",
    first_chunk="gen_ai.client.operation.time_to_first_chunk",
    token_usage="gen_ai.client.token.usage",
)
GENAI_LATEST: Final = GenAiMetrics(
    duration="gen_ai.client.inference.duration",
    first_chunk="gen_ai.client.inference.time_to_first_chunk",
    input_per_call="gen_ai.client.inference.operation.input_tokens",
    output_per_call="gen_ai.client.inference.operation.output_tokens",
    input_total="gen_ai.client.inference.usage.input_tokens",
    output_total="gen_ai.client.inference.usage.output_tokens",
    cached_input_total="gen_ai.client.inference.usage.cache_read.input_tokens",
)


def method_label(method: str) -> str:
    """Returns the method where it is a known one, else `_OTHER`."""
    return method if method in METHODS else OTHER_METHOD


def genai_provider(provider: str, host: str) -> str:
    """Returns the well-known provider name of this host, else the policy's own name for the provider."""
    return next((known for end, known in _KNOWN_PROVIDERS if host.endswith(end)), provider)


def clean(text: str, limit: int = 256) -> str:
    """Returns text that every exporter can encode: no lone surrogates, at most `limit` characters."""
    text = text[:limit]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
