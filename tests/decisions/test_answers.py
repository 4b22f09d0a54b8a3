"""Answers: what is kept is found until it is due, within bounds, and what is under way never gives way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.answers import Answers
from proxy.ports import Fate, Remembered, StoredAnswer

MARK = b"mark"


def an_answer(size: int = 10) -> StoredAnswer:
    return StoredAnswer(
        status=200, phrase=b"OK", lines=b"", body=b"x" * size, length=size, provider="alpha", model="m1", tier=1
    )


def answered(size: int = 10) -> Remembered:
    return Remembered(mark=MARK, fate=Fate.ANSWERED, answer=an_answer(size))


UNKNOWN = Remembered(mark=MARK, fate=Fate.UNKNOWN)


def fate(answers: Answers, name: bytes, now: float = 0.0) -> Fate | None:
    found = answers.find(name, now)
    return found.fate if found is not None else None


def test_what_is_remembered_is_found_until_it_is_due() -> None:
    answers = Answers()
    what = answered()
    answers.remember(b"a", what, seconds=10.0, now=100.0)
    assert answers.find(b"a", 109.9) is what
    assert answers.find(b"b", 100.0) is None
    assert answers.find(b"a", 110.0) is None
    assert (answers.held, answers.statistics().names) == (0, 0)


def test_names_that_are_kept_for_longer_do_not_keep_others() -> None:
    answers = Answers()
    answers.remember(b"long", answered(), seconds=1000.0, now=0.0)
    answers.remember(b"short", answered(), seconds=10.0, now=0.0)
    answers.expire(10.0)
    assert answers.statistics().names == 1
    assert fate(answers, b"long", 10.0) is Fate.ANSWERED


def test_the_oldest_answer_gives_way_and_is_known_to_have_been_given() -> None:
    answers = Answers(most_bytes=25)
    for name in (b"a", b"b", b"c"):
        answers.remember(name, answered(), seconds=10.0, now=0.0)
    assert [fate(answers, name) for name in (b"a", b"b", b"c")] == [Fate.DROPPED, Fate.ANSWERED, Fate.ANSWERED]
    dropped = answers.find(b"a", 0.0)
    assert dropped is not None
    assert (dropped.mark, dropped.answer) == (MARK, None)
    assert answers.held == 20


def test_what_is_under_way_takes_the_place_of_answers_and_gives_way_to_none() -> None:
    answers = Answers(most_bytes=25)
    answers.remember(b"a", answered(), seconds=10.0, now=0.0)
    assert answers.take(20)
    assert fate(answers, b"a") is Fate.DROPPED
    answers.remember(b"b", answered(), seconds=10.0, now=0.0)
    assert fate(answers, b"b") is Fate.TOO_LARGE
    assert not answers.take(6)
    assert answers.held == 20
    answers.give_back(20)
    answers.remember(b"c", answered(), seconds=10.0, now=0.0)
    assert fate(answers, b"c") is Fate.ANSWERED


def test_the_oldest_name_is_forgotten_when_there_are_too_many() -> None:
    answers = Answers(most_names=2)
    for name in (b"a", b"b", b"c"):
        answers.remember(name, UNKNOWN, seconds=10.0, now=0.0)
    assert [fate(answers, name) for name in (b"a", b"b", b"c")] == [None, Fate.UNKNOWN, Fate.UNKNOWN]
    assert answers.statistics().unknown == 2


def test_a_name_that_is_remembered_again_counts_once() -> None:
    answers = Answers()
    answers.remember(b"a", answered(), seconds=10.0, now=0.0)
    answers.remember(b"a", UNKNOWN, seconds=20.0, now=5.0)
    statistics = answers.statistics()
    assert (statistics.names, statistics.answers, statistics.unknown, statistics.bytes) == (1, 0, 1, 0)
    assert fate(answers, b"a", 24.0) is Fate.UNKNOWN


steps = st.lists(
    st.tuples(
        st.sampled_from(["answer", "unknown", "take", "back", "wait"]),
        st.sampled_from([b"a", b"b", b"c", b"d"]),
        st.integers(min_value=0, max_value=40),
        st.sampled_from([5.0, 50.0]),
    ),
    max_size=60,
)


@given(steps)
def test_whatever_happens_the_bounds_hold_and_every_byte_is_given_back(
    todo: list[tuple[str, bytes, int, float]],
) -> None:
    answers = Answers(most_names=3, most_bytes=60)
    taken: list[int] = []
    now = 0.0
    for what, name, size, seconds in todo:
        match what:
            case "answer":
                answers.remember(name, answered(size), seconds=seconds, now=now)
            case "unknown":
                answers.remember(name, UNKNOWN, seconds=seconds, now=now)
            case "take":
                if answers.take(size):
                    taken.append(size)
            case "back" if taken:
                answers.give_back(taken.pop())
            case _:
                now += size
        statistics = answers.statistics()
        assert statistics.bytes <= 60
        assert statistics.names <= 3
        assert statistics.answers <= statistics.names
    answers.expire(now + 50.0)
    assert answers.held == sum(taken)
    assert (answers.statistics().names, answers.statistics().unknown) == (0, 0)
