"""The proxy with a spy in its process, who tells of tasks and objects: `python -m tests.soak.inside FILE COMMAND...`.

What a loop holds can only be seen from within. The spy is a thread that listens on a port of its own, which it writes
into the file; it looks when it is asked, on the loop's own thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import FrameType
from typing import Any

BLOCKS = "blocks"
"""Pieces of memory that Python has, also those that no collector knows: numbers, texts, bytes."""
COLLECTED = "collected"
"""Things that the collector has freed so far, as they referred to each other when they had ended."""
NATIVE = "native"
"""Bytes in use that Python has not handed out itself: buffers of sockets, large texts, what C libraries hold."""
COMMON = 400
"""So many types are told of, the most frequent ones."""


def main() -> None:
    """Runs the command line that follows, in this process: a Python, `-m proxy`, and its arguments."""
    threading.Thread(target=_listen, args=(Path(sys.argv[1]),), daemon=True).start()
    sys.argv = ["sponson", *sys.argv[5:]]
    from proxy.__main__ import main as proxy

    proxy()


def _listen(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        fresh = place.with_suffix(".new")
        fresh.write_text(str(server.getsockname()[1]))
        fresh.replace(place)
        while True:
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    lines.write(json.dumps(_asked(line.strip())) + "\n")
                    lines.flush()


def _asked(what: str) -> Any:
    loop = _loop(sys._current_frames().get(threading.main_thread().ident or 0))
    if loop is None:
        return None
    look: Callable[[asyncio.AbstractEventLoop], Any] = {"tasks": _tasks, "objects": _objects}[what]
    told: Future[Any] = Future()
    loop.call_soon_threadsafe(lambda: told.set_result(look(loop)))
    return told.result()


def _loop(frame: FrameType | None) -> asyncio.AbstractEventLoop | None:
    """The loop that the main thread runs: its runner stands somewhere below in the stack."""
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, asyncio.Runner):
                return value.get_loop()
        frame = frame.f_back
    return None


_MALLINFO = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc (mallinfo(3))."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in _MALLINFO.split())


def _tasks(loop: asyncio.AbstractEventLoop) -> int:
    return len(asyncio.all_tasks(loop))


def _objects(loop: asyncio.AbstractEventLoop) -> dict[str, int]:
    """Collects, gives free memory back to the system as far as glibc can, and counts what is left by type."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    native = 0
    if hasattr(libc, "mallinfo2"):
        libc.mallinfo2.restype = _MallInfo
        info = libc.mallinfo2()
        native = info.uordblks + info.hblkhd
    kinds = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    collected = sum(generation["collected"] for generation in gc.get_stats())
    told = {BLOCKS: sys.getallocatedblocks(), COLLECTED: collected, NATIVE: native}
    return {**told, **dict(kinds.most_common(COMMON))}


if __name__ == "__main__":
    main()
