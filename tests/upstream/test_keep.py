from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from multidict import CIMultiDict

from proxy.body import Body, BodyBroken
from proxy.outcome import Outcome, OutcomeKind
from proxy.upstream.answer import AnswerHead
from proxy.upstream.keep import KEPT_BYTES, hint, judge, read_bounded

WALL_SECONDS = 1_790_000_000.0
USED_UP = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}


class FakePayload:
    """A body in pieces; an exception among them is raised, and None never comes."""

    def __init__(self, *pieces: bytes | Exception | None) -> None:
        self._pieces = list(pieces)

    def at_eof(self) -> bool:
        return not self._pieces

    async def readany(self) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else b""
        if piece is None:
            await asyncio.Event().wait()
        if isinstance(piece, Exception):
            raise piece
        return piece or b""


async def read(*pieces: bytes | Exception | None) -> tuple[bytes, bool]:
    return await read_bounded(cast(Body, FakePayload(*pieces)))


async def test_a_small_body_is_read_whole() -> None:
    assert await read(b'{"error":', b"{}}") == (b'{"error":{}}', True)
    assert await read() == (b"", True)


async def test_a_large_body_is_read_in_part() -> None:
    body, whole = await read(*[bytes(10_000)] * 20)
    assert (len(body), whole) == (70_000, False)
    assert len(body) > KEPT_BYTES


@pytest.mark.parametrize("error", [BodyBroken("cut")])
async def test_a_body_that_is_cut_is_not_whole(error: Exception) -> None:
    assert await read(b"part", error) == (b"part", False)


async def test_a_body_that_does_not_come_to_its_end_is_not_waited_for() -> None:
    async with asyncio.timeout(10.0):
        assert await read(b"part", None) == (b"part", False)


def judged(status: int, body: bytes = b"", fields: dict[str, str] | None = None) -> Outcome:
    message = SimpleNamespace(code=status, headers=CIMultiDict(fields or {}))
    return judge(cast(AnswerHead, message), body, wall_seconds=WALL_SECONDS)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (429, OutcomeKind.RATE_LIMITED),
        (401, OutcomeKind.CREDENTIAL_REJECTED),
        (402, OutcomeKind.CREDENTIAL_REJECTED),
        (403, OutcomeKind.CREDENTIAL_REJECTED),
        (408, OutcomeKind.UPSTREAM_ERROR),
        (500, OutcomeKind.UPSTREAM_ERROR),
        (503, OutcomeKind.UPSTREAM_ERROR),
        (529, OutcomeKind.UPSTREAM_ERROR),
        (409, OutcomeKind.CALLER_ERROR),
    ],
)
def test_the_status_gives_the_kind(status: int, kind: OutcomeKind) -> None:
    outcome = judged(status)
    assert (outcome.kind, outcome.status, outcome.committed) == (kind, status, False)


@pytest.mark.parametrize(
    ("fields", "body", "seconds"),
    [
        ({"retry-after": "7"}, b"", 7.0),
        ({"retry-after": "30", "retry-after-ms": "250"}, b"", 0.25),
        ({}, b'{"error":{"details":[{"retryDelay":"13s"}]}}', 13.0),
        ({"retry-after": "5"}, b'{"error":{"details":[{"retryDelay":"13s"}]}}', 5.0),
        ({**USED_UP}, b'{"error":{"details":[{"retryDelay":"13s"}]}}', 13.0),
        ({**USED_UP}, b"", 360.0),
        ({"retry-after": "junk"}, b"not json", None),
        ({}, b"", None),
    ],
)
def test_when_to_come_again_is_read_from_head_and_body(
    fields: dict[str, str], body: bytes, seconds: float | None
) -> None:
    assert judged(429, body, fields).retry_after == seconds


@pytest.mark.parametrize(("status", "seconds"), [(429, 360.0), (503, None), (529, None), (401, None)])
def test_a_limit_that_is_used_up_is_a_wait_only_where_it_is_why_the_call_was_refused(
    status: int, seconds: float | None
) -> None:
    assert judged(status, b"", USED_UP).retry_after == seconds


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (401, b"", True),
        (402, b"", True),
        (403, b"", False),
        (403, b'{"error":{"type":"permission_error"}}', True),
        (403, b'{"error":{"type":"content_policy"}}', False),
        (429, b"", False),
        (429, b'{"error":{"code":"rate_limit_exceeded"}}', False),
        (429, b'{"error":{"code":"insufficient_quota"}}', True),
        (500, b'{"error":{"type":"authentication_error"}}', False),
    ],
)
def test_whose_fault_it_is(status: int, body: bytes, fault: bool) -> None:
    assert judged(status, body).key_fault is fault


@pytest.mark.parametrize(
    ("value", "said"), [("true", True), (" FALSE ", False), ("yes", None), ("", None), (None, None)]
)
def test_the_provider_s_own_word_on_retrying(value: str | None, said: bool | None) -> None:
    fields = {} if value is None else {"x-should-retry": value}
    assert judged(500, b"", fields).should_retry is said
    assert hint(fields) is said
