from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.websocket.frames import (
    CLOSE,
    MOST_FRAMES,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TOO_BIG,
    Frames,
    Violation,
    close_frame,
    code_of,
    frame,
)
from tests.websocket.encoding import encoded

MOST = 70_000


class Passing:
    """Lets every control frame pass, but pongs that say `ours`."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []

    def control(self, opcode: int, payload: bytes) -> bool:
        self.seen.append((opcode, payload))
        return (opcode, payload) != (PONG, b"ours")


masks = st.one_of(st.none(), st.binary(min_size=4, max_size=4))
controls = st.builds(
    encoded, st.sampled_from([PING, PONG]), st.one_of(st.just(b"ours"), st.binary(max_size=125)), mask=masks
)


@st.composite
def messages(draw: st.DrawFn) -> list[bytes]:
    """One message in one frame or several, with control frames between them."""
    parts = draw(st.lists(st.one_of(st.binary(max_size=300), st.just(b"x" * 66_000)), min_size=1, max_size=3))
    while sum(map(len, parts)) > MOST:
        parts.pop()
    mask, frames = draw(masks), []
    for at, part in enumerate(parts):
        opcode = draw(st.sampled_from([1, 2])) if at == 0 else 0
        frames.append(encoded(opcode, part, final=at == len(parts) - 1, mask=mask))
        if draw(st.booleans()):
            frames.append(draw(controls))
    return frames


streams = st.lists(st.one_of(messages(), controls.map(lambda one: [one])), max_size=5).map(
    lambda groups: [one for group in groups for one in group]
)


def is_ours(one: bytes) -> bool:
    return one[0] == 0x80 | PONG and one[1] & 0x7F == 4 and one in _pongs(one)


def _pongs(one: bytes) -> tuple[bytes, ...]:
    return (encoded(PONG, b"ours", mask=one[2:6] if one[1] & 0x80 else None),)


@given(streams, st.data())
def test_frames_pass_as_they_came_however_they_are_cut(stream: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=12)))
    listener = Passing()
    frames = Frames(listener, most=MOST)
    passed = b"".join(frames.feed(whole[start:end]) for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True))
    assert passed == b"".join(one for one in stream if not is_ours(one))
    assert frames.between
    assert not frames.closed
    assert len(listener.seen) == sum(1 for one in stream if one[0] & 0x8)


@given(st.binary(max_size=400), st.data())
@example(b"\x81\xff\x80" + b"\0" * 7, None)
def test_any_bytes_pass_or_are_a_violation(junk: bytes, data: st.DataObject | None) -> None:
    frames = Frames(Passing(), most=MOST)
    cut = data.draw(st.integers(0, len(junk))) if data is not None else 3
    passed, code = b"", None
    try:
        passed += frames.feed(junk[:cut])
        passed += frames.feed(junk[cut:])
    except Violation as violation:
        code = violation.code
    assert code in {None, PROTOCOL_ERROR, TOO_BIG}
    assert len(passed) <= len(junk)


def test_one_byte_at_a_time_keeps_nothing_but_heads_and_control_frames() -> None:
    stream = encoded(2, b"z" * 1000, mask=b"abcd")
    frames = Frames(Passing(), most=MOST)
    assert [len(frames.feed(bytes([byte]))) for byte in stream] == [0] * 7 + [8] + [1] * 1000


def test_where_payload_is_missing_no_frame_of_ours_may_follow() -> None:
    frames = Frames(Passing(), most=MOST)
    frames.feed(encoded(2, b"0123456789")[:7])
    assert not frames.between
    frames.feed(b"56789")
    assert frames.between


def test_what_follows_a_close_is_nothing() -> None:
    listener = Passing()
    frames = Frames(listener, most=MOST)
    close = encoded(CLOSE, (4001).to_bytes(2, "big") + b"done", mask=b"\1\2\3\4")
    assert frames.feed(close + encoded(1, b"late")) == close
    assert frames.closed
    assert frames.feed(b"\xff\xff\xff") == b""
    assert code_of(listener.seen[0][1]) == 4001


def test_what_came_before_a_violation_still_passes() -> None:
    fine = encoded(1, b"fine", mask=b"abcd") + encoded(PING, b"?")
    frames = Frames(Passing(), most=MOST)
    assert frames.feed(fine[:7]) == fine[:7]
    with pytest.raises(Violation) as caught:
        frames.feed(fine[7:] + encoded(PONG, b"ours") + encoded(7, b"x"))
    assert caught.value.before == fine[7:]
    assert frames.between


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(encoded(0, b"x"), id="goes on without a beginning"),
        pytest.param(encoded(1, b"x", final=False) + encoded(2, b"y"), id="begins inside another message"),
        pytest.param(encoded(PING, b"x", final=False), id="ping in parts"),
        pytest.param(bytes([0x89, 126, 0, 126]) + b"p" * 126, id="ping too long"),
        pytest.param(encoded(3, b"x"), id="reserved opcode"),
        pytest.param(encoded(0xB, b"x"), id="reserved control opcode"),
        pytest.param(b"\x82\x7f\xff" + b"\0" * 7, id="length with its first bit set"),
    ],
)
def test_what_is_no_frame_is_a_protocol_error(stream: bytes) -> None:
    with pytest.raises(Violation) as caught:
        Frames(Passing(), most=MOST).feed(stream)
    assert caught.value.code == PROTOCOL_ERROR


def test_the_limit_is_for_messages_and_not_for_frames() -> None:
    frames = Frames(Passing(), most=10)
    frames.feed(encoded(1, b"12345", final=False) + encoded(PING, b"x" * 100) + encoded(0, b"67890"))
    frames.feed(encoded(1, b"1234567890"))
    with pytest.raises(Violation) as caught:
        frames.feed(encoded(1, b"12345", final=False) + encoded(0, b"678901"))
    assert caught.value.code == TOO_BIG


def test_a_message_is_refused_by_its_length_alone_before_its_payload_comes() -> None:
    with pytest.raises(Violation) as caught:
        Frames(Passing(), most=10).feed(b"\x82\x7f" + (1 << 40).to_bytes(8, "big"))
    assert caught.value.code == TOO_BIG


@given(streams)
def test_plain_text_from_a_server_is_shown_message_by_message(stream: list[bytes]) -> None:
    shown: list[bytes] = []
    parts: list[bytes] = []

    def text(piece: bytes, final: bool) -> None:
        parts.append(piece)
        if final:
            shown.append(b"".join(parts))
            parts.clear()

    expected, open_text = [], None
    for one in stream:
        opcode, masked = one[0] & 0xF, one[1] & 0x80
        if opcode & 0x8:
            continue
        wide = {126: 2, 127: 8}.get(one[1] & 0x7F, 0)
        payload = one[2 + wide + (4 if masked else 0) :]
        if opcode:
            open_text = b"" if opcode == 1 and not masked else None
        if open_text is not None:
            open_text += payload
            if one[0] & 0x80:
                expected.append(open_text)
    Frames(Passing(), most=MOST, text=text).feed(b"".join(stream))
    assert shown == expected


def test_packed_text_is_not_shown() -> None:
    shown: list[bytes] = []
    Frames(Passing(), most=MOST, text=lambda piece, _: shown.append(piece)).feed(encoded(1, b"zip", packed=True))
    assert shown == []


@given(st.integers(1000, 4999), st.text(max_size=200), masks)
def test_our_close_frames_are_well_formed(code: int, why: str, mask: bytes | None) -> None:
    listener = Passing()
    frames = Frames(listener, most=MOST)
    ours = close_frame(code, why, mask=mask)
    assert frames.feed(ours) == ours
    payload = listener.seen[0][1]
    assert code_of(payload) == code
    assert why.startswith(payload[2:].decode())


@given(st.binary(max_size=125), masks)
def test_our_pings_are_well_formed(payload: bytes, mask: bytes | None) -> None:
    assert frame(PING, payload, mask=mask) == encoded(PING, payload, mask=mask)


@pytest.mark.parametrize("mask", [None, b"mask"])
def test_very_many_small_frames_are_followed_a_part_at_a_time_and_none_is_lost(mask: bytes | None) -> None:
    groups = encoded(1, b"a", final=False, mask=mask) + encoded(PING, b"", mask=mask) + encoded(0, b"", mask=mask)
    said, end = groups * MOST_FRAMES, encoded(CLOSE, b"", mask=mask)
    frames = Frames(Passing(), most=MOST)
    parts = [frames.feed(said + end)]
    while frames.more:
        parts.append(frames.feed(b""))
    assert b"".join(parts) == said + end
    assert frames.closed
    assert len(parts) > 2
    assert max(map(len, parts)) <= MOST_FRAMES * len(groups)
