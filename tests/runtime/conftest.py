"""What most tests of the runtime begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runtime.desk import Desk, text
from tests.runtime.shop import SECRETS, Shop


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    """Nothing is live yet; the secrets of any policy of these tests are there."""
    shop = Shop(dict(SECRETS))
    yield shop
    await shop.close()


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    """A keeper with a policy of limit 1 live."""
    (tmp_path / "policy.yaml").write_text(text(1))
    desk = Desk(tmp_path / "policy.yaml")
    await desk.keeper.first()
    return desk
