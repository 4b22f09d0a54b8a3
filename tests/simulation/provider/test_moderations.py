from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.provider import moderations
from proxy.simulation.provider.asks import Ask, Endpoint


def results(*texts: str, model: str = "m") -> list[dict[str, Any]]:
    ask = Ask(endpoint=Endpoint.MODERATIONS, model=model, texts=texts, input_tokens=1, field="input")
    found: list[dict[str, Any]] = moderations.body(ask, id="modr-1")["results"]
    return found


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8))
def test_a_result_depends_on_its_own_text_and_stands_at_its_place(texts: list[str]) -> None:
    assert results(*texts) == [results(text)[0] for text in texts]


def test_other_texts_and_other_models_have_other_scores() -> None:
    found = [*results("a", "b", "a "), *results("a", model="other")]
    assert len({tuple(one["category_scores"].values()) for one in found}) == 4


@given(st.text())
def test_flagged_is_what_has_a_category(text: str) -> None:
    (found,) = results(text)
    assert found["flagged"] is any(found["categories"].values())
    assert found["categories"] == {name: score > 0.5 for name, score in found["category_scores"].items()}
    assert all(0 <= score < 1 for score in found["category_scores"].values())


def test_some_are_flagged_and_most_are_not() -> None:
    flagged = sum(one["flagged"] for one in results(*map(str, range(1000))))
    assert 200 < flagged < 600
