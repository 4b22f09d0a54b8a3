"""What is said while the demo stays up: one sentence for each line that the proxy logs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from proxy.simulation.demo.timeline import change_in


def sentence(line: Mapping[str, Any]) -> str:
    """Returns what a log line says, after its time of day."""
    at = datetime.fromisoformat(str(line["time"])).astimezone()
    return f"{at:%H:%M:%S}  {_said(line)}"


def _said(line: Mapping[str, Any]) -> str:
    change = change_in(line)
    if change is not None:
        return change.sentence
    if line.get("logger") == "sponson.request":
        return _request(line)
    known = ("time", "level", "logger", "msg", "digest", "problems")
    fields = [f"{name} {value}" for name, value in line.items() if name not in known]
    return "\n".join([", ".join([str(line.get("msg", "")), *fields]), *map(str, line.get("problems", ()))])


def _request(line: Mapping[str, Any]) -> str:
    tier = f"tier {line['tier']}" if "tier" in line else "no tier"
    answered = line.get("outcome") == "answered"
    provider = "the policy's own answer" if answered else line.get("provider", "no provider")
    parts = [
        f"{line.get('route', line.get('method', 'request'))}: {line.get('status', 'no status')}",
        f"{provider} ({tier})",
        f"attempts {line.get('attempts', 0)}",
        f"{line.get('total_ms', 0)} ms",
    ]
    if not answered and line.get("outcome") != "ok":
        parts.append(str(line.get("reason") or line.get("outcome")))
    return ", ".join(parts)
