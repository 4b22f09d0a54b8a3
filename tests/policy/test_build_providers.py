from __future__ import annotations

from proxy.decisions.adaptive import AdaptiveSettings
from proxy.decisions.counting import CountSettings
from proxy.decisions.quota import QuotaSettings
from proxy.policy.snapshot import AddressSnapshot, ModelSnapshot
from tests.policy.samples import load, provider


def test_rates_of_a_provider_its_keys_and_models() -> None:
    one = provider(
        "limits: {rpm: 600, tpm: 1e6, headroom: 0.9, burst: 2s}\n"
        "keys: [{id: k, env: K, rpm: 0, tpm: 2.5}, {id: l, env: L}]\n"
        "models: {m: {limits: {concurrency: 3, rpm: 5, tpm: 6}, context_tokens: 7}}"
    )
    assert (one.rpm, one.tpm, one.quota) == (600.0, 1_000_000.0, QuotaSettings(headroom=0.9, burst=2.0))
    assert [(key.rpm, key.tpm) for key in one.keys] == [(0.0, 2.5), (None, None)]
    assert one.models == (ModelSnapshot(name="m", concurrency=3, rpm=5.0, tpm=6.0, context_tokens=7),)
    assert type(one.quota.burst) is float


def test_a_model_that_the_policy_does_not_name_has_no_limits() -> None:
    one = provider("models: {m: {context_tokens: 7}}")
    assert one.model("m").context_tokens == 7
    assert one.model("other") == ModelSnapshot(name="other")


def test_how_a_provider_counts_and_refuses() -> None:
    one = provider(
        "idempotency_header: Idempotency-Key\n"
        "limits: {adaptive: {decrease: 0.5}, count: {cached_input: 0.1, reserve_output: false, unused_output: 1}}"
    )
    assert one.count == CountSettings(cached_input=0.1, reserve_output=False, unused_output=1.0)
    assert one.adaptive == AdaptiveSettings(decrease=0.5)
    assert one.idempotency_header == "Idempotency-Key"


def test_several_addresses_share_a_path_and_the_first_stands_for_them() -> None:
    urls = "['http://a.example/v1/', 'https://b.example:8443/v1', 'http://[::1]/v1']"
    (one,) = load(f"version: 1\nproviders: {{a: {{base_url: {urls}}}}}\n").providers
    assert one.addresses == (
        AddressSnapshot(scheme="http", host="a.example", port=80),
        AddressSnapshot(scheme="https", host="b.example", port=8443),
        AddressSnapshot(scheme="http", host="::1", port=80),
    )
    assert (one.base_url, one.scheme, one.host, one.port) == ("http://a.example/v1/", "http", "a.example", 80)
    assert one.root_path == "/v1"
    assert [str(address) for address in one.addresses][1:] == ["https://b.example:8443", "http://[::1]:80"]
