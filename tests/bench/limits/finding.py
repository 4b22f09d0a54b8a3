"""One line of the tables: what was measured beside the reference and the goal, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One promise; `reference` is "" where nobody reported any, `holds` None where nothing is promised."""

    name: str
    measured: str
    reference: str = ""
    goal: str = ""
    holds: bool | None = None

    @property
    def verdict(self) -> str:
        """Whether it is kept, in plain words."""
        if self.holds is None:
            return ""
        return "holds" if self.holds else "DOES NOT HOLD"
