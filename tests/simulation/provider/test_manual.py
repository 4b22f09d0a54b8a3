"""The manual is true: its faults are read, its flags exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import proxy.simulation.provider
from proxy.cli.sim import command
from proxy.simulation.provider.faults import FaultKind, RetryForm
from proxy.simulation.provider.grammar import parse_fault, parse_header, parse_json

MANUAL = (Path(proxy.simulation.provider.__file__).parent / "README.md").read_text("utf-8")


def test_its_faults_are_read() -> None:
    scripts = re.findall(r'--fault "([^"]+)"', MANUAL)
    headers = re.findall(r"x-sim-fault: ([^']+)'", MANUAL)
    lists = re.findall(r"/sim/faults -d '([^']+)'", MANUAL)
    assert (len(scripts), len(headers), len(lists)) == (11, 3, 1)
    faults = [*map(parse_fault, scripts), *map(parse_header, headers), *parse_json(json.loads(lists[0]))]
    assert {fault.kind for fault in faults} >= set(FaultKind) - {FaultKind.DRIP}


def test_it_names_every_flag_kind_and_form() -> None:
    flags = [option for parameter in command.params for option in parameter.opts]
    named = [*flags, *FaultKind, *RetryForm]
    assert [name for name in named if not re.search(rf"`{re.escape(name)}[ `=]", MANUAL)] == []
