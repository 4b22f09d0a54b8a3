"""OTEL_*: defaults, choices, and mistakes that name their variable."""

from __future__ import annotations

import pytest

from otel.attributes import GENAI_1_41, GENAI_LATEST
from otel.environment import read_environment
from proxy.trace_context import Sampler


def test_the_defaults_are_opentelemetrys() -> None:
    found = read_environment({})
    assert found.traces == found.metrics == ("otlp",)
    assert found.sampler == Sampler(ratio=1.0, follow_parent=True)
    assert found.resource == {"service.name": "sponson"}
    assert found.interval_seconds == 60
    assert found.traces_timeout == found.metrics_timeout == 2.0
    assert found.genai is GENAI_1_41


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("always_on", "", Sampler(ratio=1.0, follow_parent=False)),
        ("always_off", "", Sampler(ratio=0.0, follow_parent=False)),
        ("traceidratio", "0.25", Sampler(ratio=0.25, follow_parent=False)),
        ("parentbased_traceidratio", "0.01", Sampler(ratio=0.01, follow_parent=True)),
        ("parentbased_traceidratio", "", Sampler(ratio=1.0, follow_parent=True)),
        ("parentbased_always_off", "0.5", Sampler(ratio=0.0, follow_parent=True)),
    ],
)
def test_samplers(name: str, argument: str, expected: Sampler) -> None:
    env = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument}
    assert read_environment(env).sampler == expected


@pytest.mark.parametrize("env", [{"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "TRUE"}])
def test_without_an_exporter_no_trace_is_begun(env: dict[str, str]) -> None:
    found = read_environment(env)
    assert found.traces == ()
    assert found.sampler == Sampler(ratio=0.0, follow_parent=True)


def test_exporters_may_be_several() -> None:
    env = {"OTEL_TRACES_EXPORTER": "console, otlp", "OTEL_METRICS_EXPORTER": "prometheus"}
    found = read_environment(env)
    assert found.traces == ("console", "otlp")
    assert found.metrics == ()


def test_the_resource() -> None:
    env = {
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=x, k8s.pod.name=pod-1,team=a%2Cb,",
        "OTEL_SERVICE_NAME": "mine",
        "HOSTNAME": "pod-1",
    }
    assert read_environment(env).resource == {
        "service.name": "mine",
        "service.instance.id": "pod-1",
        "k8s.pod.name": "pod-1",
        "team": "a,b",
    }


def test_a_time_out_of_the_environment_is_left_to_the_exporter() -> None:
    found = read_environment({"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "7"})
    assert (found.traces_timeout, found.metrics_timeout) == (None, 2.0)
    found = read_environment({"OTEL_EXPORTER_OTLP_TIMEOUT": "7"})
    assert (found.traces_timeout, found.metrics_timeout) == (None, None)


def test_the_newest_genai_names_are_an_opt_in() -> None:
    env = {"OTEL_SEMCONV_STABILITY_OPT_IN": "http, gen_ai_latest_experimental"}
    assert read_environment(env).genai is GENAI_LATEST


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_SDK_DISABLED", "maybe"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_TRACES_EXPORTER", "prometheus"),
        ("OTEL_TRACES_EXPORTER", "otlp,none"),
        ("OTEL_METRICS_EXPORTER", "statsd"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "nan"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http:///v1"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://:4318"),
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://collector:99999"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector:http/v1"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://[::1/v1"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector:0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "10.5"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096"),
    ],
)
def test_a_mistake_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        read_environment({name: value})


@pytest.mark.parametrize("url", ["http://collector", "HTTPS://user@[::1]:4318/v1/traces", "http://10.0.0.1:65535/"])
def test_an_endpoint_has_a_host_and_perhaps_a_port(url: str) -> None:
    assert read_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": url}).traces == ("otlp",)


@pytest.mark.parametrize("argument", ["1.5", "-0.1", "half", "nan"])
def test_a_wrong_ratio_names_its_variable(argument: str) -> None:
    env = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": argument}
    with pytest.raises(ValueError, match="OTEL_TRACES_SAMPLER_ARG"):
        read_environment(env)


def test_what_is_not_used_is_not_checked() -> None:
    env = {
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    assert read_environment(env).metrics == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "grpc://me:tell-nobody@collector"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://me:tell-nobody@collector:99999"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector/v1/traces?token=tell-nobody"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization Bearer tell-nobody"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a, tell-nobody"),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", 'api-key="tell-nobody"'),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "api-key=tell%0Anobody"),
        ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "api key=tell-nobody"),
    ],
)
def test_a_mistake_near_a_credential_does_not_repeat_it(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name) as caught:
        read_environment({name: value})
    assert "nobody" not in str(caught.value)


@pytest.mark.parametrize("value", ["", "authorization=Bearer abc=", "a=1, b=Basic%20dXNl ,,c="])
def test_headers_are_read_as_the_exporter_reads_them(value: str) -> None:
    assert read_environment({"OTEL_EXPORTER_OTLP_HEADERS": value}).traces == ("otlp",)
