"""Names: look-ups that hang, fail, give nothing or change, and addresses of which some are dead."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any

import pytest
from aiohttp import ClientConnectorDNSError, ClientConnectorError

from proxy.upstream.address import Address
from proxy.upstream.dialer import DISTRUST_SECONDS, Dialer
from proxy.upstream.lookup import Lookup
from tests.ports import free_port
from tests.upstream.peer import PATIENCE_SECONDS
from tests.upstream.silence import vanish

NAME = "model.provider.test"


class Names:
    """What the system says of names: `hosts` may change; `wait` is what a look-up waits for."""

    def __init__(self, *hosts: str) -> None:
        self.hosts = hosts
        self.error: OSError | None = None
        self.asked = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self, host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
        self.asked += 1
        self.go_on.wait(PATIENCE_SECONDS)
        if self.error is not None:
            raise self.error
        return [info for literal in self.hosts for info in socket.getaddrinfo(literal, port, type=how["type"])]


def a_dialer(names: Names, port: int) -> Dialer:
    return Dialer(Address(scheme="http", host=NAME, port=port), lookup=Lookup(names))


@asynccontextmanager
async def listening(*hosts: str) -> AsyncIterator[int]:
    """One port that is open at these addresses, and at no other."""
    port = free_port()
    with ExitStack() as stack:
        for host in hosts:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            stack.enter_context(socket.create_server((host, port), family=family))
        async with asyncio.timeout(PATIENCE_SECONDS):
            yield port


@contextmanager
def hole(host: str, port: int) -> Iterator[None]:
    """An address that answers no packet on this port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        vanish(listener)
        yield


async def remote_of(dialer: Dialer, *, within: float = PATIENCE_SECONDS) -> str:
    connection = await dialer.dial(within)
    assert connection.transport is not None
    host: str = connection.transport.get_extra_info("peername")[0]
    connection.kill()
    return host


async def test_names_that_hang_keep_no_other_name_waiting() -> None:
    hanging, well = Names("127.0.0.2"), Names("127.0.0.2")
    hanging.go_on.clear()
    async with listening("127.0.0.2") as port:
        dialers = [a_dialer(hanging, port) for _ in range(40)]
        stuck = [asyncio.ensure_future(dialer.dial(PATIENCE_SECONDS)) for dialer in dialers]
        while hanging.asked < 40:
            await asyncio.sleep(0.01)
        other = a_dialer(well, port)
        assert await remote_of(other) == "127.0.0.2"
        hanging.go_on.set()
        for connection in await asyncio.gather(*stuck):
            connection.kill()
        for dialer in (*dialers, other):
            await dialer.close()


async def test_a_look_up_that_hangs_costs_the_limit_is_not_asked_twice_and_recovers() -> None:
    names = Names("127.0.0.2")
    names.go_on.clear()
    async with listening("127.0.0.2") as port:
        dialer = a_dialer(names, port)
        for result in await asyncio.gather(*(dialer.dial(0.1) for _ in range(20)), return_exceptions=True):
            assert isinstance(result, TimeoutError)
        assert (names.asked, dialer.open) == (1, 0)
        names.go_on.set()
        assert await remote_of(dialer) == "127.0.0.2"
        await dialer.close()


async def test_a_dialer_is_closed_while_its_look_up_hangs() -> None:
    names = Names("127.0.0.2")
    names.go_on.clear()
    dialer = a_dialer(names, 9)
    with pytest.raises(TimeoutError):
        await dialer.dial(0.05)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await dialer.close()
    names.go_on.set()


@pytest.mark.parametrize("code", [socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL, None])
async def test_a_name_without_an_address_fails_at_once_and_recovers_by_itself(code: int | None) -> None:
    names = Names()
    names.error = None if code is None else socket.gaierror(code, "no")
    async with listening("127.0.0.2") as port:
        dialer = a_dialer(names, port)
        for _ in range(2):
            with pytest.raises(ClientConnectorDNSError):
                await dialer.dial(PATIENCE_SECONDS)
        names.error, names.hosts = None, ("127.0.0.2",)
        assert await remote_of(dialer) == "127.0.0.2"
        assert (names.asked, dialer.hosts) == (3, frozenset({"127.0.0.2"}))
        await dialer.close()


async def test_what_is_known_of_a_name_outlives_a_failing_look_up() -> None:
    names = Names("127.0.0.2")
    async with listening("127.0.0.2") as port:
        dialer = a_dialer(names, port)
        await remote_of(dialer)
        names.error = socket.gaierror(socket.EAI_AGAIN, "no")
        dialer._connector.clear_dns_cache()
        with pytest.raises(ClientConnectorDNSError):
            await dialer.dial(PATIENCE_SECONDS)
        assert dialer.hosts == {"127.0.0.2"}
        await dialer.close()


async def test_a_name_that_moved_is_followed_by_the_dials_after_the_next_look_up() -> None:
    names = Names("127.0.0.2")
    async with listening("127.0.0.2", "127.0.0.3") as port:
        dialer = a_dialer(names, port)
        assert await remote_of(dialer) == "127.0.0.2"
        names.hosts = ("127.0.0.3",)
        assert await remote_of(dialer) == "127.0.0.2"
        dialer._connector.clear_dns_cache()
        assert (await remote_of(dialer), dialer.hosts) == ("127.0.0.3", frozenset({"127.0.0.3"}))
        await dialer.close()


async def test_a_dial_that_reaches_nobody_has_the_name_looked_up_again_but_a_crowd_of_them_once() -> None:
    names = Names("127.0.0.2")
    async with listening("127.0.0.3") as port:
        dialer = a_dialer(names, port)
        for _ in range(5):
            with pytest.raises(ClientConnectorError):
                await dialer.dial(PATIENCE_SECONDS)
        assert names.asked == 2
        dialer._forgot_at -= DISTRUST_SECONDS
        names.hosts = ("127.0.0.3",)
        with pytest.raises(ClientConnectorError):
            await dialer.dial(PATIENCE_SECONDS)
        assert await remote_of(dialer) == "127.0.0.3"
        await dialer.close()


@pytest.mark.parametrize("order", [("127.0.0.2", "127.0.0.3"), ("::1", "127.0.0.3"), ("127.0.0.3", "::1")])
async def test_of_several_addresses_one_that_refuses_is_passed_over(order: tuple[str, ...]) -> None:
    async with listening("127.0.0.3") as port:
        dialer = a_dialer(Names(*order), port)
        assert [await remote_of(dialer) for _ in range(4)] == ["127.0.0.3"] * 4
        await dialer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's packet filter is Linux's")
@pytest.mark.parametrize("dead", ["127.0.0.2", "::1"])
async def test_of_several_addresses_one_that_answers_nothing_is_passed_over_soon(dead: str) -> None:
    async with listening("127.0.0.3") as port:
        with hole(dead, port):
            dialer = a_dialer(Names(dead, "127.0.0.3"), port)
            assert await remote_of(dialer) == "127.0.0.3"
            assert dialer.open == 0
            await dialer.close()


async def test_an_address_family_that_this_machine_lacks_is_passed_over() -> None:
    def without_ipv6(info: tuple[Any, ...]) -> socket.socket:
        if info[0] == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return socket.socket(*info[:3])

    async with listening("127.0.0.3") as port:
        dialer = a_dialer(Names("::1", "127.0.0.3"), port)
        dialer._connector._socket_factory = without_ipv6
        assert await remote_of(dialer) == "127.0.0.3"
        await dialer.close()
        only = a_dialer(Names("::1"), port)
        only._connector._socket_factory = without_ipv6
        with pytest.raises(ClientConnectorError) as caught:
            await only.dial(PATIENCE_SECONDS)
        assert caught.value.os_error.errno == errno.EAFNOSUPPORT
        await only.close()


async def test_an_ipv6_address_of_a_provider_is_dialled_without_a_look_up() -> None:
    async with listening("::1") as port:
        dialer = Dialer(Address(scheme="http", host="::1", port=port))
        assert (await remote_of(dialer), dialer.hosts) == ("::1", frozenset())
        await dialer.close()


@pytest.mark.parametrize("host", ["127.0.0.3", "::1"])
async def test_where_a_connection_leads_reads_like_what_was_looked_up(host: str) -> None:
    async with listening(host) as port:
        dialer = a_dialer(Names(host), port)
        connection = await dialer.dial(PATIENCE_SECONDS)
        assert {connection.remote} == dialer.hosts
        connection.kill()
        await dialer.close()


async def test_a_link_local_address_keeps_its_interface() -> None:
    def ask(host: str, port: int, **how: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::7", port, 0, 2))]

    (found,) = await Lookup(ask).resolve("printer.test", 80)
    assert (found["host"], found["port"]) == ("fe80::7%2", 80)


async def test_a_name_is_looked_up_by_the_system_too() -> None:
    lookup = Lookup()
    found = {result["host"] for result in await lookup.resolve("localhost", 80)}
    assert found <= {"127.0.0.1", "::1"}
    assert lookup.hosts == found
