"""What the figures depend on beside the code: machine, commit, versions."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.bench.measure import ROOT


def machine_facts() -> dict[str, str]:
    """One word or number each, by name."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": current_commit(),
        "CPU": f"{os.cpu_count()} × {cpu}",
        "Linux": platform.release(),
        "Python": platform.python_version(),
        "aiohttp": version("aiohttp"),
        "uvloop": version("uvloop"),
    }


def current_commit() -> str:
    """The short commit id of the checkout, with a plus sign if files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return (git("rev-parse", "--short", "HEAD") or "none") + ("+" if git("status", "--porcelain") else "")
