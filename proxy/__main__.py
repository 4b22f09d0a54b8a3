"""`python -m proxy` is the `sponson` command; so is the installed script."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Runs the command. What the proxy needs before it imports anything comes first."""
    if sys.argv[1:2] == ["run"]:
        # Nothing of what is imported is garbage; the process collects again once it is ready.
        gc.disable()
        _heed_signals()
        _replace_closed_streams()
    from proxy.cli.main import main as group

    group(prog_name="sponson")


def _heed_signals() -> None:
    """A signal to end ends a process that still imports (PID 1 would not even hear it); SIGHUP never does."""
    signal.signal(signal.SIGHUP, lambda number, frame: None)
    # SIGTERM last: who sees that it is heeded knows of the others too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os._exit(0))


def _replace_closed_streams() -> None:
    """Opens the null device where a standard stream is closed: else the next socket would stand in its place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for as long as the process lives


if __name__ == "__main__":
    main()
