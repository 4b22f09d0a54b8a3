"""Whom forwarded traffic may reach: no spelling of what is not listed, and nothing of this machine by a name."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.decisions.destinations import (
    Destination,
    Destinations,
    Listing,
    is_guarded,
    read_authority,
    read_host,
    read_url,
)

LISTED = Destinations(
    [
        Listing(provider="a", host="api.a.example"),
        Listing(provider="a", host="10.1.2.3", port=8000),
        Listing(provider="b", host="api.b.example", port=8443),
        Listing(provider="b", host="2001:db8::1"),
    ]
)
ALLOWED = {("api.a.example", 443), ("10.1.2.3", 8000), ("api.b.example", 8443), ("2001:db8::1", 443)}
PIECES = st.sampled_from(
    [
        "api",
        "a",
        "b",
        "example",
        ".",
        "..",
        "127.0.0.1",
        "localhost",
        "0x7f",
        "0177",
        "2130706433",
        "[",
        "]",
        "::1",
        "::ffff:10.1.2.3",
        "%61",
        "%25eth0",
        "@",
        ":",
        "443",
        "8000",
        "8443",
        "0",
        "65536",
        "/",
        "\\",
        "?",
        "#",
        " ",
        "\t",
        "\x00",
        "A",
        "\uff21",
        "\u0131",
        "\u212a",
        "xn--",
        "-",
        "_",
        "10.1.2.3",
        "2001:db8::1",
        "2001:DB8:0::1",
        "http://",
    ]
)


@given(st.lists(PIECES, max_size=9).map("".join))
def test_nothing_but_what_is_listed_is_let_through(text: str) -> None:
    found = read_authority(text)
    if found is not None and LISTED.provider(found, usual=443) is not None:
        assert (found.host, found.port) in ALLOWED
        host, _, port = text.rpartition(":")
        assert int(port) == found.port
        host = host.strip("[]").lower().removesuffix(".")
        assert host == found.host or IPv6Address(host) == IPv6Address(found.host)


@pytest.mark.parametrize(
    "text",
    ["api.a.example:443", "API.A.EXAMPLE:443", "api.a.example.:443", "Api.a.Example.:0443", "10.1.2.3:8000",
     "[2001:db8::1]:443", "[2001:DB8:0:0::1]:443"],
)  # fmt: skip
def test_other_spellings_of_the_same(text: str) -> None:
    found = read_authority(text)
    assert found is not None
    assert LISTED.provider(found, usual=443) is not None


@pytest.mark.parametrize(
    "text",
    ["api.a.example", "api.a.example:", "api.a.example:0", "api.a.example:65536", "api.a.example:+443",
     "api.a.example:٤٤٣", "api.a.example..:443", "user@api.a.example:443", "user:pass@api.a.example:443",
     "api.a.example@evil.example:443", "api%2ea.example:443", "%61pi.a.example:443", "api.a.example#:443",
     "api.a.example\\@evil:443", "\uff41pi.a.example:443", "api。a。example:443", "0x0a010203:8000", "10.1.515:8000",
     "012.1.2.3:8000", "167838211:8000", "10.1.2.3.:8000", "2001:db8::1:443", "[2001:db8::1%eth0]:443",
     "[2001:db8::1%25eth0]:443", "[api.a.example]:443", "[10.1.2.3]:8000", " api.a.example:443",
     "api.a.example:443 ", "api.a.example:443\n", "http://api.a.example:443", "", ":443", "a" * 254 + ":443"],
)  # fmt: skip
def test_what_is_no_authority(text: str) -> None:
    assert read_authority(text) is None


@pytest.mark.parametrize(
    "text",
    ["[::ffff:10.1.2.3]:8000", "[::10.1.2.3]:8000", "10.1.2.3:443", "api.a.example:80", "api.b.example:443",
     "x.api.a.example:443", "a.example:443", "api.a.example.evil.example:443", "xn--api-.a.example:443",
     "169.254.169.254:80"],
)  # fmt: skip
def test_what_is_nobodys(text: str) -> None:
    found = read_authority(text)
    assert found is None or LISTED.provider(found, usual=443) is None


@given(st.ip_addresses(v=4))
def test_no_resolver_reads_an_address_where_a_name_is_read(address: IPv4Address) -> None:
    number = int(address)
    one, two, three, four = address.packed
    spellings = [str(number), hex(number), f"{one:#o}".replace("0o", "0") + f".{two}.{three}.{four}"]
    spellings += [
        f"{one}.{number & 0xFFFFFF}",
        f"{one}.{two}.{number & 0xFFFF}",
        f"{one:#x}.{two:#x}.{three:#x}.{four:#x}",
    ]
    for text in spellings:
        host = read_host(text)
        assert host is None or host == str(address) == text
    assert read_host(str(address)) == str(address)


@given(st.ip_addresses(v=6))
def test_ipv6_has_one_spelling(address: IPv6Address) -> None:
    assert read_host(f"[{address.exploded}]") == read_host(str(address)) == address.compressed


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "127.255.0.9", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.1.1", "100.100.100.200",
     "168.63.129.16", "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "ff02::1",
     "::ffff:127.0.0.1",
     "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "fd00:ec2::254",
     "no address", ""],
)  # fmt: skip
def test_addresses_that_a_name_must_not_lead_to(text: str) -> None:
    assert is_guarded(text)


@pytest.mark.parametrize("text", ["10.0.0.1", "192.168.1.1", "172.16.0.1", "1.1.1.1", "2001:db8::1", "fd12::1"])
def test_addresses_that_one_may(text: str) -> None:
    assert not is_guarded(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1"])
def test_an_address_of_this_machine_needs_its_port_listed(host: str) -> None:
    loose = Destinations([Listing(provider="a", host=host)])
    assert loose.provider(Destination(host=host, port=443), usual=443) is None
    assert loose.tunnels() == {}
    exact = Destinations([Listing(provider="a", host=host, port=443)])
    assert exact.provider(Destination(host=host, port=443), usual=443) == "a"


def test_who_lists_it_first_has_it() -> None:
    both = Destinations([Listing(provider="a", host="x.example"), Listing(provider="b", host="x.example")])
    assert both.provider(Destination(host="x.example", port=443), usual=443) == "a"


@pytest.mark.parametrize(
    ("target", "scheme", "where", "rest"),
    [
        ("http://a.example/v1/models?x=1", "http", "a.example:80", "/v1/models?x=1"),
        ("HTTPS://A.example:443/%2e%2E//x", "https", "a.example:443", "/%2e%2E//x"),
        ("http://a.example", "http", "a.example:80", "/"),
        ("http://a.example?x", "http", "a.example:80", "/?x"),
        ("https://[2001:DB8::1]:8443/", "https", "[2001:db8::1]:8443", "/"),
    ],
)
def test_whole_addresses(target: str, scheme: str, where: str, rest: str) -> None:
    found = read_url(target)
    assert found is not None
    assert (found.scheme, str(found.destination), found.target) == (scheme, where, rest)


@pytest.mark.parametrize(
    "target",
    ["/v1", "*", "a.example:443", "ftp://a.example/", "http:/a.example/", "http:///v1", "http://u@a.example/",
     "http://u:p@a.example/", "http://a.example:/", "http://a.example/#x", "http://a.example\\@b.example/", "ws://a.example/"],
)  # fmt: skip
def test_what_is_no_whole_address(target: str) -> None:
    assert read_url(target) is None


@pytest.mark.parametrize(
    ("target", "base", "leads"),
    [
        ("http://api.a.example/", "https", ("https", "api.a.example:443")),
        ("https://api.a.example/", "https", ("https", "api.a.example:443")),
        ("http://api.a.example/", "http", ("http", "api.a.example:80")),
        ("https://api.a.example/", "http", ("https", "api.a.example:443")),
        ("http://api.b.example:8443/", "https", ("https", "api.b.example:8443")),
        ("http://10.1.2.3:8000/", "http", ("http", "10.1.2.3:8000")),
    ],
)
def test_what_goes_over_tls_never_goes_in_the_clear(target: str, base: str, leads: tuple[str, str]) -> None:
    url = read_url(target)
    assert url is not None
    scheme, destination = LISTED.leads_to(url, scheme=base)
    assert (scheme, str(destination)) == leads
    owner = LISTED.provider(url.destination, usual={"http": 80, "https": 443}[url.scheme])
    assert owner is not None
    assert (scheme, destination) in LISTED.asked(owner, scheme=base)


def test_this_machine_s_resolver_reads_what_is_refused() -> None:
    """So that the list of odd spellings is no list of things that nobody would read."""
    assert socket.inet_aton("0x7f.1") == socket.inet_aton("2130706433") == socket.inet_aton("127.0.0.1")
    assert [read_host(text) for text in ("0x7f.1", "2130706433", "0177.0.0.1")] == [None, None, None]
