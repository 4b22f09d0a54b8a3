"""The lab that the tests of a module share: a module's `POLICY`, with its `ENV` if it has one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.harness import Lab
from tests.integration.messages import says


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    """One lab for all tests of a module."""
    async with Lab(request.module.POLICY, env=getattr(request.module, "ENV", None)) as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def clean(lab: Lab) -> None:
    """Lets the providers forget what other tests did: each has seen nothing, and answers."""
    for provider in lab.providers.values():
        provider.forget()
        provider.reads_bodies = True
        provider.script = says("hi")
