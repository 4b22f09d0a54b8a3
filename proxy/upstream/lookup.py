"""Look-ups of names, each in a thread of its own.

A look-up cannot be ended from outside, and the system's own limits are long. The event loop's threads are few (libuv
gives look-ups two): names of one dead domain would keep those of every other provider waiting. The connector asks for
one name at a time, so an address has at most one thread, and nobody waits for it at the exit.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

Infos = list[tuple[Any, ...]]


class Lookup(AbstractResolver):
    """Asks the system, and remembers the latest answer. `ask` is `socket.getaddrinfo`, or stands in for it."""

    def __init__(self, ask: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._ask = ask
        self.hosts: frozenset[str] = frozenset()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Returns the addresses of a name. Raises OSError where there are none."""
        ask = partial(self._ask, host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
        infos: Infos = await _in_a_thread(ask, name=f"look up {host}")
        found = [_result(host, info) for info in infos]
        if not found:
            raise OSError(None, "the name has no address")
        self.hosts = frozenset(result["host"] for result in found)
        return found

    async def close(self) -> None:
        """Has nothing to close."""


def _result(host: str, info: tuple[Any, ...]) -> ResolveResult:
    family, _, proto, _, address = info
    found = address[0]
    if family == socket.AF_INET6 and address[3] and "%" not in found:
        # A link-local address means nothing without its interface.
        found = f"{found}%{address[3]}"
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=found, port=address[1], family=family, proto=proto, flags=flags)


async def _in_a_thread(work: Callable[[], Any], *, name: str) -> Any:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as caught:  # noqa: BLE001 - whatever it is, it is raised where it is awaited
            error = caught
        try:
            loop.call_soon_threadsafe(_settle, future, result, error)
        except RuntimeError:
            pass  # the event loop has ended before the look-up

    try:
        Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    return await future


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
