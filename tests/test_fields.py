from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fields import (
    MAX_FIELD,
    MAX_FIELDS,
    MAX_HEAD,
    MOST_SHAPES,
    HeadTooLarge,
    Shapes,
    TargetTooLong,
    check_lines,
    cleaned,
    fields_of,
    in_one_line,
)

RAW = [(b"X-Tag", b"a"), (b"x-TAG", b"b"), (b"Accept", b"caf\xe9"), (b"authorization", b"Bearer secret")]


def test_fields_give_the_first_value_whatever_the_case_and_remember_what_is_repeated() -> None:
    fields = fields_of(RAW)
    assert (fields.get("x-tag"), fields["X-Tag"], fields.getall("x-tag")) == ("a", "a", ["a", "b"])
    assert (set(fields.repeated), list(fields), len(fields)) == ({"x-tag"}, ["x-tag", "accept", "authorization"], 3)
    assert (fields.get("none"), fields.get("none", ""), "accept" in fields, "none" in fields) == (None, "", True, False)


def test_values_keep_their_bytes_and_none_is_shown() -> None:
    fields = fields_of(RAW)
    assert fields["accept"].encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert "secret" not in repr(fields)


def test_white_space_around_a_field_is_no_part_of_it_and_stays_as_it_came() -> None:
    fields = fields_of([(b"content-length ", b"2"), (b"x", b"v \t"), (b"y", b"a b")])
    assert (fields["content-length"], fields["x"], fields["y"]) == ("2", "v", "a b")
    assert fields.raw[1] == (b"x", b"v \t")


def test_a_head_beyond_all_measure_is_refused() -> None:
    with pytest.raises(HeadTooLarge):
        check_lines([b"x", bytes(MAX_FIELD + 1)])
    with pytest.raises(HeadTooLarge):
        check_lines([bytes(MAX_FIELD)] * (MAX_HEAD // MAX_FIELD) + [b"x"])
    with pytest.raises(TargetTooLong):
        check_lines([], bytes(MAX_FIELD + 1))
    check_lines([bytes(MAX_FIELD)] * (MAX_HEAD // MAX_FIELD), bytes(MAX_FIELD))
    with pytest.raises(HeadTooLarge):
        Shapes().of([b"x"] * (MAX_FIELDS + 1))


VISIBLE = {0x09, *range(0x20, 0x7F), *range(0x80, 0x100)}


@given(st.lists(st.binary(max_size=12), max_size=6))
def test_every_control_character_of_a_value_becomes_a_space_and_no_other_byte_changes(lines: list[bytes]) -> None:
    wanted = [bytes(byte if byte in VISIBLE else 0x20 for byte in line) for line in lines]
    assert [in_one_line(line) for line in lines] == wanted
    if any(b"\0" in line for line in lines):
        with pytest.raises(ValueError, match="NUL"):
            cleaned(lines)
    else:
        assert cleaned(lines) == wanted


@given(st.lists(st.lists(st.sampled_from([b"a", b"A", b"b", b"x-c"]), max_size=4), max_size=9))
def test_a_shape_that_is_remembered_is_the_one_that_was_asked_for(heads: list[list[bytes]]) -> None:
    shapes = Shapes()
    for names in heads:
        assert shapes.of(names).names == tuple(names)


def test_shapes_are_remembered_within_bounds() -> None:
    shapes = Shapes()
    for index in range(2 * MOST_SHAPES):
        shapes.of([b"x-%d" % index])
    shapes.of([b"n" * 5000])
    assert len(shapes._known) <= MOST_SHAPES
    assert all(len(names[0]) < 5000 for names in shapes._known)
