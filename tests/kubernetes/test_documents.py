from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.kubernetes.documents import split

LINES = st.sampled_from(
    ["---", "--- # c", "--- {a: b}", "...", "# c", "", "%YAML 1.2", "a: 1", "  ---", "b: |", "\ufeff"]
)


@given(st.lists(LINES), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_the_texts_together_are_the_manifest(lines: list[str], line_break: str, ends: bool) -> None:
    manifest = line_break.join(lines) + (line_break if ends else "")
    assert "".join(text.whole for text in split(manifest)) == manifest


@pytest.mark.parametrize(
    ("manifest", "bodies"),
    [
        ("", []),
        ("a: 1\n", ["a: 1\n"]),
        ("---\na: 1\n---\nb: 2\n", ["a: 1\n", "b: 2\n"]),
        ("# head\n---\n# of a\na: 1\n# end\n---\nb: 2", ["a: 1\n", "b: 2"]),
        ("a: |\n  ---\n  x\n---\nb: 2\n", ["a: |\n  ---\n  x\n", "b: 2\n"]),
        ("a: 1\n...\n%YAML 1.2\n---\nb: 2\n", ["a: 1\n", "b: 2\n"]),
        ("--- {a: 1}\n--- {b: 2}\n", ["--- {a: 1}\n", "--- {b: 2}\n"]),
        ("---\n---\na: 1\n", ["", "a: 1\n"]),
    ],
)
def test_documents_end_where_yaml_says(manifest: str, bodies: list[str]) -> None:
    found = [text.body for text in split(manifest)]
    assert [body for body in found if body] == [body for body in bodies if body]


def test_lines_are_those_of_the_manifest() -> None:
    assert [text.line for text in split("# c\n---\na: 1\n---\n# d\nb: 2\n")] == [3, 6]
