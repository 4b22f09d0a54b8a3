"""Tier: what one step of a route's order changes in a request: provider, path, model, parameters."""

from __future__ import annotations

from collections.abc import Mapping
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


class ProviderTier:
    """Asks one provider. `first`: the provider is the one that the caller meant."""

    __slots__ = ("_fields", "_model", "_query", "_root", "_targets", "first", "number", "own_key", "provider")

    def __init__(
        self,
        *,
        number: int,
        provider: str,
        root: str,
        query: str,
        model: str | None,
        fields: Mapping[str, Any],
        targets: Targets,
        own_key: bool,
    ) -> None:
        self.number = number
        self.provider = provider
        self.own_key = own_key
        self.first = number == 1
        self._root = root
        self._query = query
        self._model = model
        self._fields = dict(fields)
        self._targets = targets

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Shapes the request for this tier and runs the target's pipeline."""
        request = exchange.request
        path = request.path
        if prefix := exchange.plan.prefix:
            path = path[len(prefix) :] or "/"
        exchange.upstream_path = join(path, self._root) + self._joined(request.query)
        exchange.first_target = self.first
        exchange.payload = self._shaped(exchange)
        exchange.facts.model, call = self._targets.of(self._model or exchange.model)
        return await call(exchange)

    def _joined(self, query: str) -> str:
        if not self._query:
            return query
        return f"{query}&{self._query}" if len(query) > 1 else f"?{self._query}"

    def _shaped(self, exchange: Exchange) -> bytes | None:
        body, document = exchange.request.body, exchange.document
        if document is None or body is None:
            return body
        if self._model is not None and self._model != exchange.model:
            body = with_model(body, self._model, document)
        if self._fields:
            body = with_fields(body, document, self._fields)
        return body
