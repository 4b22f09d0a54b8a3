"""Tier: path, query, model and parameters for one provider; everything else stays the caller's, byte for byte."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from proxy.dialects.lookup import operation_of
from proxy.exchange import Exchange
from proxy.outcome import Outcome
from proxy.plan import RoutePlan
from proxy.stage import CallNext
from proxy.stages.tier import ProviderTier
from tests.fakes import Ask, FakeUpload, answered, make_exchange
from tests.scripted import ScriptedTerminal
from tests.stages.world import make_plan


class Asked:
    """Targets that note which model they were asked for."""

    def __init__(self) -> None:
        self.models: list[str | None] = []
        self.terminal = ScriptedTerminal()

    def of(self, model: str | None) -> tuple[str, CallNext]:
        """Returns a label and the terminal."""
        self.models.append(model)
        return f"label of {model}", self.terminal


def tier(targets: Asked, *, number: int = 1, root: str = "/v1", query: str = "", **changes: Any) -> ProviderTier:
    return ProviderTier(
        number=number,
        provider="alpha",
        root=root,
        query=query,
        model=changes.get("model"),
        fields=changes.get("fields", {}),
        targets=targets,
        own_key=changes.get("own_key", True),
        counts_tokens=changes.get("counts_tokens", False),
        meant=changes.get("meant", True),
    )


def arrived(
    body: bytes = b'{"model": "m1",\n "seed": 12345678901234567890}', target: str = "/v1/chat/completions"
) -> Exchange:
    """An exchange as classification leaves it."""
    exchange = make_exchange(Ask(target=target, body=body))
    exchange.document = orjson.loads(body) if body else None
    exchange.model = exchange.document.get("model") if exchange.document else None
    exchange.operation = operation_of(exchange.request.path)
    exchange.plan = make_plan(ScriptedTerminal())
    return exchange


async def asked_for(exchange: Exchange, stage: ProviderTier) -> str:
    await stage(exchange)
    return exchange.upstream_path


@pytest.mark.parametrize(
    ("target", "root", "query", "path"),
    [
        ("/v1/chat/completions", "/v1", "", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1beta/openai", "", "/v1beta/openai/chat/completions"),
        ("/v1/chat/completions?a=%2F", "/openai/deployments/d", "", "/openai/deployments/d/chat/completions?a=%2F"),
        ("/v1/chat/completions", "", "api-version=1", "/v1/chat/completions?api-version=1"),
        ("/v1/chat/completions?", "/v1", "api-version=1", "/v1/chat/completions?api-version=1"),
        ("/v1/chat/completions?a=1", "/v1", "b=2", "/v1/chat/completions?a=1&b=2"),
        ("/v1/a%2Fb//../c", "/v1", "", "/v1/a%2Fb//../c"),
    ],
)
async def test_the_path_is_joined_and_the_query_added(target: str, root: str, query: str, path: str) -> None:
    assert await asked_for(arrived(target=target), tier(Asked(), root=root, query=query)) == path


@pytest.mark.parametrize(
    ("changes", "query"),
    [
        ({"own_key": False}, "?alt=sse&key=theirs&b=2"),
        ({"own_key": False, "number": 2}, "?alt=sse&b=2"),
        ({"own_key": False, "meant": False}, "?alt=sse&b=2"),
        ({"own_key": True}, "?alt=sse&b=2"),
    ],
)
async def test_a_credential_in_the_query_goes_only_to_whom_the_caller_meant(changes: Any, query: str) -> None:
    exchange = arrived(target="/v1/models?alt=sse&key=theirs")
    assert await asked_for(exchange, tier(Asked(), query="b=2", **changes)) == f"/v1/models{query}"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/alpha/chat/completions", "/v1/chat/completions"),
        ("/alpha/v1/chat/completions", "/v1/chat/completions"),
        ("/alpha", "/v1/"),
        ("/alpha?x=1", "/v1/?x=1"),
    ],
)
async def test_a_providers_own_prefix_is_removed(target: str, path: str) -> None:
    exchange = arrived(target=target)
    exchange.plan = RoutePlan(
        name="alpha",
        matcher=exchange.plan.matcher,
        call=exchange.plan.call,
        prefix="/alpha",
        total=600.0,
        body_max=1,
        body_replay=1,
        repeatable=None,
        needs_document=False,
    )
    assert await asked_for(exchange, tier(Asked())) == path


async def test_without_changes_the_body_goes_as_it_came() -> None:
    targets, exchange = Asked(), arrived()
    await tier(targets)(exchange)
    assert exchange.payload is exchange.request.body
    assert targets.models == ["m1"]
    assert exchange.facts.model == "label of m1"


async def test_the_tiers_model_replaces_the_callers_and_nothing_else() -> None:
    targets, exchange = Asked(), arrived()
    await tier(targets, model="other")(exchange)
    assert exchange.payload == b'{"model": "other",\n "seed": 12345678901234567890}'
    assert targets.models == ["other"]
    assert exchange.model == "m1", "a later tier without a model sends the caller's"


async def test_the_callers_own_model_is_not_rewritten() -> None:
    exchange = arrived()
    await tier(Asked(), model="m1")(exchange)
    assert exchange.payload is exchange.request.body


async def test_parameters_are_set_whether_the_caller_gave_them_or_not() -> None:
    exchange = arrived(b'{"model":"m1","max_tokens":9000}')
    await tier(Asked(), model="m2", fields={"max_tokens": 512, "user": "x"})(exchange)
    assert exchange.payload is not None
    assert orjson.loads(exchange.payload) == {"model": "m2", "max_tokens": 512, "user": "x"}


async def test_each_tier_begins_with_the_callers_body() -> None:
    exchange = arrived()
    await tier(Asked(), number=1, model="one", fields={"user": "x"})(exchange)
    await tier(Asked(), number=2)(exchange)
    assert exchange.payload is exchange.request.body


async def test_a_body_that_still_arrives_is_not_looked_at() -> None:
    exchange = arrived()
    exchange.request.body, exchange.document = None, None
    exchange.request.upload = FakeUpload([b"x"])
    await tier(Asked(), model="other")(exchange)
    assert exchange.payload is None


async def test_only_the_first_tier_is_the_one_that_the_caller_meant() -> None:
    for number, first in [(1, True), (2, False)]:
        exchange = arrived()
        await tier(Asked(), number=number)(exchange)
        assert exchange.first_target is first


async def test_an_equal_of_the_one_that_the_caller_meant_is_not_meant_even_as_a_first_tier() -> None:
    exchange = arrived()
    await tier(Asked(), meant=False)(exchange)
    assert exchange.first_target is False


STREAMED = b'{"model":"m1","stream":true}'
ASKING = b'{"model":"m1","stream":true,"stream_options":{"include_usage":true}}'


class Sent(Asked):
    """Targets that note what they were to send, and whether the caller is to see all that comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[bytes | None, bool]] = []

    def of(self, model: str | None) -> tuple[str, CallNext]:
        """Returns a label and a pipeline that only notes."""
        return "label", self._note

    async def _note(self, exchange: Exchange) -> Outcome:
        self.sent.append((exchange.payload, exchange.hides_usage))
        return answered()


async def counted(exchange: Exchange, **changes: Any) -> tuple[bytes | None, bool]:
    """What a tier that counts tokens sends, and whether what it asked for is hidden meanwhile."""
    targets = Sent()
    await tier(targets, counts_tokens=True, **changes)(exchange)
    assert not exchange.hides_usage
    return targets.sent[0]


async def test_a_tier_that_counts_tokens_asks_for_a_stream_s_usage_and_hides_it() -> None:
    assert await counted(arrived(STREAMED)) == (ASKING, True)
    exchange, targets = arrived(STREAMED), Sent()
    await tier(targets)(exchange)
    assert targets.sent == [(exchange.request.body, False)]


async def test_what_a_tier_sets_counts_before_it_asks() -> None:
    payload, hidden = await counted(arrived(b'{"model":"m1"}'), model="m2", fields={"stream": True})
    assert (payload, hidden) == (ASKING.replace(b"m1", b"m2"), True)
    payload, hidden = await counted(arrived(STREAMED), fields={"stream": False})
    assert (payload, hidden) == (b'{"model":"m1","stream":false}', False)
    payload, hidden = await counted(arrived(STREAMED), fields={"stream_options": {"x": 1}})
    assert (payload, hidden) == (b'{"model":"m1","stream":true,"stream_options":{"x":1}}', False)


@pytest.mark.parametrize(
    ("body", "target"),
    [
        (ASKING, "/v1/chat/completions"),
        (b'{"model":"m1"}', "/v1/chat/completions"),
        (STREAMED, "/v1/responses"),
        (STREAMED, "/v1/unknown"),
        (b"", "/v1/chat/completions"),
    ],
)
async def test_where_usage_comes_anyway_or_never_it_is_not_asked_for(body: bytes, target: str) -> None:
    assert await counted(arrived(body, target)) == (body, False)


async def test_what_is_hidden_ends_with_the_tier_however_it_ends() -> None:
    class Fails(Sent):
        async def _note(self, exchange: Exchange) -> Outcome:
            raise RuntimeError

    exchange = arrived(STREAMED)
    with pytest.raises(RuntimeError):
        await tier(Fails(), counts_tokens=True)(exchange)
    assert not exchange.hides_usage
