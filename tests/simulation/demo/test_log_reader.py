"""Following a log."""

from __future__ import annotations

from pathlib import Path

from proxy.simulation.demo.log_reader import LogReader, bug_in


def test_lines_are_read_once_and_only_when_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b'{"n": 1}\n{"n"')
    reader = LogReader(log)
    assert list(reader.new_lines()) == [{"n": 1}]
    assert list(reader.new_lines()) == []
    with log.open("ab") as file:
        file.write(b': 2}\nplain words\n[3]\n{"n": 4}\n')
    assert list(reader.new_lines()) == [{"n": 2}, {"n": 4}]


def test_a_traceback_is_a_bug() -> None:
    assert bug_in({"level": "error", "exception": "Traceback ..."}) == "Traceback ..."
    assert bug_in({"level": "error", "msg": "policy rejected"}) == ""
