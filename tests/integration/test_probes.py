"""What a kubelet sees of the probes, from before the start to after the end; providers have no say in it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integration.drains import Case, before_head, policy
from tests.integration.harness import Lab, ProxyProcess
from tests.integration.messages import CHAT, answers, hangs
from tests.integration.unreachable import full_listener
from tests.integration.watched import checker_of, soon, stopped

PROBES = ("/livez", "/readyz", "/startupz")
GOOD = [200, 200, 200]


async def probed(proxy: ProxyProcess) -> list[int]:
    """The status of each probe, 0 where nobody answers."""
    found = []
    for path in PROBES:
        try:
            found.append((await proxy.get(path)).status)
        except OSError:
            found.append(0)
    return found


@contextmanager
def stuck(pid: int) -> Iterator[None]:
    """A process whose event loop does not turn for a while."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_nobody_answers_while_the_policy_is_not_understood() -> None:
    proxy = ProxyProcess({"version": 1, "providers": {"alpha": {"base_url": "http://127.0.0.1:9"}}})
    with proxy.spawned(), stopped(await soon(lambda: checker_of(proxy.process.pid))):
        assert await probed(proxy) == [0, 0, 0]


async def test_probes_stay_good_whatever_the_providers_do() -> None:
    providers = {name: {"breaker": {"consecutive": 1}} for name in ("hanging", "failing", "dead")}
    async with Lab({"version": 1, "providers": providers}) as lab, lab.wire() as wire:
        lab["hanging"].script, lab["failing"].script = hangs, answers(500)
        lab["dead"].refuse()
        case = Case(lab=lab, wire=wire)
        await case.send(b"POST /hanging/v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n")
        for name in ("failing", "dead"):
            assert (await lab.call(f"/{name}/v1/chat/completions", CHAT)).status in (500, 502, 503)
        await lab.proxy.until(lambda status: sum(row["state"] == "open" for row in status["breakers"]) == 2)
        assert await probed(lab.proxy) == GOOD


async def test_a_draining_proxy_is_alive_and_not_ready_and_afterwards_nobody_answers() -> None:
    with full_listener() as hole:
        async with Lab(policy(hole)) as lab, lab.wire() as wire:
            case = Case(lab=lab, wire=wire)
            await before_head(case)
            lab.proxy.signal(signal.SIGTERM)
            await lab.proxy.until(lambda status: status["phase"] == "draining")
            assert await probed(lab.proxy) == [200, 503, 200]
            await case.go_on()
            assert (await case.answer()).complete
            assert await lab.proxy.exited(within=10) == 0
            assert await probed(lab.proxy) == [0, 0, 0]


async def test_no_probe_is_answered_while_the_event_loop_is_stuck() -> None:
    async with Lab({"version": 1, "providers": {"alpha": {}}}) as lab:
        with stuck(lab.proxy.process.pid):
            for path in PROBES:
                assert (await lab.proxy.get(path, within=0.3)).status == 0
        await lab.proxy.until(lambda status: status["phase"] == "ready")
        assert await probed(lab.proxy) == GOOD
