"""The proxy in this process, a provider that counts what it has in flight, and callers that never stop."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import aiohttp

from proxy.clock import SystemClock
from proxy.decisions.admission import Admission
from proxy.decisions.places import Places
from proxy.downstream.listen import bind, parse_address
from proxy.downstream.rescue import rescue
from proxy.downstream.server import DataServer
from proxy.policy.load import load_policy
from proxy.policy.snapshot import PolicySnapshot
from proxy.runtime.assembly import Runtime, Surroundings, assemble
from proxy.runtime.kept_state import KeptState
from proxy.runtime.reload import PolicyKeeper
from proxy.runtime.secrets import Secrets
from proxy.trace_context import Sampler
from proxy.upstream.pool import Pool
from tests.scripted import ManualObserver

HURRY = 20.0
TICK_SECONDS = 0.01
EVENTS = 5
ANSWER_SECONDS = 0.02


class HurriedClock(SystemClock):
    """A keeper's clock that runs fast, so that a hundred reloads take seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = lambda: time.monotonic() * HURRY

    async def sleep(self, seconds: float) -> None:
        """Returns after a part of `seconds`."""
        await super().sleep(seconds / HURRY)


class CountingProvider:
    """Answers chats and streams; what it has in flight ends before its last byte leaves."""

    def __init__(self) -> None:
        self.in_flight = self.peak = self.received = 0
        self.revisions: list[str] = []
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def start(self) -> int:
        """Listens; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Ends everything."""
        assert self._server is not None
        self._server.close()
        for writer in self._connections:
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = await reader.readexactly(int(fields["content-length"]))
                self.received += 1
                self.revisions.append(fields["x-revision"])
                self.in_flight += 1
                self.peak = max(self.peak, self.in_flight)
                await self._answer(writer, stream=b'"stream":true' in body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, *, stream: bool) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: "
        await asyncio.sleep(ANSWER_SECONDS)
        if not stream:
            self.in_flight -= 1
            body = b'{"choices":[{"message":{"content":"hello"}}]}'
            writer.write(head + b"application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            return
        writer.write(head + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(EVENTS):
            event = b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % number
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(ANSWER_SECONDS / EVENTS)
        self.in_flight -= 1
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


class LocalProxy:
    """Everything of a running proxy that a reload touches, and its data listener."""

    def __init__(self, policy: Path) -> None:
        self.clock = SystemClock()
        self.kept = KeptState()
        self.admission = Admission()
        self.observer = ManualObserver()
        bits = random.Random(7).getrandbits
        self._around = Surroundings(
            kept=self.kept,
            admission=self.admission,
            observer=self.observer,
            rescue=rescue,
            clock=self.clock,
            bits=bits,
        )
        self._secrets = Secrets({})
        self._runtime: Runtime | None = None
        self.keeper = PolicyKeeper(
            policy,
            secrets=self._secrets,
            apply=self._apply,
            observer=self.observer,
            clock=HurriedClock(),
            understand=load_policy,
        )
        self.server = DataServer(self._current, sampler=Sampler(ratio=0.0), clock=self.clock, bits=bits)
        self._tasks: list[asyncio.Task[None]] = []

    def _apply(self, snapshot: PolicySnapshot) -> None:
        runtime = assemble(snapshot, self._around, self._secrets)
        runtime.go_live(self.clock.now())
        self._runtime = runtime

    def _current(self) -> Runtime:
        assert self._runtime is not None
        return self._runtime

    async def start(self) -> int:
        """Listens and follows its policy; returns the port."""
        await self.keeper.first()
        sockets = bind(parse_address("127.0.0.1:0"))
        port: int = sockets[0].getsockname()[1]
        await self.server.listen(sockets)
        self._tasks = [asyncio.create_task(self.keeper.run()), asyncio.create_task(self._tick())]
        return port

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.admission.tick(self.clock.now())

    async def stop(self) -> None:
        """Ends everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self.server.close()
        for _, pool, _ in self.kept.all(Pool):
            await pool.close()

    @property
    def places_used(self) -> int:
        """Places that are taken, over all limits."""
        return sum(places.used for _, places, _ in self.kept.all(Places))


class Callers:
    """Callers that ask, half of them for streams, until they are stopped; each answer is checked."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self._stopped = False
        self._tasks: list[asyncio.Task[None]] = []
        self.succeeded = {False: 0, True: 0}
        self.failures: list[str] = []

    def start(self, count: int) -> None:
        """Starts them."""
        self._tasks = [asyncio.create_task(self._ask_on(stream=number % 2 == 1)) for number in range(count)]

    async def stop(self) -> None:
        """Lets each finish what it has under way."""
        self._stopped = True
        await asyncio.gather(*self._tasks)

    async def _ask_on(self, *, stream: bool) -> None:
        async with aiohttp.ClientSession() as session:
            while not self._stopped:
                try:
                    self._judge(*await self._ask(session, stream=stream), stream=stream)
                except (aiohttp.ClientError, TimeoutError) as error:
                    self.failures.append(repr(error))

    async def _ask(self, session: aiohttp.ClientSession, *, stream: bool) -> tuple[int, str]:
        body = '{"model":"m1","messages":[],"stream":true}' if stream else '{"model":"m1","messages":[]}'
        async with session.post(self._url, data=body, headers={"content-type": "application/json"}) as answer:
            return answer.status, await answer.text()

    def _judge(self, status: int, text: str, *, stream: bool) -> None:
        whole = text.count('"delta"') == EVENTS and text.endswith("data: [DONE]\n\n") if stream else "hello" in text
        if status == 200 and whole:
            self.succeeded[stream] += 1
        else:
            self.failures.append(f"{status} {text[-200:]}")
