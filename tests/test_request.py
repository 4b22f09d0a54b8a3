from __future__ import annotations

import pytest

from proxy.request import MAX_FIELD, MAX_FIELDS, Fields, HeadTooLarge, tidy

RAW = [(b"X-Tag", b"a"), (b"x-TAG", b"b"), (b"Accept", b"caf\xe9"), (b"authorization", b"Bearer secret")]


def test_fields_give_the_first_value_whatever_the_case_and_remember_what_is_repeated() -> None:
    fields = Fields(RAW)
    assert (fields.get("x-tag"), fields["X-Tag"], fields.getall("x-tag")) == ("a", "a", ["a", "b"])
    assert (set(fields.repeated), list(fields), len(fields)) == ({"x-tag"}, ["x-tag", "accept", "authorization"], 3)
    assert (fields.get("none"), fields.get("none", ""), "accept" in fields, "none" in fields) == (None, "", True, False)


def test_values_keep_their_bytes_and_none_is_shown() -> None:
    fields = Fields(RAW)
    assert fields["accept"].encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert "secret" not in repr(fields)


def test_white_space_that_is_no_part_of_a_field_goes() -> None:
    raw = [(b"content-length ", b"2"), (b"x", b"v \t"), (b"y", b"a b")]
    tidy(raw)
    assert raw == [(b"content-length", b"2"), (b"x", b"v"), (b"y", b"a b")]


@pytest.mark.parametrize("raw", [[(b"x", bytes(MAX_FIELD))], [(b"x", b"y")] * (MAX_FIELDS + 1)])
def test_a_head_beyond_all_measure_is_refused(raw: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(HeadTooLarge):
        tidy(raw)
