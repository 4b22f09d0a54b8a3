"""Every reason for which the proxy makes an answer itself, provoked over the wire, in two dialects (rule 9)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from proxy.outcome import Reason
from tests.integration.caller import HOST, Answer
from tests.integration.harness import Lab
from tests.integration.reasons import DIALECTS, NOT_BUILT_YET, ROWS, Caller, Dialect, Row, case, policy
from tests.integration.unreachable import full_listener

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab() -> AsyncIterator[Lab]:
    everything = policy(*(reason for reason in ROWS if reason is not Reason.SHUTTING_DOWN))
    with full_listener() as port:
        everything["providers"]["connect-timeout"]["base_url"] = f"http://{HOST}:{port}/v1"
        async with Lab(everything, env={"KEY": "sk-k"}) as lab:
            yield lab


async def test_every_reason_is_in_the_table_or_belongs_to_what_is_not_built_yet() -> None:
    assert set(ROWS) | set(NOT_BUILT_YET) == set(Reason)
    assert not set(ROWS) & set(NOT_BUILT_YET)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("reason", [reason for reason in ROWS if reason is not Reason.SHUTTING_DOWN])
async def test_reason_is_told_as_the_table_says(lab: Lab, reason: Reason, dialect: str) -> None:
    answer = await ROWS[reason].provoke(Caller(lab, case(reason), DIALECTS[dialect]))
    check(answer, reason, DIALECTS[dialect])


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_end_of_the_instance_is_told_too(dialect: str) -> None:
    async with Lab(policy(Reason.SHUTTING_DOWN), flags=["--drain", "2200ms"]) as lab:
        caller = Caller(lab, case(Reason.SHUTTING_DOWN), DIALECTS[dialect])
        check(await ROWS[Reason.SHUTTING_DOWN].provoke(caller), Reason.SHUTTING_DOWN, DIALECTS[dialect])
        assert await lab.proxy.exited(within=10) == 0


def check(answer: Answer, reason: Reason, dialect: Dialect) -> None:
    """Compares an answer with the reason's row."""
    row = ROWS[reason]
    assert answer.status == row.status
    stamps(answer, row, provider=case(reason))
    if row.event:
        assert not answer.complete
        assert answer.reason is None
        assert f'"code":"{reason}"'.encode() in answer.body.rpartition(dialect.events[-1])[2]
        return
    assert answer.complete
    assert answer.all("x-sponson-reason") == [reason]
    assert answer.all("content-type") == ["application/json"]
    told = answer.all("retry-after")
    assert len(told) == row.comes_back
    assert all(int(seconds) >= 1 for seconds in told)
    assert answer.all("x-should-retry") == ([] if row.again else ["false"])
    in_its_dialect(answer, reason, dialect)


def in_its_dialect(answer: Answer, reason: Reason, dialect: Dialect) -> None:
    document = answer.json()
    assert document.get("type") == dialect.kind
    assert document["request_id"] == answer.header("x-sponson-request-id")
    error = document["error"]
    assert (error["type"], error["code"]) == (dialect.types[answer.status], reason)
    assert len(error["message"]) > 20


def stamps(answer: Answer, row: Row, *, provider: str) -> None:
    """Compares what every answer bears; one that no tier was asked for names no provider."""
    assert len(answer.all("x-sponson-request-id")) == 1
    assert answer.all("x-sponson-attempts") == [str(row.attempts or 0)]
    asked = row.attempts is not None
    assert answer.all("x-sponson-provider") == [provider] * asked
    assert answer.all("x-sponson-tier") == ["1"] * asked
