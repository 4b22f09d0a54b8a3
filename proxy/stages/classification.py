"""Classification: the body read as far as routing needs it; route, tenant and class found. All below needs them."""

from __future__ import annotations

import asyncio
import gc
import io
from collections.abc import Awaitable
from typing import Any

import orjson

from proxy.decisions.bodies import BodyMemory
from proxy.decisions.classes import CLASS_HEADER, class_of
from proxy.decisions.classification import Candidates, Router
from proxy.decisions.tenants import Tenants
from proxy.dialects.demand import demand_of
from proxy.dialects.lookup import dialect_named
from proxy.exchange import Exchange
from proxy.outcome import Outcome, Reason, refused
from proxy.plan import RoutePlan
from proxy.request import BodyProblem, BodyTooLarge, Upload
from proxy.websocket.handshake import model_of

MOST_SHOWN = 100
SMALL_BODY = 65536
KEPT = ("model", "stream", "stream_options")
"""What tiers ask of a body's document besides its being there (`tier`); a large one's is reduced to it."""
SAFE_METHODS = frozenset({"GET", "HEAD"})
DEFAULT_DIALECT = dialect_named("openai")
MOST_NESTS = 4_000_000
LARGE_BODY = 2 * MOST_NESTS
"""A body of more lists and objects than this would stop everything for seconds, and is read by nobody."""
NOT_AN_OBJECT = (
    "the body must be a JSON object, because this route changes its model or parameters"
    " (and not one of more than 4 million lists and objects)"
)
SEVERAL_MODELS = "the query names several models, and readers differ in which one counts; name one"
NO_ROOM = (
    "the bodies of the requests under way fill what this instance keeps in memory; come again when some have ended"
)


class Classification:
    """Terminal of the front: hands the exchange to the pipeline of its route.

    From here on the bytes of the exchange's body are counted in `bodies`, until `Exchange.forget_body`. `tenants` is
    None where the policy knows none.
    """

    __slots__ = ("_bodies", "_router", "_tenants")

    def __init__(self, router: Router, bodies: BodyMemory, tenants: Tenants | None = None) -> None:
        self._router = router
        self._bodies = bodies
        self._tenants = tenants

    def __call__(self, exchange: Exchange) -> Awaitable[Outcome]:
        """Finds the route, or refuses: `no_route`, `body_too_large`, `bad_request`, `queue_full`, `total_timeout`."""
        request, facts = exchange.request, exchange.facts
        found = self._router.candidates(request.path, request.fields)
        operation = exchange.operation = found.operation
        if operation is not None:
            exchange.dialect = operation.dialect
            facts.operation = operation.name
        else:
            exchange.dialect = DEFAULT_DIALECT
        if not found.routes:
            return _ended(_no_route(exchange))
        body = request.body
        if body is None:
            return self._read_and_go_on(exchange, found)
        if body:
            facts.request_bytes = len(body)
            if not self._count(exchange, len(body)):
                return _ended(refused(Reason.QUEUE_FULL, retry_after=1.0, detail=NO_ROOM))
        plan = self._plan(exchange, found, body)
        return _ended(plan) if isinstance(plan, Outcome) else plan.call(exchange)

    async def _read_and_go_on(self, exchange: Exchange, found: Candidates) -> Outcome:
        if (problem := await self._read_body(exchange, found)) is not None:
            return problem
        plan = self._plan(exchange, found, exchange.request.body)
        return plan if isinstance(plan, Outcome) else await plan.call(exchange)

    def _plan(self, exchange: Exchange, found: Candidates, body: bytes | None) -> RoutePlan | Outcome:
        """Chooses the route that the body's model means, and what may be done with the request on it."""
        understood = bool(body) and found.needs_document and _understand(exchange)
        if exchange.request.switch is not None and not _understand_handshake(exchange):
            return refused(Reason.BAD_REQUEST, detail=SEVERAL_MODELS)
        plan = found.choose(exchange.model)
        if plan is None:
            return _no_route(exchange)
        if plan.needs_document and not understood and body != b"":
            return refused(Reason.BAD_REQUEST, detail=NOT_AN_OBJECT + _packed(exchange))
        if (problem := _over(exchange, plan)) is not None:
            return problem
        exchange.plan = plan
        facts = exchange.facts
        facts.route, facts.klass = plan.name, plan.klass
        if self._tenants is not None or CLASS_HEADER in exchange.request.fields.shape.first:
            self._rank(exchange, plan)
        exchange.repeatable = _repeatable(exchange, plan, understood)
        if exchange.body_bytes:
            exchange.replayable = (
                exchange.body_bytes <= plan.body_replay
                and not self._bodies.crowded
                # What is passed on unread is passed on once, also when it happens to have arrived whole.
                and (understood or _buffered(exchange))
            )
        return plan

    def _rank(self, exchange: Exchange, plan: RoutePlan) -> None:
        """Says who asks, and in which class."""
        fields, facts, own = exchange.request.fields, exchange.facts, None
        if self._tenants is not None:
            facts.tenant = self._tenants.name_of(fields)
            own = self._tenants.class_of(facts.tenant)
        said = fields.get(CLASS_HEADER)
        facts.klass = class_of(said, route=plan.klass, tenant=own, may_raise=plan.class_from_header)

    async def _read_body(self, exchange: Exchange, found: Candidates) -> Outcome | None:
        """Reads a body that still arrives, unless it is one that is passed on while it does."""
        request = exchange.request
        upload = request.upload
        assert upload is not None
        upload.limit = found.body_max
        if upload.length is not None and upload.length > upload.limit:
            return _too_large(upload.limit)
        if not _buffered(exchange):
            return None
        try:
            body = await self._whole(exchange, upload, seconds=found.total)
        except TimeoutError:
            return refused(Reason.TOTAL_TIMEOUT, detail="the request's body took longer than its route's total")
        except BodyTooLarge:
            return _too_large(upload.limit)
        except BodyProblem as problem:
            return refused(Reason.BAD_REQUEST, detail=f"the request's body: {problem}")
        if body is None:
            return refused(Reason.QUEUE_FULL, retry_after=1.0, detail=NO_ROOM)
        request.body = body
        exchange.facts.request_bytes = len(body)
        return None

    async def _whole(self, exchange: Exchange, upload: Upload, *, seconds: float) -> bytes | None:
        """Reads a body, bounded in time. None when there is no room for it. Raises `BodyProblem`, TimeoutError."""
        if not self._bodies.has_room(upload.length or 0):
            return None
        # Pieces that are joined in the end leave as many bytes of holes behind.
        whole = io.BytesIO()
        async with asyncio.timeout(seconds):
            while piece := await upload.read():
                if not self._count(exchange, len(piece)):
                    return None
                whole.write(piece)
        return whole.getvalue()

    def _count(self, exchange: Exchange, size: int) -> bool:
        """Counts bytes that have come; False when they are too many for this process."""
        if not self._bodies.take(size, own=exchange.body_bytes):
            return False
        exchange.bodies = self._bodies
        exchange.body_bytes += size
        return True


async def _ended(outcome: Outcome) -> Outcome:
    return outcome


def _understand(exchange: Exchange) -> bool:
    """Reads model and `stream` from the body; returns False when it is not a JSON object."""
    body = exchange.request.body or b""
    if len(body) > SMALL_BODY:
        return _understand_large(exchange, body)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return _take(exchange, document)


def _understand_large(exchange: Exchange, body: bytes) -> bool:
    """Reads a body that may hold millions of lists: the collector would look at all of them again and again."""
    if len(body) > LARGE_BODY and body.count(b"[") + body.count(b"{") > MOST_NESTS:
        return False
    collects = gc.isenabled()
    gc.disable()
    try:
        document = orjson.loads(body)
        if not _take(exchange, document):
            return False
        # As objects a body can be twenty times as large, and only its bytes are counted: what is asked is read now.
        demand_of(exchange)
        exchange.document = {name: document[name] for name in KEPT if name in document}
        return True
    except orjson.JSONDecodeError:
        return False
    finally:
        if collects:
            gc.enable()


def _take(exchange: Exchange, document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    exchange.document = document
    model = document.get("model")
    if isinstance(model, str):
        exchange.model = exchange.facts.requested_model = model
    operation = exchange.operation
    exchange.facts.stream = operation is not None and operation.streams and document.get("stream") is True
    return True


def _understand_handshake(exchange: Exchange) -> bool:
    """Reads the model of a WebSocket from the query, False for several; what it brings is a stream."""
    try:
        model = model_of(exchange.request.query)
    except ValueError:
        return False
    if model is not None:
        exchange.model = exchange.facts.requested_model = model
    exchange.facts.stream = True
    return True


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
    detail = f"no route of the policy matches {asked}, with its headers" + _packed(exchange)
    return refused(Reason.NO_ROUTE, detail=detail)


def _packed(exchange: Exchange) -> str:
    """Says why nothing is known of a body in a coding: what a caller packs is its provider's to unpack."""
    coded = "content-encoding" in exchange.request.fields and exchange.document is None
    return "; a body with content-encoding is passed on, and not read" if coded else ""


def _too_large(limit: int) -> Outcome:
    return refused(
        Reason.BODY_TOO_LARGE,
        detail=f"the request's body is larger than {limit} bytes; raise the route's body.max, or send less",
    )
