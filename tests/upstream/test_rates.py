"""Rate limits in the heads of answers: kept at the attempt, and found once for each shape of head."""

from __future__ import annotations

from proxy.fields import Shape, Shapes
from proxy.upstream.headers import AnswerHeaders
from tests.upstream.peer import OK, answering
from tests.upstream.rig import rigged


async def test_what_a_head_says_of_rate_limits_is_kept_at_the_attempt_whatever_its_status() -> None:
    lines = (
        b"x-ratelimit-limit-requests: 10\r\nx-ratelimit-remaining-requests: %d\r\nx-ratelimit-reset-requests: 9s\r\n"
    )
    good = b"HTTP/1.1 200 OK\r\n" + lines % 4 + b"content-length: 2\r\n\r\nok"
    limited = b"HTTP/1.1 429 Too Many Requests\r\n" + lines % 0 + b"content-length: 0\r\n\r\n"
    async with rigged(answering(good, good.replace(b": 4", b": 3"), limited, OK)) as rig:
        for remaining in (4, 3, 0):
            _, attempt = await rig.call()
            assert (attempt.rates.requests_limit, attempt.rates.requests_remaining) == (10, remaining)
            assert (attempt.rates.part, attempt.rates.part_reset) == (remaining / 10, 9.0)
        _, attempt = await rig.call()
        assert (attempt.status, attempt.rates) == (200, None)


def test_where_a_head_speaks_of_them_is_found_out_once() -> None:
    headers, shapes = AnswerHeaders(), Shapes()
    told, silent = [b"x-ratelimit-remaining-tokens"], [b"date", b"content-type"]
    assert headers.rates(shapes.of(told)) is not None
    assert headers.rates(shapes.of(list(told))) is headers.rates(shapes.of(told))
    assert headers.rates(shapes.of(silent)) is None
    assert set(headers._rates) == {shapes.of(told), shapes.of(silent)}


def test_a_shape_that_does_not_last_is_not_remembered() -> None:
    headers = AnswerHeaders()
    assert headers.rates(Shape((b"x-ratelimit-remaining-tokens",))) is not None
    assert not headers._rates
