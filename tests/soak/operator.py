"""Makes one change after the other, waits until the proxy has made up its mind, and looks at what it made of it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from time import monotonic
from typing import Any

from proxy.policy.source import read_policy
from tests.soak.bench import LOOK_SECONDS, PATIENCE_SECONDS, Bench
from tests.soak.changes import after, last
from tests.soak.hands import Way
from tests.soak.policies import Wanted, text
from tests.soak.promises import Promise
from tests.soak.spoiled import spoiled

WAYS = (*Way, *(Way.RENAMED, Way.SWAPPED, Way.IN_PLACE) * 2, Way.TORN)
PACE_SECONDS = 1.0
"""So long after a reload nothing is looked at: what is torn then can do no harm."""
TORN_FOR_SECONDS = (0.15, 0.25)
SPOILED_EVERY, SPOILED_AT = 10, 3
ROTATED_EVERY, ROTATED_AT = 15, 5
BURST = 5
HANG_UPS = 0.2


class Operator:
    """Changes the policy again and again; `waits` are the seconds from the last byte to being live."""

    def __init__(self, bench: Bench, draw: random.Random) -> None:
        self._bench = bench
        self._book = bench.book
        self._draw = draw
        self._revision = 1
        self._hash = ""
        self._used = self._good = 0
        self.made: Counter[str] = Counter()
        self.waits: list[float] = []

    async def begin(self) -> None:
        """Takes note of the policy that is live."""
        shown = await self._bench.policy()
        self._revision, self._hash = shown["revision"], shown["hash"]

    async def change(self, number: int) -> None:
        """Makes change number `number`: most are good, one in ten is not, one in fifteen is another secret."""
        if number % SPOILED_EVERY == SPOILED_AT:
            await self._spoil()
        elif number % ROTATED_EVERY == ROTATED_AT:
            await self._rotate()
        else:
            await self._improve(WAYS[self._good % len(WAYS)])
            self._good += 1
        await self.inspect()

    async def improve(self) -> None:
        """Puts another good policy in place."""
        await self._improve(Way.RENAMED)

    async def end(self) -> None:
        """Puts the last policy in place, in which everything is there."""
        wanted = last(self._bench.wanted, self._bench.size)
        self._bench.hands.rename(self._expected(wanted))
        await self._live(wanted, least=1, most=1)
        await self.inspect()

    async def inspect(self) -> None:
        """Looks at what no reload may touch."""
        status = await self._bench.proxy.status()
        for row in status["breakers"]:
            if row["provider"] == "broken" and row["model"] == "broken" and row["state"] != "open":
                self._book.breach(Promise.BREAKER, f"it is {row['state']} after revision {self._revision}")
        for row in status["keys"]:
            key = row["id"].removesuffix("-b")
            must = "parked" if key == "parked" else "resting"
            if key not in ("good", "other") and row["state"] != must:
                self._book.breach(Promise.KEYS, f"{row['id']} is {row['state']} after revision {self._revision}")
        used = sum(row["dials"] + row["reuses"] for row in status["connections"] if row["provider"] == "steady")
        if used < self._used:
            self._book.breach(Promise.POOLS, f"the pool began anew at revision {self._revision}")
        self._used = used

    def _expected(self, wanted: Wanted) -> bytes:
        self._book.expect(wanted.limits())
        return text(wanted, self._bench.around).encode()

    async def _improve(self, way: Way) -> None:
        wanted = after(self._bench.wanted, self._bench.size, self._draw)
        if way is Way.BURST:
            await self._burst(wanted)
            return
        content, most = self._expected(wanted), 1
        hands = self._bench.hands
        if way is Way.TORN:
            most = await self._tear(content)
        elif way is Way.GONE:
            hands.vanish()
            await asyncio.sleep(self._draw.uniform(0.0, 1.0))
            hands.rename(content)
        else:
            {Way.RENAMED: hands.rename, Way.IN_PLACE: hands.write, Way.SWAPPED: hands.swap}[way](content)
        self.made[way] += 1
        self._perhaps_hang_up()
        await self._live(wanted, least=1, most=most)

    async def _tear(self, content: bytes) -> int:
        """Writes in two parts; returns how many revisions that may be: a half that stands too long may count."""
        ends = [content.index(b"routes:"), content.index(b"telemetry:"), self._draw.randrange(len(content))]
        await asyncio.sleep(PACE_SECONDS)
        quick = await self._bench.hands.tear(
            content,
            ends[self.made[Way.TORN] % len(ends)],
            self._draw.uniform(*TORN_FOR_SECONDS),
            self._perhaps_hang_up,
        )
        self.made["halves that stood too long to be judged"] += not quick
        return 1 if quick else 2

    async def _burst(self, wanted: Wanted) -> None:
        self.made[Way.BURST] += 1
        for number in range(BURST):
            if number:
                wanted = after(wanted, self._bench.size, self._draw)
            self._bench.hands.swap(self._expected(wanted))
            self._perhaps_hang_up()
            await asyncio.sleep(self._draw.uniform(0.0, 0.05))
        await self._live(wanted, least=1, most=BURST)

    async def _rotate(self) -> None:
        """Another secret of a key that works is a revision of the same policy."""
        self.made["another secret"] += 1
        here = self._bench.wanted
        wanted = replace(here, number=here.number + 1, absent=here.absent - {"keyed"})
        self._bench.hands.rename(self._expected(wanted))
        await self._live(wanted, least=1, most=1)
        file = self._bench.around.secrets / "good"
        new = file.with_suffix(".new")
        new.write_text(f"good-{wanted.number}\n")
        new.replace(file)
        shown = await self._bench.until(
            lambda shown: shown["revision"] > self._revision, Promise.LIVE, "another secret"
        )
        self._judge(shown, least=1, most=1)

    async def _spoil(self) -> None:
        self.made["invalid"] += 1
        wanted = replace(self._bench.wanted, number=self._bench.wanted.number + 1)
        content = spoiled(wanted, self._bench.around, self._draw)
        hands = self._bench.hands
        self._draw.choice([hands.rename, hands.swap, hands.write])(content)
        self._perhaps_hang_up()
        digest = read_policy(hands.place).digest
        shown = await self._bench.until(
            lambda shown: shown["hash_seen"] == digest and shown["problems"], Promise.WHOLE, "an invalid policy"
        )
        self._judge(shown, least=0, most=0)

    def _perhaps_hang_up(self) -> None:
        if self._draw.random() < HANG_UPS:
            self.made["hang-ups"] += 1
            self._bench.hang_up()

    async def _live(self, wanted: Wanted, *, least: int, most: int) -> None:
        """Waits until what is written is live, and judges the revisions that it took."""
        digest = read_policy(self._bench.hands.place).digest
        until = monotonic() + PATIENCE_SECONDS
        while (shown := await self._bench.policy())["hash"] != digest:
            if shown["hash"] != self._hash and most == 1:
                self._book.breach(Promise.WHOLE, f"neither the old nor the new policy is live: {shown}")
            if monotonic() > until:
                self._book.breach(Promise.LIVE, f"policy {wanted.number} never came: {shown}")
                return
            await asyncio.sleep(LOOK_SECONDS)
        self.waits.append(monotonic() - self._bench.hands.written_at)
        self._bench.wanted, self._hash = wanted, digest
        self._book.live(wanted.limits())
        self._judge(shown, least=least, most=most)

    def _judge(self, shown: Any, *, least: int, most: int) -> None:
        came = shown["revision"] - self._revision
        if not least <= came <= most:
            self._book.breach(Promise.REVISIONS, f"{came} revisions for one policy, {least} to {most} expected")
        self._revision = shown["revision"]
