"""What a simulated moderation says, in OpenAI's shape: one result for each input, by position."""

from __future__ import annotations

from typing import Any

from proxy.simulation.provider.answers import scores
from proxy.simulation.provider.asks import Ask

CATEGORIES = (
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
)
_FLAGGED_ABOVE = 0.5


def body(ask: Ask, *, id: str) -> dict[str, Any]:
    """Returns the results of all inputs, in order; equal texts have equal ones."""
    return {"id": id, "model": ask.model, "results": [_result(text, model=ask.model) for text in ask.texts]}


def _result(text: str, *, model: str) -> dict[str, Any]:
    found = dict(zip(CATEGORIES, scores(text, model=model, count=len(CATEGORIES)), strict=True))
    categories = {name: score > _FLAGGED_ABOVE for name, score in found.items()}
    return {
        "flagged": any(categories.values()),
        "categories": categories,
        "category_scores": found,
        "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
    }
