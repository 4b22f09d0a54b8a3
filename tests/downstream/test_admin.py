from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from proxy.downstream.admin import MOST_CONNECTIONS, AdminServer, AdminSources
from proxy.downstream.listen import ListenAddress, bind
from tests.downstream.visitor import Answer, read_answer, talk, until, visiting


@dataclass(slots=True)
class State:
    """What the sources say."""

    live: bool = True
    ready: bool = True
    started: bool = True

    def sources(self) -> AdminSources:
        return AdminSources(
            live=lambda: self.live,
            ready=lambda: self.ready,
            started=lambda: self.started,
            metrics=lambda: ("text/plain; version=0.0.4; charset=utf-8", b"up 1\n"),
            policy=lambda: {"revision": 3, "problems": []},
            status=lambda: {"targets": {1: {"state": "closed"}}},
        )


@asynccontextmanager
async def admin(state: State) -> AsyncIterator[int]:
    server = AdminServer(state.sources())
    sockets = bind(ListenAddress(host="127.0.0.1", port=0))
    server.listen(sockets)
    try:
        yield sockets[0].getsockname()[1]
    finally:
        server.close()


async def get(port: int, path: str, method: str = "GET") -> Answer:
    ask = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    return read_answer(await talk(port, ask.encode()), head=method == "HEAD")[0]


@pytest.mark.parametrize(("path", "name"), [("/livez", "live"), ("/readyz", "ready"), ("/startupz", "started")])
async def test_a_probe_follows_its_source(path: str, name: str) -> None:
    state = State()
    async with admin(state) as port:
        assert (await get(port, path)).status == 200
        setattr(state, name, False)
        assert (await get(port, path)).status == 503
        setattr(state, name, True)
        assert (await get(port, path)).status == 200


async def test_metrics_come_with_their_type() -> None:
    async with admin(State()) as port:
        answer = await get(port, "/metrics")
        assert (answer.body, answer.get("content-type")) == (b"up 1\n", b"text/plain; version=0.0.4; charset=utf-8")


@pytest.mark.parametrize(
    ("path", "document"),
    [("/policy", {"revision": 3, "problems": []}), ("/status", {"targets": {"1": {"state": "closed"}}})],
)
async def test_documents_are_json(path: str, document: dict[str, Any]) -> None:
    async with admin(State()) as port:
        answer = await get(port, path)
        assert orjson.loads(answer.body) == document
        assert (answer.get("content-type") or b"").startswith(b"application/json")


async def test_the_index_names_every_path() -> None:
    async with admin(State()) as port:
        text = (await get(port, "/")).body.decode()
        for path in ("/livez", "/readyz", "/startupz", "/metrics", "/policy", "/status"):
            assert path in text
            assert (await get(port, path)).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_it_is_for_reading_only(method: str) -> None:
    async with admin(State()) as port:
        assert (await get(port, "/policy", method)).status == 405


async def test_an_unknown_path_is_not_found() -> None:
    async with admin(State()) as port:
        assert (await get(port, "/nope")).status == 404


@pytest.mark.parametrize(
    "ask",
    [
        b"GET /livez HTTP/1.1\r\nhost: x\r\nauthorization : Bearer tell-nobody\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\ntell-nobody\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nx-long: tell-nobody" + b"y" * 100_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\ncontent-length: tell-nobody\r\n\r\n",
        b"tell-nobody /livez HTTP/1.1\r\n\r\n",
    ],
    ids=["space before the colon", "no colon", "too long", "no length", "no method"],
)
async def test_nothing_of_a_malformed_request_is_repeated(ask: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with admin(State()) as port:
        told = await talk(port, ask)
        assert told.startswith(b"HTTP/1.")
        assert b" 400 " in told.split(b"\r\n")[0]
        assert b"tell-nobody" not in told
        assert (await get(port, "/livez")).status == 200
    assert "tell-nobody" not in caplog.text


async def test_a_page_that_fails_is_told_and_the_others_are_there(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> dict[str, Any]:
        raise LookupError("no such core")

    server = AdminServer(replace(State().sources(), status=fails))
    sockets = bind(ListenAddress(host="127.0.0.1", port=0))
    server.listen(sockets)
    port = sockets[0].getsockname()[1]
    assert (await get(port, "/status?token=tell-nobody")).status == 500
    assert (await get(port, "/policy")).status == 200
    assert "no such core" in caplog.text
    assert "tell-nobody" not in caplog.text
    server.close()


async def test_head_is_answered_without_a_body_and_pipelined_questions_in_their_order() -> None:
    asks = [
        b"HEAD /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    ]
    async with admin(State()) as port:
        head, rest = read_answer(await talk(port, b"".join(asks)), head=True)
        assert (head.status, head.get("content-length")) == (200, b"5")
        assert read_answer(rest)[0].body == b"ok\n"


async def test_who_asks_for_much_and_takes_nothing_costs_little() -> None:
    server = AdminServer(replace(State().sources(), metrics=lambda: ("text/plain", bytes(1 << 18))))
    sockets = bind(ListenAddress(host="127.0.0.1", port=0))
    server.listen(sockets)
    async with visiting(sockets[0].getsockname()[1]) as visitor:
        visitor.writer.transport.pause_reading()  # type: ignore[attr-defined]
        visitor.writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n" * 4000)
        await until(lambda: any(one.paused for one in server.protocols.connections))
        (connection,) = server.protocols.connections
        assert connection.transport is not None
        assert connection.transport.get_write_buffer_size() < 1 << 20
    server.close()


async def test_more_clients_than_there_is_room_for_are_answered_all_the_same() -> None:
    async with admin(State()) as port, AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(visiting(port)) for _ in range(MOST_CONNECTIONS + 20)]
        for _ in range(3):
            assert (await get(port, "/livez")).status == 200
        assert sum(visitor.reader.at_eof() for visitor in silent) >= 20


async def test_closing_takes_no_longer_than_a_moment_though_a_client_stays() -> None:
    async with admin(State()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        await reader.readuntil(b"ok\n")
    async with asyncio.timeout(5.0):
        assert await reader.read() == b""
    writer.close()


async def test_a_server_that_never_listened_can_be_closed() -> None:
    AdminServer(State().sources()).close()
