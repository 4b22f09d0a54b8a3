"""Classification: the body read as far as routing needs it, the route found; everything below needs both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson

from proxy.decisions.classification import Router, choose
from proxy.dialects.lookup import dialect_named, operation_of
from proxy.exchange import Exchange
from proxy.outcome import Outcome, Reason, refused
from proxy.plan import RoutePlan
from proxy.request import BodyProblem, BodyTooLarge, Upload

MOST_SHOWN = 100
SAFE_METHODS = frozenset({"GET", "HEAD"})
DEFAULT_DIALECT = dialect_named("openai")


class Classification:
    """Terminal of the front: hands the exchange to the pipeline of its route."""

    __slots__ = ("_router",)

    def __init__(self, router: Router) -> None:
        self._router = router

    async def __call__(self, exchange: Exchange) -> Outcome:
        """Finds the route, or refuses: 404 `no_route`, 413 `body_too_large`, 400 `bad_request`."""
        request, facts = exchange.request, exchange.facts
        operation = operation_of(request.path)
        exchange.operation = operation
        exchange.dialect = operation.dialect if operation is not None else DEFAULT_DIALECT
        if operation is not None:
            facts.operation = operation.name
        candidates = self._router.candidates(request.path, request.fields)
        if not candidates:
            return _no_route(exchange)
        if request.upload is not None and (problem := await self._read_body(exchange, candidates)) is not None:
            return problem
        understood = self._understand(exchange, candidates)
        plan = choose(candidates, exchange.model)
        if plan is None:
            return _no_route(exchange)
        if plan.needs_document and not understood and request.body != b"":
            return refused(
                Reason.BAD_REQUEST,
                detail="the body must be a JSON object, because this route changes its model or parameters",
            )
        if (problem := _over(exchange, plan)) is not None:
            return problem
        exchange.plan = plan
        facts.route = plan.name
        exchange.repeatable = _repeatable(exchange, plan, understood)
        return await plan.call(exchange)

    async def _read_body(self, exchange: Exchange, candidates: Sequence[RoutePlan]) -> Outcome | None:
        request = exchange.request
        upload = request.upload
        assert upload is not None
        upload.limit = max(plan.body_max for plan in candidates)
        if upload.length is not None and upload.length > upload.limit:
            return _too_large(upload.limit)
        if not _buffered(exchange):
            return None
        try:
            request.body = await _whole(upload, seconds=max(plan.total for plan in candidates))
        except TimeoutError:
            return refused(Reason.TOTAL_TIMEOUT, detail="the request's body took longer than its route's total")
        except BodyTooLarge:
            return _too_large(upload.limit)
        except BodyProblem as problem:
            return refused(Reason.BAD_REQUEST, detail=f"the request's body: {problem}")
        exchange.facts.request_bytes = len(request.body)
        return None

    def _understand(self, exchange: Exchange, candidates: Sequence[RoutePlan]) -> bool:
        """Reads model and `stream` from the body; returns False when there is none, or it is not a JSON object."""
        body = exchange.request.body
        if not body or not (exchange.operation is not None or any(c.needs_document for c in candidates)):
            return False
        document = _json_object(body)
        if document is None:
            return False
        exchange.document = document
        model = document.get("model")
        if isinstance(model, str):
            exchange.model = exchange.facts.requested_model = model
        operation = exchange.operation
        exchange.facts.stream = operation is not None and operation.streams and document.get("stream") is True
        return True


async def _whole(upload: Upload, *, seconds: float) -> bytes:
    """Reads a body; one that is still on its way is bounded in time. Raises `BodyProblem`, TimeoutError."""
    if upload.complete:
        return await upload.read_all()
    async with asyncio.timeout(seconds):
        return await upload.read_all()


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _buffered(exchange: Exchange) -> bool:
    """JSON is read whole before admission; everything else is passed on while it arrives."""
    kind = exchange.request.fields.get("content-type", "").lower()
    if "json" in kind:
        return True
    return exchange.operation is not None and not kind.startswith("multipart/")


def _over(exchange: Exchange, plan: RoutePlan) -> Outcome | None:
    """Holds the body to its own route's limit: until the model was known, the largest candidate's was the bound."""
    request = exchange.request
    if request.body is None:
        assert request.upload is not None
        request.upload.limit = plan.body_max
        size = request.upload.length or 0
    else:
        size = len(request.body)
    return _too_large(plan.body_max) if size > plan.body_max else None


def _repeatable(exchange: Exchange, plan: RoutePlan, understood: bool) -> bool:
    if plan.repeatable is not None:
        return plan.repeatable
    if exchange.request.method in SAFE_METHODS:
        return True
    operation = exchange.operation
    return operation is not None and bool(operation.inference) and understood


def _no_route(exchange: Exchange) -> Outcome:
    request = exchange.request
    asked = f"{request.method} {request.path[:MOST_SHOWN]}" + (
        f", model {exchange.model[:MOST_SHOWN]}" if exchange.model else ""
    )
    return refused(Reason.NO_ROUTE, detail=f"no route of the policy matches {asked}, with its headers")


def _too_large(limit: int) -> Outcome:
    return refused(
        Reason.BODY_TOO_LARGE,
        detail=f"the request's body is larger than {limit} bytes; raise the route's body.max, or send less",
    )
