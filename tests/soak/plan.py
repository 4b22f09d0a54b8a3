"""How long a run is, how much traffic there is, and what is too much of a difference."""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.simulation.provider.profiles import RESEARCH_AGENTS, Profile

WARM_UP, CROWD = 0.2, 0.4
"""So large a part of everything comes before the base line is taken; and of the rest belongs to the agents."""
MOST_WARM_UP = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. `reloads` None: as many as fit into the mixed part of `seconds`; equal seeds make equal changes.

    `rate` calls a second must not fail, `visits` a second may be anything; `direct` more agents ask the provider
    itself. `scale` divides the agents' tokens, `hurry` their times. `delay_ms` is how much the proxy may add to the
    first token at P99; None: no promise.
    """

    seconds: float
    reloads: int | None = None
    rate: float = 100.0
    visits: float = 15.0
    agents: int = 2000
    direct: int = 100
    scale: float = 16.0
    hurry: float = 1.0
    crowd_pace_seconds: float = 15.0
    seed: int = 1
    delay_ms: float | None = None

    @property
    def profile(self) -> Profile:
        """The agents, at the size at which they are played."""
        return replace(RESEARCH_AGENTS, agents=self.agents).scaled(self.scale).hurried(self.hurry)

    def changes(self, *, warm_up: bool) -> int | None:
        """Changes up to the base line, or up to the end, where their number is given."""
        if self.reloads is None or not warm_up:
            return self.reloads
        return min(MOST_WARM_UP, max(2, round(self.reloads * WARM_UP)))

    def mixed_seconds(self, *, warm_up: bool) -> float:
        """How long the mixed traffic lasts, where the number of changes is not given."""
        return self.seconds * (WARM_UP if warm_up else 1 - WARM_UP) * (1 - CROWD)

    def crowd_seconds(self, *, warm_up: bool) -> float:
        """How long the agents ask: up to the base line so long that as many streams are open as ever will be."""
        seconds = self.seconds * (WARM_UP if warm_up else 1 - WARM_UP) * CROWD
        return max(seconds, self.profile.steady_seconds) if warm_up else seconds
