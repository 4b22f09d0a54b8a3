"""Classification: which route, how much of the body is read, and what a request that fits nowhere is told."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.bodies import BodyMemory
from proxy.decisions.classification import AnyRequest, Matcher, MatchSettings, Router
from proxy.decisions.tenants import Tenants, TenantSettings, TenantSource, TenantsSettings
from proxy.exchange import Exchange
from proxy.outcome import Outcome, OutcomeKind, Reason
from proxy.plan import RoutePlan
from proxy.stages.classification import Classification
from tests.fakes import Ask, FakeUpload, make_exchange
from tests.hurried import HurriedLoop, hurried
from tests.scripted import ScriptedTerminal

JSON = (("content-type", "application/json"),)
CHAT = b'{"model":"gpt-x","stream":true}'


def route(
    name: str,
    *,
    match: MatchSettings | None = None,
    body_max: int = 1000,
    total: float = 600.0,
    repeatable: bool | None = None,
    needs_document: bool = False,
) -> tuple[RoutePlan, ScriptedTerminal]:
    terminal = ScriptedTerminal()
    plan = RoutePlan(
        name=name,
        matcher=Matcher(match) if match is not None else AnyRequest(),
        call=terminal,
        total=total,
        body_max=body_max,
        body_replay=1000,
        repeatable=repeatable,
        needs_document=needs_document,
    )
    return plan, terminal


def over(*plans: RoutePlan) -> Classification:
    return Classification(Router(plans, by_provider={}, default=None), BodyMemory())


async def classify(exchange: Exchange, *plans: RoutePlan) -> Outcome:
    return await over(*plans)(exchange)


def uploaded(body: bytes, *, target: str = "/v1/chat/completions", kind: str = "application/json") -> Exchange:
    upload = FakeUpload([body[:5], body[5:]], length=len(body))
    return make_exchange(Ask(target=target, headers=(("content-type", kind),), upload=upload))


async def test_a_chat_is_read_whole_understood_and_handed_to_its_route() -> None:
    plan, terminal = route("chat")
    exchange = uploaded(CHAT)
    outcome = await classify(exchange, plan)
    assert outcome.kind is OutcomeKind.OK
    assert terminal.calls == [exchange]
    assert exchange.request.body == CHAT
    assert (exchange.model, exchange.facts.requested_model) == ("gpt-x", "gpt-x")
    assert (exchange.facts.stream, exchange.facts.route) == (True, "chat")
    assert exchange.facts.request_bytes == len(CHAT)
    assert exchange.facts.operation == "chat"
    assert exchange.plan is plan
    assert exchange.repeatable


async def test_the_first_route_that_path_and_model_allow_is_taken() -> None:
    first, _ = route("claude", match=MatchSettings(model=("claude-*",)))
    second, taken = route("gpt", match=MatchSettings(model=("gpt-*",)))
    third, _ = route("rest", match=MatchSettings())
    await classify(uploaded(CHAT), first, second, third)
    assert len(taken.calls) == 1


@pytest.mark.parametrize("body", [b"not json", b"[1]", b'{"model":7}', b""])
async def test_what_has_no_model_matches_no_route_that_asks_for_one(body: bytes) -> None:
    plan, terminal = route("gpt", match=MatchSettings(model=("*",)))
    outcome = await classify(uploaded(body), plan)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.NO_ROUTE)
    assert not terminal.calls


async def test_a_path_that_no_route_wants_is_refused_unread() -> None:
    plan, _ = route("chat", match=MatchSettings(path=("/v1/chat/*",)))
    exchange = uploaded(CHAT, target="/v2/other")
    outcome = await classify(exchange, plan)
    assert outcome.reason is Reason.NO_ROUTE
    assert exchange.request.body is None


async def test_bytes_that_are_not_understood_pass_where_nothing_of_them_is_needed() -> None:
    plan, terminal = route("any")
    exchange = uploaded(b"{broken")
    await classify(exchange, plan)
    assert terminal.calls
    assert exchange.request.body == b"{broken"
    assert exchange.document is None
    assert not exchange.repeatable


async def test_a_route_that_changes_the_body_refuses_one_that_it_cannot_change() -> None:
    plan, terminal = route("changed", needs_document=True)
    outcome = await classify(uploaded(b"{broken"), plan)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, Reason.BAD_REQUEST)
    assert "JSON object" in outcome.detail
    assert not terminal.calls


async def test_a_body_announced_over_the_limit_is_refused_unread() -> None:
    plan, _ = route("small", body_max=10)
    exchange = uploaded(CHAT)
    outcome = await classify(exchange, plan)
    assert outcome.reason is Reason.BODY_TOO_LARGE
    assert "body.max" in outcome.detail
    assert exchange.request.body is None


async def test_a_body_that_grows_over_the_limit_is_refused() -> None:
    plan, _ = route("small", body_max=10)
    exchange = make_exchange(Ask(headers=JSON, upload=FakeUpload([b"x" * 6, b"x" * 6])))
    assert (await classify(exchange, plan)).reason is Reason.BODY_TOO_LARGE


async def test_the_limit_is_the_routes_own_once_the_model_has_chosen_it() -> None:
    small, never = route("small", match=MatchSettings(model=("gpt-*",)), body_max=10)
    large, _ = route("large", match=MatchSettings(), body_max=1000)
    outcome = await classify(uploaded(CHAT), small, large)
    assert outcome.reason is Reason.BODY_TOO_LARGE
    assert not never.calls


async def test_a_streamed_body_is_held_to_its_routes_limit_too() -> None:
    small, terminal = route("small", body_max=10)
    large, _ = route("large", body_max=1000)
    exchange = uploaded(b"x" * 8, target="/v1/audio/transcriptions", kind="multipart/form-data; boundary=x")
    await classify(exchange, small, large)
    assert terminal.calls
    assert exchange.request.upload is not None
    assert exchange.request.upload.limit == 10
    assert exchange.request.body is None
    exchange = uploaded(b"x" * 11, target="/v1/audio/transcriptions", kind="multipart/form-data; boundary=x")
    assert (await classify(exchange, small, large)).reason is Reason.BODY_TOO_LARGE


async def test_a_cut_body_is_a_bad_request() -> None:
    plan, terminal = route("chat")
    exchange = make_exchange(Ask(headers=JSON, upload=FakeUpload([b"{"], broken=True)))
    outcome = await classify(exchange, plan)
    assert outcome.reason is Reason.BAD_REQUEST
    assert "ended too early" in outcome.detail
    assert not terminal.calls


class Drip(FakeUpload):
    """A body of which one byte comes every 20 seconds."""

    @property
    def complete(self) -> bool:
        """Never."""
        return False

    async def read(self) -> bytes:
        """Returns the next byte."""
        await asyncio.sleep(20.0)
        return await super().read()


@pytest.mark.parametrize(("length", "taken"), [(3, True), (9, False)])
def test_a_body_that_drips_is_bounded_by_its_routes_total(length: int, taken: bool) -> None:
    async def scene(loop: HurriedLoop) -> None:
        brief, _ = route("brief", match=MatchSettings(model=("none",)), total=30.0)
        plan, terminal = route("drip", total=100.0)
        upload = Drip([b" "] * length, length=length)
        classifying = asyncio.ensure_future(classify(make_exchange(Ask(headers=JSON, upload=upload)), brief, plan))
        await loop.pass_time(99.0)
        assert classifying.done() is taken
        await loop.pass_time(2.0)
        assert classifying.done()
        outcome = await classifying
        assert outcome.reason is (None if taken else Reason.TOTAL_TIMEOUT)
        assert len(terminal.calls) == taken

    hurried(scene)


@pytest.mark.parametrize(
    ("target", "kind", "buffered"),
    [
        ("/v1/chat/completions", "application/json", True),
        ("/v1/chat/completions", "Application/JSON; charset=utf-8", True),
        ("/v1/chat/completions", "", True),
        ("/v1/chat/completions", "text/plain", True),
        ("/v1/other", "application/vnd.api+json", True),
        ("/v1/other", "APPLICATION/JSON", True),
        ("/v1/other", "application/octet-stream", False),
        ("/v1/files", "multipart/form-data; boundary=x", False),
        ("/v1/chat/completions", "Multipart/Form-Data; boundary=x", False),
    ],
)
async def test_json_and_known_operations_are_read_whole_everything_else_passes_while_it_arrives(
    target: str, kind: str, buffered: bool
) -> None:
    plan, _ = route("any")
    exchange = uploaded(CHAT, target=target, kind=kind)
    await classify(exchange, plan)
    assert (exchange.request.body is not None) is buffered


@pytest.mark.parametrize(
    ("ask", "setting", "repeatable"),
    [
        (Ask(method="GET", target="/v1/anything", body=b""), None, True),
        (Ask(method="HEAD", target="/v1/anything", body=b""), None, True),
        (Ask(method="DELETE", target="/v1/files/f1", body=b""), None, False),
        (Ask(target="/v1/files", body=b"{}"), None, False),
        (Ask(target="/v1/embeddings", body=b'{"model":"e"}'), None, True),
        (Ask(target="/v1/messages", body=b'{"model":"c"}'), None, True),
        (Ask(target="/v1/embeddings", body=b'{"model":"e"}'), False, False),
        (Ask(target="/v1/files", body=b"{}"), True, True),
    ],
    ids=lambda value: value.target if isinstance(value, Ask) else str(value),
)
async def test_known_inference_and_reading_may_be_repeated(ask: Ask, setting: bool | None, repeatable: bool) -> None:
    plan, _ = route("any", repeatable=setting)
    exchange = make_exchange(ask)
    await classify(exchange, plan)
    assert exchange.repeatable is repeatable


async def test_only_true_is_a_stream_and_only_where_the_operation_streams() -> None:
    plan, _ = route("any")
    for target, body, stream in [
        ("/v1/chat/completions", b'{"stream":true}', True),
        ("/v1/chat/completions", b'{"stream":1}', False),
        ("/v1/chat/completions", b'{"stream":"true"}', False),
        ("/v1/embeddings", b'{"stream":true}', False),
    ]:
        exchange = make_exchange(Ask(target=target, body=body))
        await classify(exchange, plan)
        assert exchange.facts.stream is stream


async def test_the_dialect_follows_the_path_so_that_refusals_speak_it() -> None:
    for target, dialect in [("/v1/messages", "anthropic"), ("/v1/chat/completions", "openai"), ("/v9/x", "openai")]:
        exchange = make_exchange(Ask(target=target))
        assert (await classify(exchange)).reason is Reason.NO_ROUTE
        assert exchange.dialect.name == dialect


def ranked(klass: str, *, from_header: bool = False) -> RoutePlan:
    """A route of this class."""
    plan, _ = route("ranked")
    plan.klass, plan.class_from_header = klass, from_header
    return plan


async def test_a_call_has_its_routes_class_and_says_a_lower_one_at_most() -> None:
    plain = make_exchange()
    await classify(plain, ranked("P2"))
    assert (plain.facts.klass, plain.facts.tenant) == ("P2", "default")
    for said, from_header, klass in [("P2", False, "P2"), ("P0", False, "P1"), ("P0", True, "P0"), ("P9", True, "P1")]:
        exchange = make_exchange(Ask(headers=(*JSON, ("X-Sponson-Class", said))))
        await classify(exchange, ranked("P1", from_header=from_header))
        assert exchange.facts.klass == klass


async def test_a_tenant_is_named_and_its_class_comes_before_the_routes() -> None:
    plan = ranked("P1", from_header=True)
    batch = TenantSettings(klass="P2")
    settings = TenantsSettings(sources=(TenantSource(header="x-agent"),), overrides=(("batch-*", batch),))
    tenants = Tenants(b"salt")
    tenants.reconfigure(settings, 1000.0)
    stage = Classification(Router((plan,), by_provider={}, default=None), BodyMemory(), tenants)
    for agent, klass in [("batch-1", "P2"), ("a7", "P0")]:
        exchange = make_exchange(Ask(headers=(*JSON, ("x-agent", agent), ("x-sponson-class", "P0"))))
        await stage(exchange)
        assert (exchange.facts.tenant, exchange.facts.klass) == (agent, klass)
