"""Fuzz targets: inputs that are nearly right, in bytes, against everything that reads what others sent or wrote.

| file | target |
|---|---|
| test_streams | event streams, plain and packed: scanners, the usage filter |
| test_answers | whole JSON answers |
| test_heads | request and answer heads: what is passed on, and what is read in them |
| test_bodies | request bodies: understood, measured, changed |
| test_policies | policies: parsed, built, assembled, compared |
| mutations | how a right input becomes a nearly right one |
| corpus | right inputs |

Every target keeps its seeds: inputs that once failed, or that look as if they could, are tested by themselves and are
bases for mutations. A run takes seconds; `FUZZ=200 python -m pytest --timeout 0 tests/fuzz` draws 200 times as many
inputs. A failing input is printed, smallest first: it becomes a seed. Framing has its own, in `tests/differential`.
"""

from __future__ import annotations

import os

from hypothesis import settings

EFFORT = int(os.environ.get("FUZZ", "1"))


def drawn(count: int) -> settings:
    """Returns the settings of a target that draws so many inputs, or a multiple of it for who asks for more."""
    return settings(max_examples=count * EFFORT)
