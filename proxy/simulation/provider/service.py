"""The life of one request: received, checked, met by a fault or let in and given a place, answered."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from proxy.simulation.provider import anthropic, batches, compose, openai, realtime
from proxy.simulation.provider.asks import Ask, BadAsk
from proxy.simulation.provider.capacity import Capacity
from proxy.simulation.provider.delivery import Delivery, Headers, reset
from proxy.simulation.provider.dialect import Dialect, Problem, dialect_of, error_body, request_id_header
from proxy.simulation.provider.faults import Fault, FaultKind, Plan
from proxy.simulation.provider.grammar import HEADER, FaultError, parse_header
from proxy.simulation.provider.ledger import Ending, Ledger, Received
from proxy.simulation.provider.limit_headers import limit_headers, limit_problem, wait_headers
from proxy.simulation.provider.metering import Meter, Work
from proxy.simulation.provider.reading import ask_of, key_of, misplaced, peer_of
from proxy.simulation.provider.retry_after import retry_headers
from proxy.simulation.provider.schedule import FaultSchedule, combine
from proxy.simulation.provider.settings import SimulatorSettings

_WITHOUT_SERVICE = (FaultKind.STATUS, FaultKind.RESET, FaultKind.SILENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request whose body has come, with the random numbers that are its own; `work` once it may reach a model."""

    request: web.Request
    seen: Received
    dialect: Dialect
    key: str | None
    seed: int
    rng: random.Random
    id: str
    came_at: float
    work: Work | None = None


class Service:
    """Answers model requests; `busy` holds the connections on which it does.

    `now` is the loop's clock; `wall` is read for HTTP dates only.
    """

    def __init__(
        self,
        settings: SimulatorSettings,
        *,
        now: Callable[[], float],
        wall: Callable[[], datetime] | None = None,
    ) -> None:
        self._settings = settings
        self._now = now
        self._wall = wall or (lambda: datetime.now(UTC))
        self._rng = random.Random(f"{settings.seed}/{settings.name}")
        self._capacity = Capacity(settings.concurrency, settings.queue)
        self._meter = Meter(settings, now())
        self.ledger = Ledger(now=now, queued=lambda: self._capacity.queued, tally=self._meter.tally)
        self.schedule = FaultSchedule((), provider=settings.name, set_at=now())
        self.set_faults(settings.faults)
        self.busy: set[object] = set()
        self.stopping = False

    def __repr__(self) -> str:
        return f"Service({self._settings.name}, {self._capacity!r}, {self.schedule!r})"

    def set_faults(self, faults: Iterable[Fault]) -> None:
        """Replaces the faults; their time windows and counts begin now."""
        self.schedule = FaultSchedule(faults, provider=self._settings.name, set_at=self._now())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers one request and notes how it ended."""
        seen = self.ledger.open(
            method=request.method,
            target=request.raw_path,
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers),
            peer=peer_of(request),
        )
        self.busy.add(request.protocol)
        try:
            response = await self._respond(request, seen)
        except asyncio.CancelledError:
            seen.ended = Ending.STOPPED if self.stopping else Ending.CLIENT_CLOSED
            raise
        except ConnectionError:
            seen.ended = Ending.CLIENT_CLOSED
            response = web.Response()
        finally:
            self.busy.discard(request.protocol)
            if seen.ended is Ending.OPEN:
                seen.ended = Ending.ANSWERED
            self.ledger.close(seen)
        return response

    async def _respond(self, request: web.Request, seen: Received) -> web.StreamResponse:
        raw = await request.read()
        seen.note_body(raw)
        call = self._call(request, seen)
        if self._settings.api_keys and call.key not in self._settings.api_keys:
            return await self._problem(call, Problem(status=401, message="Incorrect API key provided."))
        if realtime.asks_for_session(request):
            return await self._session(call)
        if (problem := misplaced(request)) is not None:
            return await self._problem(call, problem)
        try:
            ask = ask_of(request, raw, self._settings)
            plan = self._plan(call, ask)
        except (BadAsk, FaultError) as error:
            param = error.param if isinstance(error, BadAsk) else None
            return await self._problem(call, Problem(status=400, message=str(error), param=param))
        if ask is not None:
            seen.model, seen.stream, seen.inputs = ask.model, ask.stream, len(ask.texts)
        seen.fault = plan.name
        if plan.fault is not None and plan.fault.kind in _WITHOUT_SERVICE:
            return await self._fail(call, plan, plan.fault)
        work = self._meter.work(seen, ask, key=call.key)
        if work is None:
            return await self._in_a_place(call, ask, plan)
        return await self._let_in(replace(call, work=work), work, ask, plan)

    def _call(self, request: web.Request, seen: Received) -> Call:
        seed = self._rng.getrandbits(64)
        rng = random.Random(seed)
        seen.idempotency_key = request.headers.get(self._settings.idempotency_header)
        return Call(
            request=request,
            seen=seen,
            dialect=dialect_of(request.path, request.headers),
            key=key_of(request) or realtime.key_offered(request),
            seed=seed,
            rng=rng,
            id=f"req_{rng.getrandbits(96):024x}",
            came_at=self._now(),
        )

    def _plan(self, call: Call, ask: Ask | None) -> Plan:
        asked = call.request.headers.getall(HEADER, [])
        if asked:
            return combine([parse_header(text) for text in asked])
        model = ask.model if ask is not None else None
        return self.schedule.plan(now=self._now(), model=model, key=call.key, rng=call.rng)

    async def _session(self, call: Call) -> web.StreamResponse:
        """Talks over a WebSocket; a session takes a place as long as it is open."""
        request = call.request
        model = call.seen.model = request.query.get("model") or None
        call.seen.stream = True
        plan = self._plan(call, None)
        call.seen.fault = plan.name
        if plan.fault is not None and plan.fault.kind in _WITHOUT_SERVICE:
            return await self._fail(call, plan, plan.fault)
        if not self._capacity.free:
            message = "The server is overloaded: no session is free."
            return await self._problem(call, Problem(status=self._settings.queue_full_status, message=message))
        await self._capacity.take(self._now())
        self.ledger.serving_begins()
        try:
            return await realtime.Session(self._settings, model=model or "", rng=call.rng).run(request)
        finally:
            self.ledger.serving_ends()
            self._capacity.give(self._now())

    async def _fail(self, call: Call, plan: Plan, fault: Fault) -> web.StreamResponse:
        """Fails without having been in service: no place in the provider's capacity is taken."""
        self.ledger.serving_begins()
        try:
            await _pause(plan.extra_seconds)
            if fault.kind is FaultKind.SILENCE:
                await asyncio.get_running_loop().create_future()
            if fault.kind is FaultKind.RESET:
                return self._reset(call)
            message = f"simulated status {fault.status}"
            problem = Problem(status=fault.status, message=message, code=fault.code)
            return await self._problem(call, problem, plan)
        finally:
            self.ledger.serving_ends()

    async def _let_in(self, call: Call, work: Work, ask: Ask | None, plan: Plan) -> web.StreamResponse:
        """Lets a call reach the model if the limits allow it and its idempotency key is not answered or taken."""
        if self._meter.conflicts(work):
            message = "This idempotency key was used with a different request."
            problem = Problem(status=self._settings.conflict_status, message=message, code="idempotency_conflict")
            return await self._problem(call, problem)
        if self._meter.answered(work):
            return await self._answer(call, ask, plan)
        refusal = self._meter.arrive(work, self._now())
        if refusal is not None:
            problem = limit_problem(refusal, call.dialect, call.seen.model or "")
            return await self._problem(call, problem, headers=wait_headers(refusal, call.dialect))
        self._meter.begin(work, seed=call.seed)
        try:
            return await self._in_a_place(call, ask, plan)
        finally:
            self._meter.end(work)

    async def _in_a_place(self, call: Call, ask: Ask | None, plan: Plan) -> web.StreamResponse:
        if self._capacity.full:
            message = "The server is overloaded: its queue is full."
            return await self._problem(call, Problem(status=self._settings.queue_full_status, message=message))
        if not self._capacity.free:
            self.ledger.queue_grows()
        due = await self._capacity.take(self._now())
        work_ends = math.inf
        self.ledger.serving_begins()
        try:
            usual = self._settings.latency.sample(call.rng)
            due += usual * batches.work_factor(ask, self._settings) + plan.extra_seconds
            await _pause(due - self._now())
            if not (call.seen.stream or plan.drip_seconds):
                work_ends = due
            return await self._answer(call, ask, plan)
        finally:
            self.ledger.serving_ends()
            self._capacity.give(min(work_ends, self._now()))

    async def _answer(self, call: Call, ask: Ask | None, plan: Plan) -> web.StreamResponse:
        error = self._error_in_200(call, plan.fault)
        if call.work is not None and error is None:
            self._meter.execute(call.work, self._now())
        if plan.fault is not None and plan.fault.kind is FaultKind.LOST:
            return self._reset(call)
        delivery = self._delivery(call, plan)
        if ask is None:
            return await delivery.whole(200, orjson.dumps(error or self._models(call)))
        rng, number = self._meter.source(call.work, call.rng, call.seen.number)
        if ask.stream:
            events = compose.events(ask, self._settings, rng=rng, number=number)
            return await delivery.stream(events, compose.error_event(call.dialect, error or {}))
        body = error or compose.body(ask, self._settings, rng=rng, number=number)
        return await delivery.whole(200, orjson.dumps(body))

    def _reset(self, call: Call) -> web.Response:
        call.seen.ended = Ending.RESET
        reset(call.request)
        return web.Response()

    def _error_in_200(self, call: Call, fault: Fault | None) -> dict[str, Any] | None:
        if fault is None or fault.kind is not FaultKind.ERROR_IN_200:
            return None
        status = 529 if call.dialect is Dialect.ANTHROPIC else 500
        problem = Problem(status=status, message="simulated error inside a 200", code=fault.code)
        return error_body(call.dialect, problem, request_id=call.id)

    def _models(self, call: Call) -> dict[str, Any]:
        names = self._settings.models
        if call.dialect is Dialect.ANTHROPIC:
            return anthropic.models(names)
        return openai.models(names, owner=self._settings.name)

    def _delivery(self, call: Call, plan: Plan) -> Delivery:
        settings, rate = self._settings, self._settings.tokens_per_second
        return Delivery(
            request=call.request,
            seen=call.seen,
            headers=[
                (request_id_header(call.dialect), call.id),
                ("x-sim-provider", settings.name),
                ("server-timing", f"sim;dur={(self._now() - call.came_at) * 1000:.3f}"),
                *self._told(call),
            ],
            drip_seconds=plan.drip_seconds,
            event_seconds=1 / rate if rate else 0.0,
            thinking_seconds=settings.thinking.sample(call.rng),
            beat_seconds=settings.heartbeat_seconds,
            beat=compose.heartbeat(call.dialect).data,
            fault=plan.fault,
        )

    def _told(self, call: Call) -> Headers:
        """Returns what the caller is told beside the answer: its rate limits, and that it is an earlier answer."""
        if call.work is None:
            return []
        replayed = [("idempotent-replayed", "true")] if call.seen.replayed else []
        standing = self._meter.standing(call.work, self._now())
        return [*limit_headers(standing, dialect=call.dialect, wall=self._wall()), *replayed]

    async def _problem(
        self, call: Call, problem: Problem, plan: Plan | None = None, *, headers: Headers | None = None
    ) -> web.StreamResponse:
        plan = plan or Plan()
        hint = plan.fault.retry if plan.fault is not None else None
        if hint is not None:
            headers = retry_headers(hint, dialect=call.dialect, wall=self._wall())
        body = orjson.dumps(error_body(call.dialect, problem, request_id=call.id))
        return await self._delivery(call, plan).whole(problem.status, body, headers or [])


async def _pause(seconds: float) -> None:
    if seconds > 0:
        await asyncio.sleep(seconds)
