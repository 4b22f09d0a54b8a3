from __future__ import annotations

import random
import statistics

import pytest

from proxy.simulation.provider.latency import Distribution, Latency, parse_latency


def test_a_duration_alone_is_constant() -> None:
    assert parse_latency("200ms") == parse_latency("constant:200ms") == Latency(low=0.2)


def test_uniform_stays_in_its_range() -> None:
    latency = parse_latency("uniform:100ms,300ms")
    drawn = [latency.sample(random.Random(n)) for n in range(500)]
    assert 0.1 <= min(drawn) < 0.12
    assert 0.28 < max(drawn) <= 0.3


def test_lognormal_has_its_median_and_a_long_tail() -> None:
    latency = parse_latency("lognormal:200ms,0.5")
    rng = random.Random(1)
    drawn = sorted(latency.sample(rng) for _ in range(4000))
    assert statistics.median(drawn) == pytest.approx(0.2, rel=0.05)
    assert drawn[3960] == pytest.approx(0.2 * 3.2, rel=0.15)  # exp(0.5 × 2.326) = 3.2


def test_equal_seeds_draw_equal_latencies() -> None:
    latency = Latency(distribution=Distribution.LOGNORMAL, low=1.0, sigma=1.0)
    assert latency.sample(random.Random(7)) == latency.sample(random.Random(7))


@pytest.mark.parametrize("text", ["200ms", "uniform:0.1s,0.3s", "lognormal:0.2s,0.5"])
def test_a_latency_is_read_back_from_its_own_text(text: str) -> None:
    assert parse_latency(str(parse_latency(text))) == parse_latency(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "uniform:1s",
        "uniform:2s,1s",
        "lognormal:1s,x",
        "lognormal:1s,nan",
        "gauss:1s,1",
        "constant:",
    ],
)
def test_what_is_no_latency_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"latency|duration|uniform|lognormal"):
        parse_latency(text)
