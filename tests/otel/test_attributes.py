"""The names: closed labels, known providers, text that every exporter takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel import attributes as a


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("api.openai.com", "openai"),
        ("my-resource.openai.azure.com", "azure.ai.openai"),
        ("api.anthropic.com", "anthropic"),
        ("eu-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("vllm.internal", "alpha"),
        ("", "alpha"),
    ],
)
def test_a_known_host_gives_the_well_known_provider(host: str, expected: str) -> None:
    assert a.genai_provider("alpha", host) == expected


def test_an_unknown_method_is_no_label() -> None:
    assert a.method_label("POST") == "POST"
    assert a.method_label("BREW") == a.method_label("post") == "_OTHER"


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_clean_text_can_always_be_encoded(text: str) -> None:
    cleaned = a.clean(text, 20)
    cleaned.encode("utf-8")
    assert len(cleaned) <= 20


def test_clean_text_keeps_what_is_good() -> None:
    assert a.clean("modèle-é😀") == "modèle-é😀"
    assert a.clean("a\udcffb") == "a?b"


def test_the_generations_of_genai_names_do_not_meet() -> None:
    old, new = ({name for name in _values(g) if name} for g in (a.GENAI_1_41, a.GENAI_LATEST))
    assert old & new == set()


def _values(names: a.GenAiMetrics) -> list[str]:
    return [getattr(names, field) for field in names.__slots__]
