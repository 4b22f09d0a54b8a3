from __future__ import annotations

import pytest

from proxy.policy.problem import Place, PolicyError, PolicyUnreadable, did_you_mean, nearest, problem_at

KNOWN = ("base_url", "keys", "key_rest")


def test_a_problem_is_one_line_with_its_place() -> None:
    found = problem_at(Place(file="p.yaml", line=4, column=5), ("providers", "a", "keys", 0), "is required")
    assert str(found) == "p.yaml:4:5: providers.a.keys.0: is required"


def test_nothing_breaks_out_of_the_line() -> None:
    found = problem_at(Place(file="a\nb", line=1, column=1), ("x\r\ny",), "z\x1b[31m\u2028")
    assert str(found) == r"a\nb:1:1: x\r\ny: z\x1b[31m\u2028"


def test_problems_come_by_place_and_once() -> None:
    places = [Place(file="p", line=10, column=1), Place(file="p", line=9, column=12)]
    found = [problem_at(place, (), "x") for place in (*places, places[0])]
    error = PolicyError(found)
    assert [problem.line for problem in error.problems] == [9, 10]
    assert str(error) == "p:9:12: policy: x\np:10:1: policy: x"


def test_unreadable_has_the_same_form() -> None:
    assert str(PolicyUnreadable("/etc/p", "cannot be read")) == "/etc/p:1:1: policy: cannot be read"


@pytest.mark.parametrize(
    ("word", "name"),
    [("base_ulr", "base_url"), ("baseUrl", "base_url"), ("KEYS", "keys"), ("key-rest", "key_rest")],
)
def test_the_nearest_name(word: str, name: str) -> None:
    assert nearest(word, KNOWN) == name
    assert did_you_mean(word, KNOWN) == f" (did you mean {name}?)"


@pytest.mark.parametrize("word", ["", "retry", "k" * 10_000])
def test_no_name_is_near(word: str) -> None:
    assert nearest(word, KNOWN) is None
    assert did_you_mean(word, KNOWN) == ""
