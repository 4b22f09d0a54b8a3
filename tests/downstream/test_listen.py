from __future__ import annotations

import errno
import socket

import pytest

from proxy.downstream.listen import UNSENT_BYTES, CannotListen, ListenAddress, bind, parse_address, why_not


def closed(sockets: list[socket.socket]) -> list[tuple[str, int]]:
    names = [bound.getsockname()[:2] for bound in sockets]
    for bound in sockets:
        bound.close()
    return names


def has_ipv6_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:4000", "127.0.0.1", 4000),
        ("[::1]:4000", "::1", 4000),
        (":4000", "", 4000),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_addresses_are_read(text: str, host: str, port: int) -> None:
    assert parse_address(text) == ListenAddress(host=host, port=port)


@pytest.mark.parametrize(
    "text", ["", "4000", "127.0.0.1", "127.0.0.1:", "a:b", "a:65536", "a:-1", "a:٤٠", "a: 1", "[::1]"]
)
def test_what_is_no_address_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT") as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["127.0.0.1:4000", "[::1]:4000", ":4000"])
def test_an_address_reads_as_it_was_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.skipif(not has_ipv6_loopback(), reason="no IPv6 here")
@pytest.mark.parametrize(("host", "hosts"), [("127.0.0.1", ["127.0.0.1", "::1"]), ("", ["0.0.0.0", "::"])])
def test_both_families_are_bound_to_one_port(host: str, hosts: list[str]) -> None:
    names = closed(bind(ListenAddress(host=host, port=0)))
    assert [name for name, _ in names] == hosts
    assert names[0][1] == names[1][1] != 0


@pytest.mark.parametrize("host", ["127.0.0.2", "::1"])
def test_any_other_address_is_bound_alone(host: str) -> None:
    if host == "::1" and not has_ipv6_loopback():
        pytest.skip("no IPv6 here")
    assert [name for name, _ in closed(bind(ListenAddress(host=host, port=0)))] == [host]


def test_bound_sockets_do_not_block() -> None:
    sockets = bind(ListenAddress(host="127.0.0.1", port=0))
    assert all(not bound.getblocking() for bound in sockets)
    closed(sockets)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_that_is_taken_in_either_family_is_named_with_the_cure(family: socket.AddressFamily) -> None:
    if family == socket.AF_INET6 and not has_ipv6_loopback():
        pytest.skip("no IPv6 here")
    with socket.socket(family) as holder:
        holder.bind(("127.0.0.1" if family == socket.AF_INET else "::1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(CannotListen) as caught:
            bind(ListenAddress(host="127.0.0.1", port=port))
        assert f"127.0.0.1:{port}" in str(caught.value)
        assert "another process has it; stop it or choose another port" in str(caught.value)
        if family == socket.AF_INET6:
            closed(bind(ListenAddress(host="127.0.0.2", port=port)))


def test_an_address_that_this_machine_does_not_have_is_named() -> None:
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1:0: this machine does not have the address; choose"):
        bind(ListenAddress(host="192.0.2.1", port=0))


@pytest.mark.parametrize("host", ["nowhere.invalid", "no..where", "ä" * 64])
def test_a_host_that_is_no_address_is_named_with_the_cure(host: str) -> None:
    with pytest.raises(CannotListen, match=f"{host}:0: .*; write an address of this machine"):
        bind(ListenAddress(host=host, port=0))


def test_who_may_not_take_a_port_is_told_what_would_help() -> None:
    assert "choose one from 1024 on" in why_not(OSError(errno.EACCES, "Permission denied"))


def test_what_has_no_cure_is_told_as_the_system_says_it() -> None:
    assert why_not(OSError(errno.EMFILE, "Too many open files")) == "Too many open files"


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="this system names its settings otherwise")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_client_that_vanishes_is_noticed_and_one_that_reads_slowly_too(host: str) -> None:
    if host == "::1" and not has_ipv6_loopback():
        pytest.skip("no IPv6 here")
    (bound, *others) = bind(ListenAddress(host=host, port=0))
    bound.listen()
    with socket.create_connection(bound.getsockname()[:2]):
        bound.setblocking(True)
        client, _ = bound.accept()
        idle, between, count = (
            client.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert idle + between * count <= 120
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == UNSENT_BYTES
        client.close()
    closed([bound, *others])
