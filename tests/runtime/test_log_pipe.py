"""A log whose reader stops, comes back, or goes: lines wait or are missing, and nobody waits for them."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.runtime.log_pipe import MOST_WAITING, PatientHandler


def a_record(text: str) -> logging.LogRecord:
    return logging.LogRecord("a.log", logging.INFO, "", 0, text, (), None)


class Pipe:
    """A pipe, its handler, and a reader that reads when it is told to."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.stream = os.fdopen(writer, "w")
        self.handler = PatientHandler(self.stream)
        self.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    def say(self, text: str) -> None:
        self.handler.handle(a_record(text))

    def read(self) -> bytes:
        """All that stands in the pipe."""
        pieces = []
        while True:
            try:
                pieces.append(os.read(self.reader, 1 << 16))
            except BlockingIOError:
                return b"".join(pieces)

    def read_some(self) -> bytes:
        """What comes next; waits for it where that was asked for."""
        return os.read(self.reader, 1 << 16)

    def read_all(self) -> list[str]:
        """All lines, those that waited too."""
        pieces = []
        while piece := self.read():
            pieces.append(piece)
            self.handler.flush()
        return b"".join(pieces).decode().splitlines()

    def close(self) -> None:
        self.stream.close()
        os.close(self.reader)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_lines_stand_there_at_once(pipe: Pipe) -> None:
    pipe.say("first")
    assert pipe.read() == b"INFO first\n"
    pipe.say("caf\udce9")
    assert pipe.read() == b"INFO caf?\n"


@pytest.mark.parametrize("length", [10, 3000, 4096, 70_000])
def test_what_a_full_pipe_does_not_take_comes_whole_and_in_order_when_somebody_reads(pipe: Pipe, length: int) -> None:
    said = [f"{number} ".ljust(length, "x") for number in range(300_000 // length)]
    for text in said:
        pipe.say(text)
    assert pipe.read_all() == [f"INFO {text}" for text in said]


def test_the_next_line_brings_those_that_wait(pipe: Pipe) -> None:
    for number in range(100):
        pipe.say(f"{number} ".ljust(1000, "x"))
    first = pipe.read()
    pipe.say("last")
    lines = (first + pipe.read()).decode().splitlines()
    assert [line.split()[1] for line in lines] == [*map(str, range(100)), "last"]


def test_what_is_beyond_the_bounds_is_missing_and_that_is_said_where_it_is_missing(pipe: Pipe) -> None:
    said = [f"{number} ".ljust(10_000, "x") for number in range(200)]
    for text in said:
        pipe.say(text)
    lines = pipe.read_all()
    pipe.say("and on")
    assert pipe.read_all() == ["INFO and on"]
    told = lines.pop()
    assert lines == [f"INFO {text}" for text in said[: len(lines)]]
    assert told == f"WARNING {200 - len(lines)} lines are missing here: nobody read the log"
    assert MOST_WAITING < sum(map(len, lines)) < MOST_WAITING + (1 << 18)


def test_a_line_larger_than_all_that_may_wait_is_not_torn(pipe: Pipe) -> None:
    huge = "x" * (2 * MOST_WAITING)
    pipe.say(huge)
    pipe.say("too many")
    assert pipe.read_all() == [f"INFO {huge}", "WARNING 1 lines are missing here: nobody read the log"]


def test_at_the_end_a_slow_reader_gets_what_waits(pipe: Pipe) -> None:
    said = [f"{number} ".ljust(1000, "x") for number in range(300)]
    for text in said:
        pipe.say(text)
    os.set_blocking(pipe.reader, True)
    pieces = [pipe.read_some()]
    assert len(pieces[0]) < 100_000

    def read() -> None:
        while piece := pipe.read_some():
            pieces.append(piece)

    reading = threading.Thread(target=read)
    reading.start()
    pipe.handler.close()
    pipe.stream.close()
    reading.join()
    assert b"".join(pieces).decode().splitlines() == [f"INFO {text}" for text in said]


def test_at_the_end_a_reader_that_has_stopped_is_not_waited_for(pipe: Pipe) -> None:
    for number in range(300):
        pipe.say(f"{number} ".ljust(1000, "x"))
    pipe.handler.close()
    assert pipe.read().startswith(b"INFO 0 ")


def test_a_reader_that_has_gone_is_no_error(pipe: Pipe, capfd: pytest.CaptureFixture[str]) -> None:
    reader = os.dup(pipe.reader)
    os.close(pipe.reader)
    os.close(reader)
    pipe.reader = os.open(os.devnull, os.O_RDONLY)
    for number in range(2000):
        pipe.say(f"{number} ".ljust(1000, "x"))
    pipe.handler.flush()
    assert capfd.readouterr().err == ""


def test_a_file_gets_every_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        handler = PatientHandler(stream)
        for number in range(3000):
            handler.handle(a_record(f"{number} ".ljust(1000, "x")))
    lines = (tmp_path / "log").read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == list(range(3000))


def test_threads_do_not_tear_each_others_lines(pipe: Pipe) -> None:
    def talk(name: str) -> None:
        for number in range(100):
            pipe.say(f"{name}{number} ".ljust(900, name))

    threads = [threading.Thread(target=talk, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = pipe.read_all()
    assert len(lines) == 300
    assert all(set(line.split()[2]) == {line.split()[1][0]} for line in lines)
