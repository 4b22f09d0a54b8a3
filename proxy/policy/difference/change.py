"""What was found: sections of values, effects and warnings. Plain text, without places on a page."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Sign(StrEnum):
    """What happens to the thing as a whole."""

    ADDED = "+"
    REMOVED = "-"
    CHANGED = "~"


class When(StrEnum):
    """From when on a changed value counts."""

    DECISION = "next decision"
    """It is told to a decision core in place: it acts on what runs and waits too."""
    REQUEST = "new requests"
    """It is part of the pipelines: requests that began before the reload end by the old value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A setting before and after, as an operator writes it."""

    name: str
    old: str
    new: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One thing that differs; `effects` are sentences about live state, `warnings` what may surprise."""

    sign: Sign
    subject: str
    values: tuple[Value, ...] = ()
    effects: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Everything that differs, and how many of each kind of thing do not. Without sections, nothing happens."""

    sections: tuple[Section, ...]
    unchanged: tuple[tuple[str, int], ...]
    """(kind of thing in the singular, how many)."""


@dataclass(slots=True)
class Findings:
    """A section while it is being found; a sentence that is found twice is said once."""

    values: list[Value] = field(default_factory=list)
    effects: dict[str, None] = field(default_factory=dict)
    warnings: dict[str, None] = field(default_factory=dict)

    def value(self, name: str, old: str, new: str, *, note: str = "") -> None:
        """Notes a value that differs."""
        self.values.append(Value(name=name, old=old, new=new, note=note))

    def effect(self, sentence: str) -> None:
        """Notes what happens to live state."""
        self.effects[sentence] = None

    def warn(self, sentence: str) -> None:
        """Notes what may surprise."""
        self.warnings[sentence] = None

    def section(self, sign: Sign, subject: str) -> Section:
        """Returns what was found, as a section."""
        return Section(
            sign=sign,
            subject=subject,
            values=tuple(self.values),
            effects=tuple(self.effects),
            warnings=tuple(self.warnings),
        )

    def changes(self, subject: str) -> Section | None:
        """Returns the section of a thing that is on both sides; None when nothing was found."""
        found = self.values or self.effects or self.warnings
        return self.section(Sign.CHANGED, subject) if found else None
