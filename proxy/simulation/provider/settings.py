"""What one simulated provider is like. The flags of `sponson sim` map to these fields one to one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from proxy.simulation.provider.allowance import MINUTE, Refill
from proxy.simulation.provider.faults import Fault
from proxy.simulation.provider.latency import Latency
from proxy.simulation.provider.limits import LimitSettings, Rates, TokenRule

_RATES = ("rpm", "tpm", "key_rpm", "key_tpm")


class SettingsError(ValueError):
    """A setting outside of its range; the message names it."""


class AnswerStyle(StrEnum):
    """What a chat or completion answer says: invented words, or the caller's last text again."""

    WORDS = "words"
    ECHO = "echo"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorSettings:
    """One provider. Durations are seconds; `None` means without limit; port 0 takes a free one.

    `tokens_per_second` paces streams (0 sends at once); `thinking` passes between their head and their first token, and
    a heartbeat is sent wherever one is silent for `heartbeat_seconds` (0: never). `queue` counts requests that may wait
    for one of the `concurrency` places; `api_keys` empty accepts every caller. `rpm` and `tpm` limit the whole account,
    `key_rpm` and `key_tpm` each key, and a window of `window_seconds` holds what can be used at once. A request whose
    key in `idempotency_header` was executed gets that answer again with `deduplicate`.

    Each further input of a call adds `input_cost` of the latency; more than `max_inputs`, or one that holds the text
    `poison`, fail the whole call; `shuffle` gives numbered results in any order. Raises SettingsError.
    """

    name: str = "sim"
    host: str = "127.0.0.1"
    port: int = 0
    latency: Latency = Latency()
    thinking: Latency = Latency()
    heartbeat_seconds: float = 0.0
    tokens_per_second: float = 0.0
    output_tokens: int = 16
    answer: AnswerStyle = AnswerStyle.WORDS
    concurrency: int | None = None
    queue: int | None = None
    queue_full_status: int = 503
    api_keys: tuple[str, ...] = ()
    rpm: float | None = None
    tpm: float | None = None
    key_rpm: float | None = None
    key_tpm: float | None = None
    count_tokens: TokenRule = TokenRule.ARRIVAL
    refill: Refill = Refill.CONTINUOUS
    window_seconds: float = MINUTE
    idempotency_header: str = "idempotency-key"
    deduplicate: bool = False
    conflict_status: int = 409
    models: tuple[str, ...] = ("sim-chat", "sim-embed")
    embedding_dimensions: int = 64
    input_cost: float = 0.0
    max_inputs: int = 2048
    poison: str | None = None
    shuffle: bool = False
    keepalive_seconds: float = 75.0
    seed: int = 0
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        checks = (
            (bool(self.name) and "/" not in self.name, "name must be a word without a slash"),
            (0 <= self.port <= 65535, "port must lie between 0 and 65535"),
            (0 <= self.heartbeat_seconds < math.inf, "heartbeat_seconds must not be negative"),
            (self.tokens_per_second >= 0, "tokens_per_second must not be negative"),
            (1 <= self.output_tokens <= 1_000_000, "output_tokens must lie between 1 and 1000000"),
            (self.concurrency is None or self.concurrency >= 1, "concurrency must be at least 1"),
            (self.queue is None or self.queue >= 0, "queue must not be negative"),
            (
                self.queue is None or self.concurrency is not None,
                "queue needs concurrency: nothing waits without it",
            ),
            (self.queue_full_status in (429, 503), "queue_full_status must be 503 or 429"),
            (all(self.api_keys), "api_keys must not be empty texts"),
            *((_positive(getattr(self, name)), f"{name} must be above 0 and finite") for name in _RATES),
            (0 < self.window_seconds <= 86400, "window_seconds must lie above 0 and at most a day"),
            (self._windows_hold_one(), "window_seconds is too short: less than one fits into a window"),
            (bool(self.idempotency_header.strip()), "idempotency_header must be the name of a header"),
            (self.conflict_status in (409, 422), "conflict_status must be 409 or 422"),
            (1 <= self.embedding_dimensions <= 65536, "embedding_dimensions must lie between 1 and 65536"),
            (0 <= self.input_cost < math.inf, "input_cost must not be negative"),
            (1 <= self.max_inputs <= 1_000_000, "max_inputs must lie between 1 and 1000000"),
            (self.poison != "", "poison must not be an empty text"),
            (self.keepalive_seconds >= 0, "keepalive_seconds must not be negative"),
        )
        for holds, message in checks:
            if not holds:
                raise SettingsError(message)

    def _windows_hold_one(self) -> bool:
        rates = [rate for name in _RATES if (rate := getattr(self, name)) is not None]
        return self.refill is Refill.CONTINUOUS or all(rate * self.window_seconds >= MINUTE for rate in rates)

    @property
    def limits(self) -> LimitSettings:
        """The rate limits."""
        return LimitSettings(
            account=Rates(rpm=self.rpm, tpm=self.tpm),
            key=Rates(rpm=self.key_rpm, tpm=self.key_tpm),
            refill=self.refill,
            window=self.window_seconds,
        )

    @property
    def granted_tpm(self) -> float | None:
        """Tokens per minute of all keys together; None without a limit, or where any number of keys is accepted."""
        of_keys = None if self.key_tpm is None or not self.api_keys else self.key_tpm * len(set(self.api_keys))
        known = [tpm for tpm in (self.tpm, of_keys) if tpm is not None]
        return min(known, default=None)


def _positive(rate: float | None) -> bool:
    return rate is None or 0 < rate < math.inf
