"""Whatever happens to those who travel together, in any order: each is answered once, with exactly its own part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.outcome import Outcome, OutcomeKind, Reason, refused
from tests.fakes import settle
from tests.stages.merging_world import WINDOW, Asked, Caller, Merging

POISON = "poison"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["comes", "comes", "comes", "list", "poison", "hurried", "other", "leaves", "passes", "begins"])
        | st.sampled_from(["answers", "answers", "rejects", "breaks", "refuses", "garbles", "later", "reloads"]),
        st.integers(0, 7),
    ),
    max_size=40,
)


class Walk:
    """The steps; `number` chooses among those whom a step may concern."""

    def __init__(self) -> None:
        self.world = Merging(most=4)
        self.stage = self.world.stage
        self.callers: list[Caller] = []
        self.left: set[Caller] = set()
        self.count = 0

    async def step(self, name: str, number: int) -> None:
        """Makes a step, and looks at what is so."""
        await getattr(self, name)(number)
        for asked in self.world.asked:
            assert len(asked.inputs) <= 4
        for caller in self.callers:
            self.check(caller)

    def check(self, caller: Caller) -> None:
        """Whoever was answered has its own; nobody who waits without a reason waits longer than a window."""
        if caller.done and not caller.task.cancelled() and caller.outcome.kind is OutcomeKind.OK:
            value = caller.value
            assert caller.texts == (value if isinstance(value, list) else [value])

    async def ask(self, value: Any, **rest: Any) -> None:
        self.callers.append(await self.world.caller(value, stage=self.stage, **rest))

    def new(self) -> str:
        self.count += 1
        return f"text {self.count}"

    async def comes(self, number: int) -> None:
        await self.ask(self.new())

    async def list(self, number: int) -> None:
        await self.ask([self.new() for _ in range(1 + number % 4)])

    async def poison(self, number: int) -> None:
        await self.ask(f"{POISON} {self.new()}")

    async def hurried(self, number: int) -> None:
        await self.ask(self.new(), deadline=WINDOW * (1 + number))

    async def other(self, number: int) -> None:
        await self.ask(self.new(), user="another")

    async def leaves(self, number: int) -> None:
        there = [caller for caller in self.callers if not caller.done]
        if there:
            caller = there[number % len(there)]
            self.left.add(caller)
            await caller.leaves()

    async def passes(self, number: int) -> None:
        await self.world.passes(WINDOW * number / 4)

    async def later(self, number: int) -> None:
        await self.world.passes(1.0)

    async def reloads(self, number: int) -> None:
        self.stage = self.world.new_stage()

    def under_way(self, number: int) -> Asked | None:
        there = [asked for asked in self.world.asked if not asked.end.done() and not asked.cancelled]
        return there[number % len(there)] if there else None

    async def begins(self, number: int) -> None:
        if (asked := self.under_way(number)) is not None and not asked.exchange.facts.attempts:
            asked.begins()
            await settle()

    async def ends(self, number: int, end: Callable[[Asked], None]) -> None:
        if (asked := self.under_way(number)) is not None:
            end(asked)
            await settle()

    async def answers(self, number: int) -> None:
        def end(asked: Asked) -> None:
            if any(POISON in text for text in asked.inputs):
                asked.fails(400)
            else:
                asked.answers()

        await self.ends(number, end)

    async def rejects(self, number: int) -> None:
        await self.ends(number, lambda asked: asked.fails(503, OutcomeKind.UPSTREAM_ERROR))

    async def breaks(self, number: int) -> None:
        await self.ends(number, lambda asked: asked.end.set_result(Outcome(OutcomeKind.DISCONNECTED)))

    async def refuses(self, number: int) -> None:
        await self.ends(number, lambda asked: asked.end.set_result(refused(Reason.QUEUE_FULL, retry_after=1.0)))

    async def garbles(self, number: int) -> None:
        def end(asked: Asked) -> None:
            if all(caller.exchange is not asked.exchange for caller in self.callers):
                asked.gives(b"{}")
            else:
                asked.answers()

        await self.ends(number, end)

    async def over(self) -> None:
        """Lets everything come to its end."""
        for _ in range(len(self.callers) * 3 + 3):
            await self.world.passes(WINDOW)
            await self.answers(0)
        for caller in self.callers:
            assert caller.done
            assert caller.task.cancelled() is (caller in self.left)
        assert self.world.idle


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def walk(steps: list[tuple[str, int]]) -> None:
    walking = Walk()
    for name, number in steps:
        await walking.step(name, number)
    await walking.over()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_everybody_is_answered_once_with_exactly_its_own(steps: list[tuple[str, int]]) -> None:
    run(walk(steps))
