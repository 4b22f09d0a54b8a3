"""SIGTERM in every phase of a call, in both orders: whoever has begun gets a whole answer, and the exit code is 0."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.integration.caller import HOST, Answer
from tests.integration.drains import BEGUN, MUCH, ORDERS, Case, asks, between, head_half_in, policy
from tests.integration.harness import Lab
from tests.integration.messages import DONE, event, says
from tests.integration.unreachable import full_listener

BODIES = {
    "held back": event(None) + event("a") + DONE,
    "mid-stream": event("a") + event("b") + DONE,
    "unread": b"x" * MUCH,
}

pytestmark = pytest.mark.parametrize("order", ORDERS)


@asynccontextmanager
async def case_in(order: str) -> AsyncIterator[Case]:
    """A caller that has not begun; afterwards the proxy must have ended well."""
    with full_listener() as hole:
        async with Lab(policy(hole), flags=ORDERS[order]) as lab, lab.wire() as wire:
            yield Case(lab=lab, wire=wire)
            assert await lab.proxy.exited(within=10) == 0
            assert "Traceback" not in lab.proxy.log()
            assert '"error"' not in lab.proxy.log()


async def asked_to_end(case: Case, order: str) -> None:
    """Sends SIGTERM and waits until the proxy acts on it: a sidecar has stopped to listen."""
    case.lab.proxy.signal(signal.SIGTERM)
    await case.lab.proxy.until(lambda status: status["phase"] == "draining")
    if order == "native":
        async with asyncio.timeout(5):
            while await accepts(case):
                await asyncio.sleep(0.01)


async def accepts(case: Case) -> bool:
    """Whether the proxy takes connections."""
    try:
        _, writer = await asyncio.open_connection(HOST, case.lab.proxy.port)
    except OSError:
        return False
    writer.close()
    return True


def whole(answer: Answer) -> bool:
    """Whether a client has got all that it was to get."""
    return answer.status == 200 and answer.complete


@pytest.mark.parametrize("phase", BEGUN)
async def test_a_call_that_has_begun_gets_its_whole_answer(phase: str, order: str) -> None:
    async with case_in(order) as case:
        await BEGUN[phase](case)
        await asked_to_end(case, order)
        await case.go_on()
        answer = await case.answer()
        assert whole(answer)
        assert answer.body == BODIES.get(phase, answer.body)
        assert await case.wire.closed()


async def test_a_head_that_is_partly_in_when_the_signal_comes_is_waited_for(order: str) -> None:
    async with case_in(order) as case:
        await head_half_in(case)
        await asked_to_end(case, order)
        await asyncio.sleep(1.0)
        await case.go_on()
        assert whole(await case.answer())


async def test_a_call_that_stands_unread_in_a_socket_is_answered(order: str) -> None:
    async with case_in(order) as case, case.lab.wire() as fresh:
        await between(case)
        os.kill(case.lab.proxy.process.pid, signal.SIGSTOP)
        await case.wire.send(asks("plain"))
        await fresh.send(asks("plain"))
        case.lab.proxy.signal(signal.SIGTERM)
        os.kill(case.lab.proxy.process.pid, signal.SIGCONT)
        answers = await asyncio.gather(case.wire.answer(), fresh.answer())
        assert [whole(answer) for answer in answers] == [True, True]


async def test_a_connection_between_requests_serves_only_an_application_that_lives(order: str) -> None:
    async with case_in(order) as case:
        await between(case)
        await asked_to_end(case, order)
        if order == "native":
            assert await case.wire.closed()
            return
        await case.begin("plain", at="many")
        answer = await case.wire.answer()
        assert (whole(answer), answer.header("connection")) == (True, "close")
        assert await case.wire.closed()


async def test_a_call_that_comes_during_the_drain_is_served_while_the_application_lives(order: str) -> None:
    async with case_in(order) as case:
        await BEGUN["before the head"](case)
        await asked_to_end(case, order)
        if order == "native":
            with pytest.raises(OSError, match="Connect call failed"):
                await case.lab.chat("plain")
        else:
            case.lab["one"].script = says("hi")
            assert whole(await case.lab.chat("queueing"))
        await case.go_on()
        assert whole(await case.wire.answer())


async def test_a_policy_that_comes_with_the_signal_cuts_nothing_short(order: str) -> None:
    async with case_in(order) as case:
        await BEGUN["before the head"](case)
        case.lab.proxy.rewrite({**case.lab.policy, "limits": {"concurrency": 7}})
        await asked_to_end(case, order)
        case.lab.proxy.signal(signal.SIGHUP)
        await case.go_on()
        assert whole(await case.wire.answer())
