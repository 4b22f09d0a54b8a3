from __future__ import annotations

from tests.policy.difference.policies import difference, says, section, told

POLICY = "version: 1\nproviders: {a: {base_url: ['http://x/v1', 'http://y/v1']}}\n"


def of(*urls: str) -> str:
    """The policy of a provider at these addresses."""
    return f"version: 1\nproviders: {{a: {{base_url: {list(urls)}}}}}\n"


def test_an_address_that_comes_begins_closed_and_the_others_stay() -> None:
    found = section(difference(POLICY, of("http://x/v1", "http://y/v1", "http://z/v1")), "provider a")
    assert says(found)["base_url"] == ("http://x/v1, http://y:80/v1", "http://x/v1, http://y:80/v1, http://z:80/v1")
    assert "http://z:80: begins with a closed breaker and no connections, for new requests" in told(found)
    assert "addresses that stay keep their connections and breakers" in told(found)
    assert "begin anew" not in told(found)


def test_an_address_that_goes_drains() -> None:
    found = section(difference(POLICY, of("http://y/v1")), "provider a")
    assert "http://x:80: calls that run end there, idle connections close within 25s" in told(found)
    assert "begins with" not in told(found)


def test_no_address_stays() -> None:
    found = told(section(difference(POLICY, of("http://z/v1")), "provider a"))
    assert "http://z:80: begins with" in found
    assert "http://x:80, http://y:80: calls that run end there" in found
    assert "addresses that stay" not in found


def test_a_provider_without_breakers_has_none_to_close() -> None:
    off = POLICY.replace("{base_url", "{breaker: off, base_url")
    found = told(section(difference(off, off.replace("http://y", "http://z")), "provider a"))
    assert "http://z:80: begins with no connections" in found


def test_another_path_or_order_keeps_everything() -> None:
    for new in (of("http://x/v2", "http://y/v2"), of("http://y/v1", "http://x/v1")):
        found = section(difference(POLICY, new), "provider a")
        assert "the same addresses: connections and breakers stay" in told(found)
