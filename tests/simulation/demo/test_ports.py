"""Taken ports."""

from __future__ import annotations

import socket

import pytest

from proxy.simulation.demo.ports import check_ports, taken
from proxy.simulation.demo.problem import DemoProblem
from proxy.simulation.demo.settings import HOST, DemoSettings
from tests.simulation.demo.places import free_base_port


def test_free_ports_are_no_problem() -> None:
    check_ports(DemoSettings(base_port=free_base_port(), environ={}))


def test_a_taken_port_is_a_problem_that_names_it_and_the_cure() -> None:
    base = free_base_port()
    with socket.socket() as other:
        other.bind((HOST, base + 12))
        other.listen()
        assert taken([base, base + 12]) == [base + 12]
        with pytest.raises(DemoProblem) as caught:
            check_ports(DemoSettings(base_port=base, environ={}))
    message = str(caught.value)
    assert f"Port {base + 12}, for provider beta, is taken" in message
    assert "take other ports with --base-port" in message
    assert caught.value.code == 2
