"""A cache in memory does what every cache does."""

from __future__ import annotations

import asyncio

import pytest

from proxy.decisions.cached import Cached
from tests.store.contract import CHECKS, Check


async def nothing_is_behind() -> None:
    """What is kept in memory is there at once."""
    await asyncio.sleep(0)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_cache_in_memory_does_too(check: Check) -> None:
    await check(Cached(8 * 1024 * 1024), nothing_is_behind, 1000.0)
