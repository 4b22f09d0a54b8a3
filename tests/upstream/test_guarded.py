"""Look-ups leave out what a name must not lead to; what is left is what is dialled."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from proxy.upstream.guarded import ForbiddenAddress, GuardedLookup, forbidden


def answering(*addresses: str) -> Any:
    """A resolver that says this."""

    def ask(host: str, port: int, **rest: Any) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return ask


async def test_what_must_not_be_reached_is_left_out() -> None:
    lookup = GuardedLookup(lambda address: address.startswith("127."), answering("127.0.0.1", "10.0.0.1"))
    assert [one["host"] for one in await lookup.resolve("a.example", 443)] == ["10.0.0.1"]
    assert lookup.hosts == {"10.0.0.1"}


async def test_where_nothing_is_left_it_is_told_why() -> None:
    lookup = GuardedLookup(lambda address: True, answering("127.0.0.1"))
    with pytest.raises(ForbiddenAddress, match="list its host and port") as caught:
        await lookup.resolve("a.example", 443)
    assert forbidden(caught.value) is caught.value
    assert forbidden(OSError("another")) is None
