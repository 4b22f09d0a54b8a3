"""Policies that must never go live: each asks for limits that would be noticed, and is wrong in one way."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.soak.policies import Around, Wanted, text

GREEDY = 50
"""So many times the share: were one of these policies live, the servers would see it."""


def spoiled(wanted: Wanted, around: Around, draw: random.Random) -> bytes:
    """A policy that is no good."""
    more = {name: getattr(wanted, name) * GREEDY for name in ("steady", "model", "moving", "key", "total")}
    good = text(replace(wanted, **more, absent=frozenset()), around)
    ways = (
        b"",
        good.replace('"concurrency": ', '"concurrency": -', 1).encode(),
        good.replace('"retry"', '"rerty"').encode(),
        good.replace('"provider": "steady"', '"provider": "steadfast"').encode(),
        good.replace("version: 1", "version: 2").encode(),
        good.replace('/secrets/good"', '/secrets/none"').encode(),
        good[: draw.randrange(good.index("providers:") + 30, good.index("routes:") - 2)].encode(),
        good.encode() + b"\xff\xfe\n",
        good.encode() + b"routes: []\n",
        good.encode() + b"#" * (2 << 20),
    )
    return draw.choice(ways)
