"""Profiles: traffic that is known from the field, and what its provider is like. Nothing here sends or answers.

A profile is given at full size. Who plays it divides tokens by a scale that the machine can carry; all times stay, so
that as many calls and streams are open at once, for as long, as in the field.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.simulation.provider.durations import format_duration
from proxy.simulation.provider.latency import Distribution, Latency

MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """One kind of agent: `part` of all agents are of it, and as all ask equally often, of all calls.

    `run` calls come one after the other, `run_seconds` apart, then none until the next run. Contexts are
    `context_tokens` long; `large_part` of the calls have `large_tokens`.
    """

    name: str
    part: float
    context_tokens: int
    output_tokens: int
    large_part: float = 0.0
    large_tokens: int = 0
    stream: bool = False
    run: int = 1
    run_seconds: float = 0.0
    writes: bool = False

    @property
    def mean_tokens(self) -> float:
        """Context tokens of a call on average."""
        return self.context_tokens * (1 - self.large_part) + self.large_tokens * self.large_part


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """So many agents, each with so many calls a minute; and how their provider answers."""

    name: str
    agents: int
    calls_per_minute: float
    kinds: tuple[Agents, ...]
    latency: Latency
    thinking: Latency
    heartbeat_seconds: float
    tokens_per_second: float

    def __str__(self) -> str:
        return f"{self.agents} agents, {self.calls_per_second:g} calls/s, {self.tokens_per_minute / 1e6:g} M tokens/min"

    @property
    def calls_per_second(self) -> float:
        """Calls of all agents together."""
        return self.agents * self.calls_per_minute / MINUTE

    @property
    def tokens_per_minute(self) -> float:
        """Context tokens of all agents together."""
        return self.agents * self.calls_per_minute * sum(kind.part * kind.mean_tokens for kind in self.kinds)

    def period_seconds(self, kind: Agents) -> float:
        """From one run of calls of an agent to the next."""
        return kind.run * MINUTE / self.calls_per_minute

    @property
    def steady_seconds(self) -> float:
        """From the first call to where as many streams end as begin: a whole period and the longest stream."""
        return max(
            self.period_seconds(kind) + self.thinking.high + kind.output_tokens / self.tokens_per_second
            for kind in self.kinds
            if kind.stream
        )

    def scaled(self, scale: float) -> Profile:
        """The same with so many times fewer tokens, which come so many times more slowly."""
        kinds = tuple(
            replace(
                kind,
                context_tokens=_fewer(kind.context_tokens, scale),
                large_tokens=_fewer(kind.large_tokens, scale),
                output_tokens=_fewer(kind.output_tokens, scale),
            )
            for kind in self.kinds
        )
        return replace(self, kinds=kinds, tokens_per_second=self.tokens_per_second / scale)

    def hurried(self, factor: float) -> Profile:
        """The same in so many times less time."""
        return replace(
            self,
            calls_per_minute=self.calls_per_minute * factor,
            kinds=tuple(replace(kind, run_seconds=kind.run_seconds / factor) for kind in self.kinds),
            latency=_shorter(self.latency, factor),
            thinking=_shorter(self.thinking, factor),
            heartbeat_seconds=self.heartbeat_seconds / factor,
            tokens_per_second=self.tokens_per_second * factor,
        )

    def flags(self) -> dict[str, str]:
        """The flags of `sponson sim` that make its provider, by parameter."""
        return {
            "latency": str(self.latency),
            "thinking": str(self.thinking),
            "heartbeat": format_duration(self.heartbeat_seconds),
            "tokens_per_second": f"{self.tokens_per_second:g}",
            "output_tokens": str(max(kind.output_tokens for kind in self.kinds)),
        }


def _fewer(tokens: int, scale: float) -> int:
    return max(1, round(tokens / scale)) if tokens else 0


def _shorter(latency: Latency, factor: float) -> Latency:
    return replace(latency, low=latency.low / factor, high=latency.high / factor)


RESEARCH_AGENTS = Profile(
    name="research-agents",
    agents=2000,
    calls_per_minute=3.0,
    kinds=(
        Agents(
            name="rare and long",
            part=0.60,
            context_tokens=8000,
            large_part=1 / 6,
            large_tokens=32_000,
            output_tokens=512,
            stream=True,
        ),
        Agents(name="dense and short", part=0.35, context_tokens=2000, output_tokens=64, run=6, run_seconds=1.0),
        Agents(name="writes", part=0.05, context_tokens=2000, output_tokens=64, writes=True),
    ),
    latency=Latency(distribution=Distribution.LOGNORMAL, low=0.3, sigma=0.5),
    thinking=Latency(distribution=Distribution.UNIFORM, low=2.0, high=6.0),
    heartbeat_seconds=1.0,
    tokens_per_second=40.0,
)
"""Contexts are 8 K on average, and 32 K in a tenth of all calls; about a thousand streams are open at once."""

PROFILES = {profile.name: profile for profile in (RESEARCH_AGENTS,)}


def parse_profile(text: str) -> Profile:
    """Reads `NAME` or `NAME:SCALE`, where the scale divides all tokens; raises ValueError."""
    name, colon, scale = text.partition(":")
    if name not in PROFILES:
        raise ValueError(f"no profile is named {name!r}: there is {', '.join(PROFILES)}")
    if not colon:
        return PROFILES[name]
    try:
        number = float(scale)
    except ValueError:
        number = 0.0
    if not 1 <= number <= 1000:
        raise ValueError(f"{scale!r} is no scale: write a number from 1 to 1000, such as {name}:16")
    return PROFILES[name].scaled(number)
