"""Estimates: how many tokens the calls of one provider's model take, learned from what it reports (`facts.md` §3).

Owns the latest reports of input and output, and what follows from them: a central value, to judge a prompt by, and a
careful one, to reserve by, which is too small for one call in fifteen or so. Both begin with what is usual and never
leave what a text can be, whatever a provider reports; memory is bounded.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass
from itertools import islice

from proxy.decisions.counting import CountSettings, credible
from proxy.dialects.demand import Demand
from proxy.exchange import Attempt
from proxy.outcome import OutcomeKind

BYTES_PER_TOKEN = 4.0
RESERVED_BYTES_PER_TOKEN = 3.0
"""Of a body, until enough is learned: prose has 4 to 6 bytes a token, code and JSON 2 to 3."""
LEAST_BYTES, MOST_BYTES = 1.0, 32.0
"""Beyond these a report is about something else: context that the provider keeps, a prompt that it had cached."""
MEDIA_TOKENS = 1000.0
"""Of an image, recording or file, until learned: pictures take 85 to 1,600."""
MOST_MEDIA_TOKENS = 100_000.0
OUTPUT_TOKENS = 512.0
"""Of an answer whose length the caller left open, until learned."""
UNKNOWN_TOKENS = 1000.0
"""Most that is reserved for a body that is not understood: its bytes are seldom text."""

REMEMBERED = 128
FEWEST = 16
"""Reports before what was learned stands alone."""
PRIOR_TOKENS = 400.0
"""Weight of the usual value until then."""
LOW, HIGH = 0.06, 0.92
"""Quantiles to reserve by: of the bytes a token has, and of the tokens an answer has."""

ANSWER_BYTES, EVENT_BYTES = 4.0, 100.0
"""Per output token: of a whole answer, and of a stream, which wraps each few letters in an event."""
LEAST_ANSWER_BYTES, MOST_ANSWER_BYTES = 0.5, 4000.0
FORGETTING = 0.95
MEDIA_SHARE = 0.1
"""How much of the difference one more report closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatesStatistics:
    """What is known of one model: bytes of a body per input token, and tokens of an answer of open length."""

    reports: int
    bytes_per_token: float
    reserved_bytes_per_token: float
    output_tokens: float
    media_tokens: float


class Estimates:
    """What the calls of one provider's model usually take."""

    __slots__ = ("_bytes_per_token", "_input", "_media", "_output", "_output_tokens", "_reserved_bytes", "_seen")

    def __init__(self) -> None:
        self._input = _Ratios()
        self._output = _Latest()
        self._media = MEDIA_TOKENS
        self._seen = {False: _Decaying(ANSWER_BYTES), True: _Decaying(EVENT_BYTES)}
        self._bytes_per_token = BYTES_PER_TOKEN
        self._reserved_bytes = RESERVED_BYTES_PER_TOKEN
        self._output_tokens = OUTPUT_TOKENS

    def __repr__(self) -> str:
        return f"<Estimates {self._bytes_per_token:.2f} bytes a token, {self._output_tokens:.0f} tokens an answer>"

    def statistics(self) -> EstimatesStatistics:
        """Returns what is known now."""
        return EstimatesStatistics(
            reports=len(self._input),
            bytes_per_token=self._bytes_per_token,
            reserved_bytes_per_token=self._reserved_bytes,
            output_tokens=self._output_tokens,
            media_tokens=self._media,
        )

    def input_tokens(self, demand: Demand) -> float:
        """Returns how many tokens the prompt has: as often more as less."""
        return demand.tokens + demand.media * self._media + demand.text_bytes / self._bytes_per_token

    def output_tokens(self, demand: Demand) -> float:
        """Returns how many tokens the answer has at most, but for one in a dozen; 0 where nothing is generated."""
        usual, limit = self._output_tokens * demand.answers, demand.output_limit
        return usual if limit is None else min(usual, limit)

    def answer_tokens(self, size: int, *, stream: bool) -> float:
        """Returns how many output tokens these bytes of an answer are."""
        return size / self._seen[stream].ratio

    def reserve(self, demand: Demand | None, count: CountSettings, *, size: int = 0) -> float:
        """Returns the tokens to reserve for a call, never fewer than it takes but for one in fifteen or so.

        Its input; and where the provider counts output in advance, all that the caller allows, or what answers of
        open length usually have. Of a body that is not understood (None) only the `size` is known, 0 for a streamed
        one: it reserves little, and is settled by what is reported.
        """
        if demand is None:
            return min(size / self._reserved_bytes, UNKNOWN_TOKENS)
        tokens = demand.tokens + demand.media * self._media + demand.text_bytes / self._reserved_bytes
        if not count.reserve_output:
            return tokens
        limit = demand.output_limit
        return tokens + (self._output_tokens * demand.answers if limit is None else limit)

    def learn(self, demand: Demand | None, attempt: Attempt, *, stream: bool) -> None:
        """Takes the end of an attempt; only whole answers whose usage was reported teach anything."""
        usage = attempt.usage
        if demand is None or usage is None or attempt.kind is not OutcomeKind.OK or not credible(usage):
            return
        self._learn_input(demand, usage.input)
        if usage.output <= 0 or not demand.choices:
            return
        self._seen[stream].add(attempt.answer_bytes, usage.output)
        if demand.max_output is None:
            self._output.add(usage.output / demand.answers)
            if len(self._output) >= FEWEST:
                self._output_tokens = max(self._output.quantile(HIGH), 1.0)

    def _learn_input(self, demand: Demand, tokens: int) -> None:
        if demand.media:
            rest = tokens - demand.tokens - demand.text_bytes / self._bytes_per_token
            each = min(max(rest / demand.media, 0.0), MOST_MEDIA_TOKENS)
            self._media += MEDIA_SHARE * (each - self._media)
        elif LEAST_BYTES <= demand.text_bytes / tokens <= MOST_BYTES:
            ratios = self._input
            ratios.add(demand.text_bytes, tokens)
            self._bytes_per_token = ratios.central()
            low = ratios.low()
            self._reserved_bytes = low if len(ratios) >= FEWEST else min(low, RESERVED_BYTES_PER_TOKEN)


class _Latest:
    """The latest values, and their quantiles."""

    __slots__ = ("_in_order", "_sorted")

    def __init__(self) -> None:
        self._in_order: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, value: float) -> None:
        """Takes a value; the oldest one makes room."""
        if len(self._in_order) == REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self._in_order.popleft())]
        self._in_order.append(value)
        insort(self._sorted, value)

    def quantile(self, part: float) -> float:
        """Returns the value below which this part of the values is."""
        return self._sorted[int(part * len(self._sorted))]


class _Ratios:
    """The latest pairs of bytes and tokens; both averages and quantiles are wanted of their ratio."""

    __slots__ = ("_bytes", "_in_order", "_sorted", "_tokens")

    def __init__(self) -> None:
        self._in_order: deque[tuple[float, int, int]] = deque()
        self._sorted: list[tuple[float, int, int]] = []
        self._bytes = self._tokens = 0

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, size: int, tokens: int) -> None:
        """Takes a pair; the oldest one makes room."""
        if len(self._in_order) == REMEMBERED:
            oldest = self._in_order.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._bytes -= oldest[1]
            self._tokens -= oldest[2]
        pair = (size / tokens, size, tokens)
        self._in_order.append(pair)
        insort(self._sorted, pair)
        self._bytes += size
        self._tokens += tokens

    def central(self) -> float:
        """Returns the average byte count of a token, leaning to the usual one while little is known."""
        prior = PRIOR_TOKENS * max(1 - len(self._sorted) / FEWEST, 0.0)
        return (self._bytes + prior * BYTES_PER_TOKEN) / (self._tokens + prior)

    def low(self) -> float:
        """Returns the ratio below which few calls are, and few tokens.

        Small bodies have more bytes a token than large ones: by calls alone, rare large prompts would never be
        reserved for; by tokens alone, they would speak for everybody.
        """
        rank = int(LOW * len(self._sorted))
        most = LOW * self._tokens
        passed = 0
        for ratio, _, tokens in islice(self._sorted, rank):
            passed += tokens
            if passed > most:
                return ratio
        return self._sorted[rank][0]


class _Decaying:
    """A ratio of two sums that forget."""

    __slots__ = ("_bytes", "_tokens", "ratio")

    def __init__(self, usual: float) -> None:
        self.ratio = usual
        self._tokens = PRIOR_TOKENS
        self._bytes = PRIOR_TOKENS * usual

    def add(self, size: int, tokens: int) -> None:
        """Takes an answer's bytes and tokens; one that cannot be is not believed."""
        if LEAST_ANSWER_BYTES <= size / tokens <= MOST_ANSWER_BYTES:
            self._bytes = self._bytes * FORGETTING + size
            self._tokens = self._tokens * FORGETTING + tokens
            self.ratio = self._bytes / self._tokens
