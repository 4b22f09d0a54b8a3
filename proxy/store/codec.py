"""An answer as bytes: exact, versioned, and checked, so that whatever is not such an entry reads as nothing.

The checksum covers the entry's name: an entry that was copied to another name is none.
"""

from __future__ import annotations

import struct
import zlib

from proxy.exchange import Usage
from proxy.ports import StoredAnswer

VERSION = b"spn1"
HEAD = struct.Struct("<4sI")
"""Version and checksum of all that follows."""
FACTS = struct.Struct("<dqqq?qqq?IIIII")
"""Seconds that it is kept for, status, tier, length; whether there is usage, and its four; the sizes of five parts."""
NO_LENGTH = -1
CODING = ("utf-8", "surrogatepass")
OVERHEAD = HEAD.size + FACTS.size


def encode(name: bytes, answer: StoredAnswer, seconds: float) -> bytes | None:
    """Returns the entry of an answer that is kept for so many seconds; None when its numbers are beyond the format."""
    usage = answer.usage or Usage()
    parts = (
        answer.phrase,
        answer.lines,
        answer.provider.encode(*CODING),
        answer.model.encode(*CODING),
        answer.body,
    )
    try:
        facts = FACTS.pack(
            seconds,
            answer.status,
            answer.tier,
            NO_LENGTH if answer.length is None else answer.length,
            answer.usage is not None,
            usage.input,
            usage.output,
            usage.cached_input,
            usage.estimated,
            *map(len, parts),
        )
    except struct.error:
        return None
    return b"".join((HEAD.pack(VERSION, _checksum(name, facts, parts)), facts, *parts))


def decode(name: bytes, entry: bytes) -> tuple[StoredAnswer, float] | None:
    """Returns the answer and the seconds that it was kept for; None for bytes that are no whole entry of this name."""
    if len(entry) < OVERHEAD:
        return None
    version, checksum = HEAD.unpack_from(entry)
    if version != VERSION or checksum != zlib.crc32(memoryview(entry)[HEAD.size :], zlib.crc32(name)):
        return None
    facts = FACTS.unpack_from(entry, HEAD.size)
    parts = _parts(entry, facts[9:])
    if parts is None:
        return None
    phrase, lines, provider, model, body = parts
    seconds, status, tier, length, used, spent, given, cached, estimated = facts[:9]
    try:
        answer = StoredAnswer(
            status=status,
            phrase=phrase,
            lines=lines,
            body=body,
            length=None if length == NO_LENGTH else length,
            provider=provider.decode(*CODING),
            model=model.decode(*CODING),
            tier=tier,
            usage=Usage(spent, given, cached, estimated=estimated) if used else None,
        )
    except UnicodeDecodeError:
        return None
    return answer, seconds


def _checksum(name: bytes, facts: bytes, parts: tuple[bytes, ...]) -> int:
    checksum = zlib.crc32(facts, zlib.crc32(name))
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


def _parts(entry: bytes, sizes: tuple[int, ...]) -> list[bytes] | None:
    """Returns the parts behind the facts, None when their sizes are not what there is."""
    at, parts = OVERHEAD, []
    for size in sizes:
        parts.append(entry[at : at + size])
        at += size
    return parts if at == len(entry) else None
