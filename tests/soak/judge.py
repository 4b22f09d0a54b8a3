"""What must be as it was when nobody asks any more, and what must not rise while everybody does."""

from __future__ import annotations

from collections.abc import Mapping

from tests.soak.agents import Seen
from tests.soak.footprint import Footprint, more_objects
from tests.soak.plan import Plan
from tests.soak.promises import Book, Promise
from tests.soak.slopes import Slope

MORE_MIB = 10.0
"""Python gives whole arenas of a million bytes back only, and one in which a single piece lives stays: what a peak has
taken is kept. The warm-up has had as many calls at once as the run has, but for what chance adds."""
MORE_BLOCKS = 0.05
MORE_COLLECTED = 100
"""What refers to itself when it has ended waits for the collector, which looks at what has lived for long once in many
minutes: memory would rise until then. Calls, reloads and whoever leaves leave it nothing; the spy does, a little."""
MORE_NATIVE = 4.0
MORE_DESCRIPTORS = 2
MORE_TASKS = 2
RISES = {
    "mib": (Promise.MEMORY, 5.0, 0.05),
    "descriptors": (Promise.DESCRIPTORS, 40.0, 1.0),
    "tasks": (Promise.TASKS, 40.0, 1.0),
    "downstream": (Promise.CONNECTIONS, 40.0, 1.0),
    "upstream": (Promise.CONNECTIONS, 40.0, 1.0),
}
"""By how much a line may rise over its part of the run: so many, and so large a part of its mean. Traffic goes up and
down with the shares that reloads set; that nothing is left of it is judged at rest."""
ENOUGH_SAMPLES = 60
"""A line through fewer seconds says nothing."""


def judge_rest(book: Book, before: Footprint, after: Footprint) -> None:
    """Compares what is held at rest: after the warm-up, and at the end."""
    for promise, name, more in (
        (Promise.TASKS, "tasks", MORE_TASKS),
        (Promise.DESCRIPTORS, "descriptors", MORE_DESCRIPTORS),
        (Promise.CONNECTIONS, "downstream", 0),
        (Promise.CONNECTIONS, "upstream", 0),
    ):
        then, now = getattr(before, name), getattr(after, name)
        if now > then + more:
            book.breach(promise, f"{name}: {then} after the warm-up, {now} at the end")
    grown = ", ".join(more_objects(before, after)) or "nothing that is collected"
    if after.blocks > before.blocks * (1 + MORE_BLOCKS):
        book.breach(
            Promise.OBJECTS, f"{before.blocks} blocks of memory, then {after.blocks}; there is more of: {grown}"
        )
    if (collected := after.collected - before.collected) > MORE_COLLECTED:
        book.breach(Promise.FREED, f"{collected} things had to wait for the garbage collector")
    if after.native > before.native + MORE_NATIVE:
        book.breach(Promise.MEMORY, f"{before.native:.1f} MiB in use beside Python's, then {after.native:.1f}")
    if after.mib > before.mib + MORE_MIB:
        book.breach(
            Promise.MEMORY,
            f"{before.mib:.1f} MiB after the warm-up, {after.mib:.1f} MiB at the end; there is more of: {grown}",
        )


def judge_slopes(book: Book, slopes: Mapping[str, Mapping[str, Slope]]) -> None:
    """Looks at the lines of each part of the run."""
    for part, lines in slopes.items():
        for name, line in lines.items():
            promise, more, share = RISES[name]
            if line.samples >= ENOUGH_SAMPLES and line.rise > more + share * line.mean:
                book.breach(promise, f"{part}: {name} rise by {line.rise:.1f} from {line.mean:.1f} on average")


def judge_delay(book: Book, plan: Plan, agents: Seen, direct: Seen) -> None:
    """Compares the wait for the first token at P99 with that of those who ask the provider directly."""
    added = added_ms(agents, direct, 0.99)
    if plan.delay_ms is not None and added > plan.delay_ms:
        book.breach(Promise.DELAY, f"{added:.1f} ms are added at P99, {plan.delay_ms:g} ms promised")


def added_ms(agents: Seen, direct: Seen, part: float) -> float:
    """What the proxy adds to the time to the first token, below which so large a part of the calls stays."""
    return agents.delay(part) - direct.delay(part)
