"""`hosts`: what is a host, how it is read, and that no host belongs to two providers."""

from __future__ import annotations

import pytest

from proxy.policy.schema.hosts import split_host
from tests.policy.samples import GOOD, load, problems, provider_problems


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("api.alpha.example", "api.alpha.example", None),
        ("API.Alpha.Example.", "api.alpha.example", None),
        ("localhost:8000", "localhost", 8000),
        ("10.0.0.1", "10.0.0.1", None),
        ("10.0.0.1:65535", "10.0.0.1", 65535),
        ("[::1]", "::1", None),
        ("[0:0:0:0:0:0:0:1]:443", "::1", 443),
        ("xn--bcher-kva.example", "xn--bcher-kva.example", None),
        ("vllm_1.svc:8000", "vllm_1.svc", 8000),
    ],
)
def test_what_is_a_host(text: str, host: str, port: int | None) -> None:
    assert split_host(text) == (host, port)
    (provider,) = load(GOOD + f"    hosts: ['{text}']\n").providers
    assert [(one.host, one.port) for one in provider.hosts] == [(host, port)]


@pytest.mark.parametrize(
    "text",
    ["*.example", "bücher.example", "a.example/v1", "https://a.example", "u@a.example", "a.example:0",
     "a.example:65536",
     "a.example:x", "a.example:", "010.0.0.1", "0x7f000001", "2130706433", "1.2.3", "::1", "[fe80::1%eth0]", "a b",
     "-a",
     "a..b", ".", "[::1", "%61.example"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    (line,) = provider_problems(f"hosts: ['{text}']")
    assert "providers.a.hosts.0: expected a host such as api.example" in line


def test_a_host_belongs_to_one_provider() -> None:
    text = GOOD + "    hosts: [x.example]\n  b: {base_url: 'http://b.example/v1', hosts: [y.example, X.example]}\n"
    (line,) = problems(text)
    assert 'providers.b.hosts.1: "x.example" belongs to a provider already, at p.yaml:' in line
