"""Reading `/metrics`."""

from __future__ import annotations

from proxy.simulation.demo.metrics import Metrics

TEXT = """# TYPE sponson_a_total counter
sponson_a_total{sponson_x="1",y="say \\"hi\\", {you}"} 2.0
sponson_a_total{sponson_x="2",y=""} 3.0
sponson_a_total{sponson_x="3",y=""} 0.0
sponson_alone 1.5e+03
not a metric line
"""


def test_totals_are_sums_over_series_with_these_labels() -> None:
    metrics = Metrics(TEXT)
    assert metrics.total("a_total") == 5
    assert metrics.total("a_total", x="2") == 3
    assert metrics.total("a_total", y='say \\"hi\\", {you}') == 2
    assert metrics.total("alone") == 1500
    assert metrics.total("missing") == 0


def test_sums_by_a_label_leave_zeros_out() -> None:
    assert Metrics(TEXT).by("a_total", "x") == {"1": 2, "2": 3}
