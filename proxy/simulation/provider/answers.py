"""What a simulated model says: a function of the request and of the random numbers it is given."""

from __future__ import annotations

import base64
import hashlib
import math
import random
import struct
from dataclasses import dataclass

_TEXT = (
    "the a wind river stone light slow bright turns holds carries under over between and then while "
    "small quiet water morning city road hand word answer number keeps opens falls rises near far"
)
_WORDS = tuple(_TEXT.split())
_RARELY_HIGH = 16
"""To this power, one of 24 even numbers lies above a half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One text for each choice, cut into tokens; `complete` is False when max_tokens ended them."""

    id: str
    model: str
    created: int
    texts: tuple[tuple[str, ...], ...]
    complete: bool
    input_tokens: int

    @property
    def output_tokens(self) -> int:
        """The tokens of all choices together."""
        return sum(map(len, self.texts))


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event as bytes; `content` ones carry a token and are paced."""

    data: bytes
    content: bool = False


def words(count: int, rng: random.Random) -> tuple[str, ...]:
    """Returns `count` invented words, a space before each but the first: one word is one token."""
    chosen = [_WORDS[int(rng.random() * len(_WORDS))] for _ in range(count)]
    return tuple(word if index == 0 else f" {word}" for index, word in enumerate(chosen))


def echo(text: str) -> tuple[str, ...]:
    """Returns the text cut at its spaces, so that the pieces joined are the text."""
    head, *rest = text.split(" ")
    return (head, *(f" {word}" for word in rest))


def embedding(text: str, *, model: str, dimensions: int) -> tuple[float, ...]:
    """Returns a unit vector that depends on model, text and dimensions alone, in single precision."""
    raw = hashlib.shake_128(f"{model}\0{text}".encode()).digest(4 * dimensions)
    values = struct.unpack(f"<{dimensions}i", raw)
    length = math.sqrt(sum(value * value for value in values)) or 1.0
    packed = struct.pack(f"<{dimensions}f", *(value / length for value in values))
    return struct.unpack(f"<{dimensions}f", packed)


def scores(text: str, *, model: str, count: int) -> tuple[float, ...]:
    """Returns so many numbers from 0 to 1, few of them high, that depend on model and text alone."""
    raw = hashlib.shake_128(f"{model}\0{text}".encode()).digest(4 * count)
    return tuple((value / 2**32) ** _RARELY_HIGH for value in struct.unpack(f"<{count}I", raw))


def embedding_base64(vector: tuple[float, ...]) -> str:
    """Returns the vector as base64 of little-endian single-precision numbers."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
