"""Which connections lead back to this process."""

from __future__ import annotations

import socket

import pytest

from proxy.runtime.listeners import OwnPorts


@pytest.mark.parametrize(
    ("remote", "here", "leads_back"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.9", "127.0.0.1", True),
        ("::1", "::1", True),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.6", "10.0.0.5", False),
        ("fe80::2%eth0", "fe80::1%eth0", False),
    ],
)
def test_what_stays_on_this_machine_and_has_a_port_of_ours(remote: str, here: str, leads_back: bool) -> None:
    own = OwnPorts()
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        own.add([bound])
    assert own(remote, port, here) is leads_back
    assert own(remote, port + 1, here) is False
