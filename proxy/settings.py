"""Process settings: flags and SPONSON_* variables, read once into a frozen object (`policy.md`, process settings)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """What one `sponson run` was started with. Addresses are `HOST:PORT`; times are seconds.

    `environ` is the environment as it was at start; secrets and OTEL_* come from it.
    """

    policy: Path
    listen: str = "127.0.0.1:4000"
    admin: str = "127.0.0.1:4001"
    forward: str | None = None
    linger_seconds: float = 2.0
    drain_seconds: float = 25.0
    log_format: str = "json"
    state_dir: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)


def instance_index(environ: Mapping[str, str]) -> int | None:
    """Returns this instance's place in the fleet (SPONSON_INSTANCE_INDEX), None when unset; ValueError names it."""
    text = environ.get("SPONSON_INSTANCE_INDEX", "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"SPONSON_INSTANCE_INDEX is {text!r}; write the instance's number, 0 for the first")
    return int(text)
