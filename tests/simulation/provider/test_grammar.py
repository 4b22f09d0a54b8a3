from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.provider.faults import CutBy, Fault, FaultKind, Place, RetryForm, RetryHint, Selector
from proxy.simulation.provider.grammar import FaultError, parse_fault, parse_header, parse_json
from proxy.simulation.provider.spelling import format_fault


def test_a_status_in_a_time_window() -> None:
    fault = parse_fault("status=503, from=10s, to=20s")
    assert fault == Fault(kind=FaultKind.STATUS, status=503, select=Selector(from_seconds=10, to_seconds=20))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("reset", Fault(kind=FaultKind.RESET)),
        ("silence,rate=10%", Fault(kind=FaultKind.SILENCE, select=Selector(rate=0.1))),
        ("lost,rate=5%", Fault(kind=FaultKind.LOST, select=Selector(rate=0.05))),
        ("cut=3,by=reset", Fault(kind=FaultKind.CUT, events=3, by=CutBy.RESET)),
        ("error_in_200=after", Fault(kind=FaultKind.ERROR_IN_200, place=Place.AFTER)),
        ("error-in-200", Fault(kind=FaultKind.ERROR_IN_200)),
        ("drip=2s,model=big-*", Fault(kind=FaultKind.DRIP, delay_seconds=2, select=Selector(model="big-*"))),
        ("slow=2,every=10", Fault(kind=FaultKind.SLOW, delay_seconds=2, select=Selector(every=10))),
        ("refuse,to=1m", Fault(kind=FaultKind.REFUSE, select=Selector(to_seconds=60))),
        (
            "status=429,code=gone,key=sk-1,first=3",
            Fault(kind=FaultKind.STATUS, status=429, code="gone", select=Selector(key="sk-1", first=3)),
        ),
    ],
)
def test_every_kind_is_read(text: str, expected: Fault) -> None:
    assert parse_fault(text) == expected


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("status=429,retry-after=2", (RetryForm.SECONDS,)),
        ("status=429,retry-after=1.5", (RetryForm.FRACTION,)),
        ("status=429,retry-after=2,form=ms+reset", (RetryForm.MS, RetryForm.RESET)),
    ],
)
def test_retry_after_takes_a_form_that_can_say_it(text: str, forms: tuple[RetryForm, ...]) -> None:
    retry = parse_fault(text).retry
    assert retry is not None
    assert retry.forms == forms


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty part"),
        ("status=503,", "empty part"),
        ("stauts=503", "did you mean `status`"),
        ("from=1s", "no fault is named"),
        ("status=503,reset", "are two faults"),
        ("status=503,status=500", "given twice"),
        ("status", "`status` needs a value"),
        ("status=", "`status` needs a value"),
        ("status=99", "between 200 and 599"),
        ("status=5o3", "between 200 and 599"),
        ("status=503,by=reset", "`by` does not belong to `status`"),
        ("cut=3,retry-after=2", "`retry-after` does not belong to `cut`"),
        ("cut=-1", "whole number from 0"),
        ("cut=3,by=magic", "none of close, reset, end"),
        ("reset=1", "takes no value"),
        ("slow", "`slow` needs a value"),
        ("slow=fast", "not a duration"),
        ("status=429,form=ms", "give both"),
        ("status=429,retry-after=1,form=ms+x", "none of"),
        ("reset,rate=1.5", "between 0 and 1"),
        ("reset,rate=nan", "between 0 and 1"),
        ("reset,rate=often", "between 0 and 1"),
        ("reset,first=0", "whole number from 1"),
        ("reset,from=20s,to=10s", "`to` must be later"),
        ("refuse,rate=0.5", "`rate` cannot select"),
        ("error-in-200=middle", "none of before, after"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_part_at_fault(text: str, part: str) -> None:
    with pytest.raises(FaultError, match=part):
        parse_fault(text)


def test_the_header_separates_by_semicolons_and_selects_nothing() -> None:
    assert parse_header("status=503;retry-after=2") == Fault(
        kind=FaultKind.STATUS, status=503, retry=RetryHint(seconds=2)
    )
    for text, part in (("reset;rate=1", "has no meaning"), ("refuse", "cannot be asked for")):
        with pytest.raises(FaultError, match=part):
            parse_header(text)


def test_json_holds_texts_or_objects() -> None:
    value = ["reset", {"status": 503, "from": "10s", "rate": 0.5}, {"error_in_200": True}, {"slow": 1.5}]
    assert parse_json(value) == (
        parse_fault("reset"),
        parse_fault("status=503,from=10s,rate=0.5"),
        parse_fault("error-in-200"),
        parse_fault("slow=1500ms"),
    )


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"status": 503}, "must be a JSON list"),
        (["reset", 7], "fault 1: is neither"),
        ([{"status": None}], "fault 0: `status` must be"),
        ([{"reset": False}], "`reset` must be"),
    ],
)
def test_json_of_another_shape_is_refused(value: Any, part: str) -> None:
    with pytest.raises(FaultError, match=part):
        parse_json(value)


names = st.text("abcxyz019-.*", min_size=1, max_size=8)
millis = st.integers(0, 10**7).map(lambda value: value / 1000)
selectors = st.builds(
    Selector,
    from_seconds=millis,
    to_seconds=st.none() | st.integers(10**4 + 1, 10**6).map(float),
    provider=st.none() | names,
    model=st.none() | names,
    key=st.none() | names,
    first=st.none() | st.integers(1, 1000),
    every=st.none() | st.integers(1, 1000),
    rate=st.none() | st.integers(0, 1000).map(lambda value: value / 1000),
)
hints = st.builds(
    RetryHint,
    seconds=millis,
    forms=st.lists(st.sampled_from(RetryForm), min_size=1, max_size=3).map(tuple),
)
faults = st.one_of(
    st.builds(
        Fault,
        kind=st.just(FaultKind.STATUS),
        status=st.integers(200, 599),
        code=st.none() | names,
        retry=st.none() | hints,
        select=selectors,
    ),
    st.builds(
        Fault,
        kind=st.just(FaultKind.CUT),
        events=st.integers(0, 99),
        by=st.sampled_from(CutBy),
        select=selectors,
    ),
    st.builds(Fault, kind=st.just(FaultKind.ERROR_IN_200), place=st.sampled_from(Place), select=selectors),
    st.builds(Fault, kind=st.sampled_from([FaultKind.SLOW, FaultKind.DRIP]), delay_seconds=millis, select=selectors),
    st.builds(Fault, kind=st.sampled_from([FaultKind.RESET, FaultKind.SILENCE]), select=selectors),
)


@given(faults)
def test_a_written_fault_is_read_back_unchanged(fault: Fault) -> None:
    assert parse_fault(format_fault(fault)) == fault


@given(st.text("abcdefstu=,;0123456789-_ ", max_size=30))
def test_any_text_is_refused_as_a_fault_error_or_read_and_written_back(text: str) -> None:
    with contextlib.suppress(FaultError):
        fault = parse_fault(text)
        assert parse_fault(format_fault(fault)) == fault
