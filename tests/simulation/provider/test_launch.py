from __future__ import annotations

import pytest

from proxy.simulation.provider.launch import parse_address, parse_listen
from proxy.simulation.provider.settings import SettingsError


def test_addresses_are_read_with_and_without_a_name() -> None:
    assert parse_address("[::1]:9001") == ("::1", 9001)
    assert parse_listen("127.0.0.1:0") == ("sim", "127.0.0.1", 0)
    assert parse_listen("alpha=localhost:9001") == ("alpha", "localhost", 9001)


@pytest.mark.parametrize("text", ["", "9001", ":9001", "host:", "host:port", "host:65536", "=host:1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="write"):
        parse_listen(text)
