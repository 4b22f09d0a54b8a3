"""Where a server is, what went wrong with it, and that nobody loads the library without need."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from redis import exceptions

from proxy.clock import SystemClock
from proxy.store.cache import RedisCache
from proxy.store.server import Address, Server, Trouble, trouble
from tests.store.driving import found_again, keep, settled, until, up
from tests.store.server import RedisServer

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://cache", Address(host="cache")),
        ("redis://cache/", Address(host="cache")),
        ("redis://cache:7000/3", Address(host="cache", port=7000, database=3)),
        ("rediss://cache.example:6380/0", Address(host="cache.example", port=6380, tls=True)),
        ("redis://[::1]:7000", Address(host="::1", port=7000)),
    ],
)
def test_a_url_says_where_a_server_is(url: str, address: Address) -> None:
    assert Address.of(url) == address
    assert Address.of(str(address)) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cache:6379",
        "http://cache",
        "redis://",
        "redis://cache:port",
        "redis://cache:70000",
        "redis://cache/db",
        "redis://cache/-1",
        "redis://cache?db=1",
        "redis://user:secret@cache",
        "redis://:secret@cache",
        "redis://secret@cache",
    ],
)
def test_any_other_url_is_refused_without_showing_a_secret(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        Address.of(url)
    assert "secret" not in str(refused.value)


def test_a_server_shows_no_password() -> None:
    server = Server(address=Address.of("redis://cache"), username="user", password="secret")
    assert "secret" not in repr(server)
    assert "secret" not in repr(server.connection())


def tls_failure() -> exceptions.ConnectionError:
    """Returns a failed handshake as the library tells it."""
    error = exceptions.ConnectionError("no")
    error.__cause__ = ssl.SSLError("no")
    return error


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (exceptions.ConnectionError("refused"), Trouble.CONNECTION),
        (exceptions.BusyLoadingError("loading"), Trouble.CONNECTION),
        (ConnectionResetError(), Trouble.CONNECTION),
        (exceptions.TimeoutError("late"), Trouble.TIMEOUT),
        (TimeoutError(), Trouble.TIMEOUT),
        (exceptions.AuthenticationError("WRONGPASS"), Trouble.PASSWORD),
        (tls_failure(), Trouble.TLS),
        (exceptions.ReadOnlyError("READONLY"), Trouble.REFUSED),
        (exceptions.OutOfMemoryError("OOM"), Trouble.REFUSED),
        (exceptions.InvalidResponse("what?"), Trouble.PROTOCOL),
        (ValueError("what?"), Trouble.PROTOCOL),
        (ExceptionGroup("", [ExceptionGroup("", [TimeoutError()]), ValueError()]), Trouble.TIMEOUT),
    ],
)
def test_what_went_wrong_is_one_word(error: BaseException, word: Trouble) -> None:
    assert trouble(error) is word


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in an interpreter of its own."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def test_nobody_loads_the_library_who_has_no_such_cache() -> None:
    done = run("import sys, proxy.runtime.run, proxy.store.cache; sys.exit('redis' in sys.modules)")
    assert done.returncode == 0, done.stderr


def test_without_the_library_the_extra_is_named() -> None:
    code = "import sys; sys.modules['redis'] = None; from proxy.store.cache import RedisCache as R; "
    done = run(code + "R('redis://cache', clock=None)")
    assert "LibraryMissing" in done.stderr
    assert "pip install 'sponson[redis]'" in done.stderr


class TlsFront:
    """TLS in front of a server that speaks none."""

    def __init__(self, target: int, context: ssl.SSLContext) -> None:
        self._target = target
        self._context = context

    async def start(self) -> int:
        """Returns the port."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=self._context)
        return int(self._server.sockets[0].getsockname()[1])

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copy(reader, back))
            group.create_task(self._copy(there, writer))

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(65536):
                target.write(piece)
                await target.drain()
        target.close()

    async def stop(self) -> None:
        """Takes no more connections."""
        self._server.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["localhost", "elsewhere.example"])
async def test_tls_is_verified(name: str, server: RedisServer, tmp_path: Path) -> None:
    await server.start()
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    front = TlsFront(server.port, context)
    url = f"rediss://localhost:{await front.start()}/0"
    cache = RedisCache(url, clock=SystemClock(), authorities=str(tmp_path / "ca.pem"))
    stranger = RedisCache(url, clock=SystemClock())
    cache.reconfigure(None)
    stranger.reconfigure(None)
    if name == "localhost":
        keep(await up(cache), b"name", b"kept")
        await settled(cache)
        assert await found_again(cache, b"name") == b"kept"
    else:
        await until(lambda: Trouble.TLS in cache.statistics().errors)
    await until(lambda: Trouble.TLS in stranger.statistics().errors)
    assert not stranger.statistics().up
    await cache.close()
    await stranger.close()
    await front.stop()
