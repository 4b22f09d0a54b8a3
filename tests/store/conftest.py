"""A server that a test starts, and a cache in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from proxy.clock import SystemClock
from proxy.store.cache import RedisCache
from tests.store.server import RedisServer, executable


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(executable(), tmp_path)
    yield server
    server.kill()


@pytest.fixture
async def cache(server: RedisServer) -> AsyncIterator[RedisCache]:
    cache = RedisCache(server.url, clock=SystemClock())
    yield cache
    await cache.close()
