"""What all sections have in common, and the ways to declare a field."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A mapping with known names only."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


def required(description: str, **more: Any) -> Any:
    """A field that must be there."""
    return Field(description=description, **more)


def option(default: object, description: str, **more: Any) -> Any:
    """A field with a default."""
    return Field(default=default, description=description, **more)


def absent(description: str, **more: Any) -> Any:
    """A field without a default: no such section, no such limit, no such feature."""
    return Field(default=None, description=description, **more)


def section(kind: type[BaseModel], description: str, **more: Any) -> Any:
    """A section whose fields all have defaults."""
    return Field(default_factory=kind, description=description, **more)


def default_of(owner: type, name: str) -> Any:
    """Returns the default of a settings class's field: the one place where it is written."""
    return next(field.default for field in fields(owner) if field.name == name)
