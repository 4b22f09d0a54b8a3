"""The image that the Dockerfile's steps make: once, where somebody has asked for it."""

from __future__ import annotations

import pytest

from tests.k8s.image import build, need_asking
from tests.k8s.pod import Image


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image of the Dockerfile's steps."""
    need_asking()
    return build(tmp_path_factory.mktemp("image"))
