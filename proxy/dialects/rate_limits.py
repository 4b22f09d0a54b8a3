"""Owns what the heads of answers say of rate limits: how much there is, how much is left, and when it is full again.

Which lines of a head speak of it follows from their names alone (`rate_plan`), so that an answer costs no more than the
reading of a few numbers, and one that says nothing costs a look-up. Understood are

    x-ratelimit-{limit,remaining,reset}-{requests,tokens}   OpenAI, Azure, Groq, Cerebras, Fireworks; project and other
                                                            variants by their prefix
    x-ratelimit-{limit,remaining}-{req,tokens}-minute       Mistral; {x-,}ratelimitbysize-*, its older form, is tokens
    anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}
    {x-,}ratelimit-{limit,remaining,reset}                  OpenRouter, gateways, older drafts of the IETF: requests
    ratelimit, ratelimit-policy                             the drafts since
    x-trial-endpoint-call-{limit,remaining}                 Cohere's trial keys

What is no count says nothing: it is never zero. A limit of 0 or below is Azure's word for "unknown"; nothing being left
counts only beside a real limit. What remains is a ceiling on what may be sent; a reset is the time until all of it is
there again, and no wait (`retry_after` owns those).
"""

from __future__ import annotations

import re
from typing import Final

from proxy.dialects.retry_after import EARLIEST_UNIX_SECONDS, LONGEST_SECONDS, reset_moment
from proxy.fields import Shape

LONGEST_NUMBER: Final = 16
LARGEST: Final = 1 << 53
LONGEST_TEXT: Final = 256
MOST_RESETS: Final = 256
"""Resets that a plan remembers: they are moments for all answers alike, or short and few."""
LONGEST_RESET: Final = 32

_VERBS: Final = ("limit", "remaining", "reset")
_NAME: Final = re.compile(
    r"(?P<family>(?:x-|anthropic-)?ratelimit(?:bysize)?|x-trial-endpoint-call)-"
    r"(?:(?P<verb>limit|remaining|reset)(?:-(?P<what>.+))?|(?P<what_first>.+)-(?P<verb_last>limit|remaining|reset))"
)
_REQUESTS: Final = re.compile(r"req|^$|^(?:second|minute|hour|day|month)$")
_INPUT: Final = re.compile(r"input|prompt")
_OUTPUT: Final = re.compile(r"output|generated|completion")
_DRAFT: Final = "ratelimit"
_DRAFT_POLICY: Final = "ratelimit-policy"


class RateLimits:
    """What one head said. None for what it did not say.

    Of several limits on requests or on tokens the one counts of which least remains. `reset` is in seconds from now.
    `part` (0-1) is the smallest part that is left of any limit, of input or output tokens too; it is whole again after
    `part_reset` seconds.
    """

    __slots__ = (
        "part", "part_reset", "requests_limit", "requests_remaining", "requests_reset", "tokens_limit",
        "tokens_remaining", "tokens_reset",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests_limit: int | None = None
        self.requests_remaining: int | None = None
        self.requests_reset: float | None = None
        self.tokens_limit: int | None = None
        self.tokens_remaining: int | None = None
        self.tokens_reset: float | None = None
        self.part: float | None = None
        self.part_reset: float | None = None

    def __repr__(self) -> str:
        requests = f"{self.requests_remaining}/{self.requests_limit} requests"
        return f"<RateLimits {requests}, {self.tokens_remaining}/{self.tokens_limit} tokens, part {self.part}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RateLimits):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    @property
    def silent(self) -> bool:
        """Whether it says of no limit how large it is or how much of it remains."""
        return (
            self.requests_remaining is None
            and self.tokens_remaining is None
            and self.requests_limit is None
            and self.tokens_limit is None
        )

    def on_requests(self, limit: int | None, remaining: int | None, reset: float | None) -> None:
        """Notes one limit on requests."""
        before = self.requests_remaining
        if before is None or (remaining is not None and remaining < before):
            self.requests_limit, self.requests_remaining, self.requests_reset = limit, remaining, reset
        self.left_of(limit, remaining, reset)

    def on_tokens(self, limit: int | None, remaining: int | None, reset: float | None) -> None:
        """Notes one limit on tokens of all kinds together."""
        before = self.tokens_remaining
        if before is None or (remaining is not None and remaining < before):
            self.tokens_limit, self.tokens_remaining, self.tokens_reset = limit, remaining, reset
        self.left_of(limit, remaining, reset)

    def left_of(self, limit: int | None, remaining: int | None, reset: float | None) -> None:
        """Notes what is left as a part; without a limit nobody knows of what."""
        if limit is None or remaining is None:
            return
        part = remaining / limit if remaining < limit else 1.0
        if self.part is None or part < self.part:
            self.part, self.part_reset = part, reset


class RatePlan:
    """Where heads of one shape speak of rate limits."""

    __slots__ = ("_draft", "_draft_policy", "_input", "_output", "_requests", "_resets", "_tokens")

    def __init__(self, axes: dict[tuple[str, str], list[int]], draft: int, draft_policy: int) -> None:
        kinds: dict[str, list[_Axis]] = {"requests": [], "tokens": [], "input": [], "output": []}
        for (_, what), (limit, remaining, reset) in axes.items():
            kinds[what.partition(" ")[0]].append((limit, remaining, reset))
        self._requests = tuple(kinds["requests"])
        self._tokens = tuple(kinds["tokens"])
        self._input = tuple(kinds["input"])
        self._output = tuple(kinds["output"])
        self._draft = draft
        self._draft_policy = draft_policy
        self._resets: dict[bytes, float] = {}

    def read(self, lines: list[bytes], wall_seconds: float) -> RateLimits | None:
        """Reads the values of such a head; `wall_seconds` is the unix time now. None when they say nothing."""
        rates = RateLimits()
        for axis in self._requests:
            rates.on_requests(*self._values(axis, lines, wall_seconds))
        for axis in self._tokens:
            rates.on_tokens(*self._values(axis, lines, wall_seconds))
        if self._input or self._output:
            self._read_halves(rates, lines, wall_seconds)
        if self._draft >= 0:
            self._read_draft(rates, lines)
        return None if rates.part is None and rates.silent else rates

    def _read_halves(self, rates: RateLimits, lines: list[bytes], wall_seconds: float) -> None:
        """Reads limits on input and on output: together they bound the whole, and a call needs some of both."""
        halves = []
        for axes in (self._input, self._output):
            half = RateLimits()
            for axis in axes:
                half.on_tokens(*self._values(axis, lines, wall_seconds))
            rates.left_of(half.tokens_limit, half.tokens_remaining, half.tokens_reset)
            halves.append(half)
        for half in halves:
            if half.tokens_remaining == 0:
                rates.tokens_limit, rates.tokens_remaining = half.tokens_limit, 0
                rates.tokens_reset = half.tokens_reset
        given, made = halves
        if rates.tokens_remaining is None and given.tokens_remaining is not None and made.tokens_remaining is not None:
            rates.tokens_remaining = given.tokens_remaining + made.tokens_remaining
            if given.tokens_limit is not None and made.tokens_limit is not None:
                rates.tokens_limit = given.tokens_limit + made.tokens_limit
            rates.tokens_reset = max(given.tokens_reset or 0.0, made.tokens_reset or 0.0) or None

    def _values(
        self, axis: _Axis, lines: list[bytes], wall_seconds: float
    ) -> tuple[int | None, int | None, float | None]:
        """Reads limit, remaining and seconds until the reset, which nobody needs where all of it is left."""
        at_limit, at_remaining, at_reset = axis
        limit = (_count(lines[at_limit]) or None) if at_limit >= 0 else None
        remaining = _count(lines[at_remaining]) if at_remaining >= 0 else None
        if limit is None:
            remaining = remaining or None
        if at_reset < 0 or remaining is None or (limit is not None and remaining >= limit):
            return limit, remaining, None
        text = lines[at_reset]
        known = self._resets.get(text)
        if known is None:
            known = self._new_reset(text)
        seconds = known if known < EARLIEST_UNIX_SECONDS else known - wall_seconds
        return limit, remaining, _span(seconds)

    def _new_reset(self, value: bytes) -> float:
        """Reads a reset as seconds or, where that is told, as unix time; 0 for none, Azure's word for "unknown" too."""
        seconds = reset_moment(value.decode("latin-1").strip(" \t")) if len(value) <= LONGEST_TEXT else None
        if len(self._resets) >= MOST_RESETS:
            self._resets.clear()
        if len(value) <= LONGEST_RESET:
            self._resets[value] = seconds or 0.0
        return seconds or 0.0

    def _read_draft(self, rates: RateLimits, lines: list[bytes]) -> None:
        policies = dict(_draft_items(lines[self._draft_policy])) if self._draft_policy >= 0 else {}
        for name, said in _draft_items(lines[self._draft]):
            policy = policies.get(name, {})
            if policy.get("qu", b"requests") != b"requests":
                continue
            limit = _count(said.get("limit") or policy.get("q", b"")) or None
            remaining = _count(said.get("r") or said.get("remaining", b""))
            rates.on_requests(limit, remaining, _span(_count(said.get("t") or said.get("reset", b""))))


_Axis = tuple[int, int, int]
"""Where limit, remaining and reset stand; -1 for nowhere."""


def rate_plan(shape: Shape) -> RatePlan | None:
    """Returns where a head of this shape speaks of rate limits; None where it does not. To be kept for each shape.

    What stands there twice says two things, and is read as nothing.
    """
    axes: dict[tuple[str, str], list[int]] = {}
    for name, index in shape.first.items():
        if "ratelimit" not in name and "endpoint-call" not in name:
            continue
        found = _NAME.fullmatch(name)
        if found is None or name in shape.repeated:
            continue
        family, what = found["family"], found["what"] or found["what_first"] or ""
        kind = _kind(family, what)
        if kind is not None:
            verb = found["verb"] or found["verb_last"]
            axes.setdefault((family, f"{kind} {what}"), [-1, -1, -1])[_VERBS.index(verb)] = index
    told = {key: axis for key, axis in axes.items() if axis[0] >= 0 or axis[1] >= 0}
    draft = shape.first.get(_DRAFT, -1) if _DRAFT not in shape.repeated else -1
    if not told and draft < 0:
        return None
    policy = shape.first.get(_DRAFT_POLICY, -1) if _DRAFT_POLICY not in shape.repeated else -1
    return RatePlan(told, draft, policy)


def _kind(family: str, what: str) -> str | None:
    if "token" in what:
        if _INPUT.search(what):
            return "input"
        return "output" if _OUTPUT.search(what) else "tokens"
    if family.endswith("bysize"):
        return "tokens"
    return "requests" if _REQUESTS.search(what) else None


def _count(value: bytes) -> int | None:
    """Reads a count, also a decimal one and the first one of a list of policies; None for what is none."""
    if not value.isdigit() or len(value) > LONGEST_NUMBER:
        first = value[:LONGEST_TEXT].partition(b",")[0].partition(b";")[0]
        value, _, decimals = first.strip(b" \t").partition(b".")
        if not value.isdigit() or len(value) > LONGEST_NUMBER or (decimals and not decimals.isdigit()):
            return None
    count = int(value)
    return count if count < LARGEST else None


def _span(seconds: float | None) -> float | None:
    """Returns a time to wait for; 0 and less is Azure's word for "unknown", or over."""
    return min(seconds, LONGEST_SECONDS) if seconds is not None and seconds > 0 else None


def _draft_items(value: bytes) -> list[tuple[bytes, dict[str, bytes]]]:
    """Reads `"name";r=5;t=30, …` as names with what is said of them; `limit=9, remaining=5, reset=30` has no name."""
    if len(value) > LONGEST_TEXT:
        return []
    if b";" not in value:
        return [(b"", _parameters(value.split(b",")))]
    items = (item.split(b";") for item in value.split(b","))
    return [(name.strip(b' \t"'), _parameters(rest)) for name, *rest in items]


def _parameters(parts: list[bytes]) -> dict[str, bytes]:
    pairs = (part.partition(b"=") for part in parts)
    return {name.strip(b" \t").decode("latin-1"): value.strip(b' \t"') for name, _, value in pairs}
