"""Destinations: whom forwarded traffic may reach (`semantics.md` §9). An allow-list: what is not on it is refused.

Names are compared in one spelling, addresses in another; what only a resolver would take for an address (octal, hex, a
single number) is neither. A name that says no port leads to nothing of this machine or its neighbours: loopback,
link-local and metadata addresses are reached only where that very host and port are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
TUNNEL_PORT: Final = 443
"""What a tunnel may lead to where no port is listed."""
LONGEST_NAME: Final = 253
_LABEL: Final = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_is_name: Final = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}").fullmatch
_ends_in_number: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)").fullmatch
_authority: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?").fullmatch
_url: Final = re.compile(r"(https?)://([^/?#]*)((?:[/?][^#]*)?)", re.IGNORECASE).fullmatch
_EMBEDDING: Final = ip_network("64:ff9b::/96")
"""NAT64 (RFC 6052): the last four bytes are an IPv4 address."""
_HERE: Final = ip_network("0.0.0.0/8")
_METADATA: Final = frozenset(
    {
        ip_address("100.100.100.200"),
        ip_address("168.63.129.16"),
        ip_address("192.0.0.192"),
        ip_address("fd00:ec2::254"),
        ip_address("fd20:ce::254"),
    }
)
"""Where clouds tell machines their secrets, beside the link-local addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """A host, in the one spelling of `read_host`, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedUrl:
    """A target in absolute form; `target` is what remains for the server, as it was written."""

    scheme: str
    destination: Destination
    target: str

    @property
    def usual(self) -> bool:
        """Whether the port is its scheme's own."""
        return self.destination.port == DEFAULT_PORTS[self.scheme]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One entry of a provider's `hosts`; `port` None: the usual ones."""

    provider: str
    host: str
    port: int | None = None


def read_host(text: str) -> str | None:
    """Returns the one spelling of a name or address (IPv6 in brackets or without), None for what is neither."""
    if not text.isascii():
        return None
    if ":" in text or text.startswith("["):
        return _read_ipv6(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    low = text.lower()
    name = low.removesuffix(".")
    if len(name) > LONGEST_NAME or not _is_name(name):
        return None
    return _read_ipv4(low) if _ends_in_number(name) else name


def read_authority(text: str, *, port: int | None = None) -> Destination | None:
    """Reads `host:port`; without a port it is `port`, and without that no authority. None for what is none."""
    match = _authority(text)
    host = read_host(match[1]) if match is not None else None
    if match is None or host is None:
        return None
    number = int(match[2]) if match[2] else port
    return Destination(host=host, port=number) if number is not None and 0 < number < 65536 else None


def read_url(target: str) -> AskedUrl | None:
    """Reads a target in absolute form (RFC 9112 §3.2.2), None for what is none: no user, and no fragment."""
    match = _url(target)
    if match is None:
        return None
    scheme, rest = match[1].lower(), match[3]
    destination = read_authority(match[2], port=DEFAULT_PORTS[scheme])
    if destination is None:
        return None
    return AskedUrl(scheme=scheme, destination=destination, target=rest if rest.startswith("/") else f"/{rest}")


def is_guarded(address: str) -> bool:
    """Whether an IP address leads to this machine, its neighbours or its cloud's secrets; what is none does, too."""
    try:
        one = _inner(ip_address(address.partition("%")[0]))
    except ValueError:
        return True
    if one.is_loopback or one.is_link_local or one.is_multicast or one.is_unspecified or one in _METADATA:
        return True
    return isinstance(one, IPv4Address) and (one in _HERE or one.is_reserved)


class Destinations:
    """What is listed. Where two providers list the same, it belongs to the first."""

    __slots__ = ("_exact", "_hosts", "_loose")

    def __init__(self, listings: Iterable[Listing]) -> None:
        self._exact: dict[Destination, str] = {}
        self._loose: dict[str, str] = {}
        self._hosts: dict[str, set[str]] = {}
        for one in listings:
            self._hosts.setdefault(one.provider, set()).add(one.host)
            if one.port is not None:
                self._exact.setdefault(Destination(host=one.host, port=one.port), one.provider)
            elif not _is_guarded_literal(one.host):
                self._loose.setdefault(one.host, one.provider)

    def provider(self, destination: Destination, *, usual: int) -> str | None:
        """Returns whose it is; None: nobody's. A host that is listed without a port is so for the `usual` one."""
        found = self._exact.get(destination)
        if found is None and destination.port == usual:
            found = self._loose.get(destination.host)
        return found

    def lists(self, destination: Destination) -> bool:
        """Whether that very host and port are listed."""
        return destination in self._exact

    def tunnels(self) -> dict[Destination, str]:
        """Returns everything that a tunnel may lead to, and whose it is."""
        loose = {Destination(host=host, port=TUNNEL_PORT): provider for host, provider in self._loose.items()}
        return {**loose, **self._exact}

    def asked(self, provider: str, *, scheme: str) -> set[tuple[str, Destination]]:
        """Returns where requests to a provider may go, whose `base_url` has this scheme (`leads_to`)."""
        exact = {one for one, whose in self._exact.items() if whose == provider}
        loose = {host for host, whose in self._loose.items() if whose == provider}
        schemes = {"https", scheme}
        return {(each, one) for each in schemes for one in exact} | {
            (each, Destination(host=host, port=DEFAULT_PORTS[each])) for each in schemes for host in loose
        }

    def leads_to(self, url: AskedUrl, *, scheme: str) -> tuple[str, Destination]:
        """Returns the scheme and address of a request to a provider whose `base_url` has this scheme.

        What goes to a provider over TLS never goes there in the clear, whatever the caller writes.
        """
        used = "https" if "https" in (url.scheme, scheme) else "http"
        if self.lists(url.destination) or not url.usual:
            return used, url.destination
        return used, Destination(host=url.destination.host, port=DEFAULT_PORTS[used])

    def hosts(self, provider: str) -> frozenset[str]:
        """Returns all names of a provider."""
        return frozenset(self._hosts.get(provider, ()))

    def __repr__(self) -> str:
        return f"<Destinations {len(self._exact)} with a port, {len(self._loose)} without>"


def _read_ipv4(text: str) -> str | None:
    try:
        return str(IPv4Address(text))
    except ValueError:
        return None


def _read_ipv6(text: str) -> str | None:
    try:
        return IPv6Address(text).compressed if "%" not in text else None
    except ValueError:
        return None


def _inner(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Returns the IPv4 address that an IPv6 one stands for, where it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _EMBEDDING or (int(address) >> 32 == 0 and int(address) > 1):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _is_guarded_literal(host: str) -> bool:
    return (":" in host or bool(_ends_in_number(host))) and is_guarded(host)
