"""Tier: what one step of a route's order changes in a request: provider, path, model, parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.decisions.joining import join
from proxy.dialects.splice import with_fields, with_model
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.stage import CallNext


class Targets(Protocol):
    """A tier's pipelines, one per model."""

    def of(self, model: str | None) -> tuple[str, CallNext]:
        """Returns the model's label (from a closed set) and its pipeline."""
        ...


@dataclass(slots=True, eq=False, kw_only=True)
class ProviderTier:
    """Asks one provider. `root` and `query` come from its `base_url`; `fields` is `set`; `model` None: the caller's."""

    number: int
    provider: str
    root: str
    query: str
    model: str | None
    fields: Mapping[str, Any]
    targets: Targets
    own_key: bool

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Shapes the request for this tier and runs the target's pipeline."""
        request = exchange.request
        path = request.path
        if prefix := exchange.plan.prefix:
            path = path[len(prefix) :] or "/"
        exchange.upstream_path = join(path, self.root) + self._joined(request.query)
        exchange.first_target = self.number == 1
        exchange.payload = self._shaped(exchange)
        exchange.facts.model, call = self.targets.of(self.model or exchange.model)
        return await call(exchange)

    def _joined(self, query: str) -> str:
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
