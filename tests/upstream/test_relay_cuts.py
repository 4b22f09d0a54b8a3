"""Answers that end at every one of their bytes: a cut is a failure that can be seen, wherever it is, and nothing more.

Each answer is cut after each of its bytes, by FIN and by RST, as the last attempt and as one that could be replaced.
"""

from __future__ import annotations

import asyncio
import gzip

import pytest

from proxy.outcome import OutcomeKind
from tests.fakes import CHAT
from tests.upstream.peer import PeerWire
from tests.upstream.rig import DONE, LAST_CHUNK, ROLE, STREAM, USAGE, WORD, Rig, chunk, rigged

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
FINISH = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'
EVENTS = ROLE + WORD + FINISH + USAGE + DONE
PACKED = gzip.compress(EVENTS, mtime=0)
JSON = b'{"choices":[{"message":{"content":"hi"}}]}'


def chunked(*pieces: bytes, head: bytes = HEAD) -> tuple[bytes, bytes]:
    """Returns an answer's head and the rest."""
    return head + b"transfer-encoding: chunked\r\n\r\n", b"".join(map(chunk, pieces)) + LAST_CHUNK


def measured(body: bytes, head: bytes = HEAD) -> tuple[bytes, bytes]:
    """The same, with a length."""
    return head + b"content-length: %d\r\n\r\n" % len(body), body


ANSWERS = {
    "chunked events": (*chunked(ROLE, WORD, FINISH, USAGE, DONE), EVENTS),
    "measured events": (*measured(EVENTS), EVENTS),
    "packed events": (*chunked(PACKED[:20], PACKED[20:], head=HEAD + b"content-encoding: gzip\r\n"), PACKED),
    "json lines": (*chunked(b'{"a":1}\n', b'{"a":2}\n', head=HEAD.replace(b"text/event-stream", b"application/jsonl")),
                   b'{"a":1}\n{"a":2}\n'),
    "json": (*measured(JSON, HEAD.replace(b"text/event-stream", b"application/json")), JSON),
}  # fmt: skip


class Cutter:
    """A provider that answers each connection with so many bytes of an answer, and ends it."""

    def __init__(self, answer: bytes, *, reset: bool) -> None:
        self._answer = answer
        self._reset = reset
        self.at = 0

    async def __call__(self, wire: PeerWire) -> None:
        await wire.request()
        await wire.send(self._answer[: self.at])
        if self._reset:
            # A reset overtakes what the reader has not read.
            for _ in range(3):
                await asyncio.sleep(0)
            wire.reset()


def check(rig: Rig, sent: bytes, *, ended_itself: bool) -> None:
    """A caller has the beginning of what the provider sent, perhaps an error event, and an end that shows the break."""
    reply = rig.reply
    if not reply.started:
        assert not reply.body
        return
    body, mark, told = reply.body.partition(b'data: {"error"')
    assert sent.startswith(body)
    assert reply.end == "aborted"
    if mark:
        assert reply.open_ended
        assert not ended_itself
        assert not body or body.endswith(b"\n\n")
        assert told.endswith(b"}\n\n")
    assert b"[DONE]" not in told


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "rst"])
@pytest.mark.parametrize("replaceable", [False, True], ids=["last", "replaceable"])
@pytest.mark.parametrize("name", ANSWERS)
async def test_a_cut_is_seen_wherever_it_is(name: str, replaceable: bool, reset: bool) -> None:
    head, rest, sent = ANSWERS[name]
    cutter = Cutter(head + rest, reset=reset)
    async with rigged(cutter) as rig:
        for at in range(1, len(head + rest)):
            cutter.at = at
            ask = CHAT if name == "json" else STREAM
            outcome, attempt = await rig.call(ask, replaceable=replaceable)
            broken = {OutcomeKind.STREAM_BROKEN, OutcomeKind.DISCONNECTED}
            assert outcome.kind in broken, (at, outcome)
            assert outcome.committed == rig.reply.started, at
            assert attempt.answer_bytes <= len(sent)
            assert rig.pool.idle == 0
            check(rig, sent, ended_itself=b"[DONE]" in rig.reply.body)
        cutter.at = len(head + rest)
        outcome, _ = await rig.call(CHAT if name == "json" else STREAM, replaceable=replaceable)
        assert (outcome.kind, rig.reply.body, rig.reply.end) == (OutcomeKind.OK, sent, "finished")
