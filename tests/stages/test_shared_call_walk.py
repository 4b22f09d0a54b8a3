"""Whatever callers of a shared call do, and in whichever order: bytes in their order, one call, nothing left over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.exchange import CancelCause
from proxy.outcome import Outcome, OutcomeKind
from proxy.stages.recording import LARGEST_KEPT
from tests.fakes import settle
from tests.stages.shared import STREAM, Caller, Shared

LARGE = b"L" * LARGEST_KEPT
Step = tuple[str, int]
ENDS = ("answer", "finish", "break")


def some(words: tuple[str, ...], most: int) -> st.SearchStrategy[list[Step]]:
    return st.lists(st.tuples(st.sampled_from(words), st.integers(min_value=0, max_value=5)), max_size=most)


walks = st.tuples(
    some(("come", "leave", "wait"), 4),
    st.one_of(st.just([]), some(("come", "leave", "stall", "resume", "write", "large", "wait"), 20)),
    some(ENDS, 1),
    some(("come", "leave", "resume", "wait"), 4),
).map(lambda parts: [step for part in parts for step in part])


class Walk:
    """One call, its callers, and what was written for them."""

    def __init__(self) -> None:
        self.shared = Shared()
        self.callers: list[Caller] = []
        self.written: list[bytes] = []
        self.ended = ""

    async def take(self, step: Step) -> None:
        """Does something, as far as it can be done now."""
        what, number = step
        call, script = self.shared.call, self.shared.script
        caller = self.callers[number % len(self.callers)] if self.callers else None
        running = call is not None and call.outcome is None and not self.ended
        match what:
            case "come" if call is None or call.joinable:
                self.callers.append(await self.shared.caller(STREAM))
            case "leave" if caller is not None and not caller.task.done():
                caller.task.cancel()
            case "stall" if caller is not None and not caller.task.done():
                caller.reply.paused = True
            case "resume" if caller is not None:
                caller.reply.resume()
            case "wait":
                await self.shared.clock.run(float(number))
            case "write" | "large" if running:
                await self._write(LARGE if what == "large" else b"%d" % number)
            case "finish" | "break" if running:
                self._end(what)
            case "answer" if running and not script.work.reply.started:
                self.ended = what
                self.written.append(b"whole")
                script.answer(b"whole")
        await settle()
        self._check_stalled()
        assert len(script.works) <= 1

    async def _write(self, piece: bytes) -> None:
        """Writes as a transport does: only to a reply that is not paused."""
        reply = self.shared.script.work.reply
        if not reply.started:
            self.shared.script.begin()
        if not reply.paused:
            self.written.append(piece)
            reply.write(piece)

    def _end(self, what: str) -> None:
        self.ended = what
        reply = self.shared.script.work.reply
        if not reply.started:
            self.shared.script.begin()
        if what == "finish":
            self.shared.script.finish()
        else:
            reply.abort()
            self.shared.script.end(Outcome(OutcomeKind.STREAM_BROKEN, committed=True))

    def _check_stalled(self) -> None:
        """A connection that was ended for its reader is lost."""
        for caller in self.callers:
            if caller.exchange.cancel_cause is CancelCause.STALLED and not caller.task.done():
                caller.reply.resume(gone=True)

    async def end(self) -> None:
        """Everybody reads on, and the call comes to its end."""
        for caller in self.callers:
            caller.reply.resume(gone=caller.exchange.cancel_cause is CancelCause.STALLED)
        await settle()
        if self.shared.call is not None and self.shared.call.outcome is None and not self.ended:
            self._end("finish")
        await settle()

    def check(self) -> None:
        """What must be true at the end."""
        whole = b"".join(self.written)
        for caller in self.callers:
            assert caller.task.done(), "somebody waits for ever"
            got = caller.reply.body
            assert got == whole[: len(got)], "bytes were lost, doubled or swapped"
            if not caller.task.cancelled() and caller.task.result().kind is OutcomeKind.OK:
                assert (got, caller.reply.end) == (whole, "finished")
        told = sum(len(caller.exchange.facts.attempts) for caller in self.callers)
        assert told == len(self.shared.script.works), "an attempt is told of once"
        assert self.shared.ledger.held == 0
        assert len(self.shared.ended) == (self.shared.call is not None)
        if self.shared.call is not None:
            assert self.shared.call.recording.readers == []
        assert self.shared.clock.next_due is None


async def walk(todo: Sequence[Step]) -> None:
    taken = Walk()
    await taken.take(("come", 0))
    for step in todo:
        await taken.take(step)
    await taken.end()
    taken.check()


@settings(deadline=None, max_examples=150)
@given(walks)
def test_every_caller_gets_its_bytes_and_nothing_is_left(todo: list[Step]) -> None:
    asyncio.run(walk(todo))
