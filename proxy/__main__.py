"""`python -m proxy` is the `sponson` command; so is the installed script."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Runs the command. A SIGTERM while it still imports ends it: as PID 1 it would be ignored otherwise."""
    if sys.argv[1:2] == ["run"]:
        # Nothing of what is imported is garbage; the process collects again once it is ready.
        gc.disable()
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    from proxy.cli.main import main as group

    group(prog_name="sponson")


if __name__ == "__main__":
    main()
