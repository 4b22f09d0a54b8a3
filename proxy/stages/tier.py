"""Tier: what one step of a route's order changes in a request: provider, path, model, parameters."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from proxy.decisions.joining import join, without_credentials
from proxy.dialects.injection import ask_for_usage
from proxy.dialects.splice import with_fields, with_model
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stage import CallNext
from proxy.websocket.handshake import with_model as with_query_model

REMEMBERED_PATHS: Final = 256
LONGEST_REMEMBERED: Final = 1024
"""How many joined paths are remembered, and how long ones: callers choose them."""


class Targets(Protocol):
    """A tier's pipelines, one per model."""

    def of(self, model: str | None) -> tuple[str, CallNext]:
        """Returns the model's label (from a closed set) and its pipeline."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class ProviderTier:
    """Asks one provider. `root` and `query` come from its `base_url`; `fields` is `set`; `model` None: the caller's.

    `counts_tokens`: its streams are asked for their usage, whether the caller asks or not (`dialects/injection`).
    `meant` False: as a first tier, too, it is not whom the caller meant (`spread`).
    """

    number: int
    provider: str
    root: str
    query: str
    model: str | None
    fields: Mapping[str, Any]
    targets: Targets
    own_key: bool
    counts_tokens: bool = False
    meant: bool = True
    _paths: dict[str, str] = field(default_factory=dict)

    def __call__(self, exchange: Exchange) -> Awaitable[Outcome]:
        """Shapes the request for this tier and runs the target's pipeline."""
        request = exchange.request
        known = self._paths.get(request.path) if exchange.towards is None else request.path
        path = known or self._path(exchange)
        exchange.first_target = self.number == 1 and self.meant
        exchange.upstream_path = path + self._joined(exchange) if request.query or self.query else path
        same = not self.fields and (self.model is None or self.model == exchange.model)
        exchange.payload = request.body if same else self._shaped(exchange)
        exchange.facts.model, call = self.targets.of(self.model or exchange.model)
        if self.counts_tokens and (asking := self._asking(exchange)) is not None:
            return _asked(exchange, asking, call)
        return call(exchange)

    def _path(self, exchange: Exchange) -> str:
        """Joins a path, and remembers it within bounds."""
        asked = path = exchange.request.path
        if prefix := exchange.plan.prefix:
            path = path[len(prefix) :] or "/"
        joined = join(path, self.root)
        if len(self._paths) < REMEMBERED_PATHS and len(asked) <= LONGEST_REMEMBERED:
            self._paths[asked] = joined
        return joined

    def _joined(self, exchange: Exchange) -> str:
        query = exchange.request.query
        if self.own_key or not exchange.first_target:
            query = without_credentials(query)
        if exchange.request.switch is not None and self.model is not None and self.model != exchange.model:
            # A WebSocket has no body: its model stands in the query.
            query = with_query_model(query, self.model)
        if not self.query:
            return query
        return f"{query}&{self.query}" if len(query) > 1 else f"?{self.query}"

    def _shaped(self, exchange: Exchange) -> bytes | None:
        body, document = exchange.request.body, exchange.document
        if document is None or body is None:
            return body
        if self.model is not None and self.model != exchange.model:
            body = with_model(body, self.model, document)
        if self.fields:
            body = with_fields(body, document, self.fields)
        return body

    def _asking(self, exchange: Exchange) -> bytes | None:
        """Returns the body that asks for usage too, None where it is not to be asked for: `set` has the last word."""
        body, document, operation = exchange.payload, exchange.document, exchange.operation
        if body is None or document is None or operation is None or "stream_options" in self.fields:
            return None
        return ask_for_usage(body, {**document, **self.fields}, operation)


async def _asked(exchange: Exchange, asking: bytes, call: CallNext) -> Outcome:
    """Makes the call with this body; what it asks for beyond the caller's is hidden, in this tier only."""
    exchange.payload = asking
    exchange.hides_usage = True
    try:
        return await call(exchange)
    finally:
        exchange.hides_usage = False
