from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.simulation.provider.answers import Event
from proxy.simulation.provider.bending import bent_body, bent_stream
from proxy.simulation.provider.faults import CutBy
from proxy.simulation.provider.grammar import parse_fault

ERROR = Event(b"error")


def stream(contents: int) -> list[Event]:
    return [Event(b"start"), *(Event(b"%d" % n, content=True) for n in range(contents)), Event(b"end")]


def test_without_a_fault_nothing_changes() -> None:
    assert bent_stream(stream(3), ERROR, None) == (stream(3), None)
    assert bent_body(b"1234", None) == (b"1234", None)


@given(st.integers(1, 20), st.integers(0, 30))
def test_a_cut_stream_is_a_beginning_of_the_whole(contents: int, events: int) -> None:
    whole = stream(contents)
    sent, cut = bent_stream(whole, ERROR, parse_fault(f"cut={events}"))
    assert sent == whole[:events]
    assert cut is (CutBy.CLOSE if events < len(whole) else None)


def test_an_error_stands_before_the_content_or_after_half_of_it() -> None:
    assert bent_stream(stream(4), ERROR, parse_fault("error-in-200")) == ([ERROR], None)
    sent, _ = bent_stream(stream(4), ERROR, parse_fault("error-in-200=after"))
    assert [event.data for event in sent] == [b"start", b"0", b"1", b"error"]
    sent, _ = bent_stream(stream(1), ERROR, parse_fault("error-in-200=after"))
    assert [event.data for event in sent] == [b"start", b"0", b"error"]


def test_a_cut_body_is_half_of_it() -> None:
    assert bent_body(b"12345", parse_fault("cut,by=end")) == (b"12", CutBy.END)
