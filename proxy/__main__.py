"""`python -m proxy` is the `sponson` command."""

from __future__ import annotations

from proxy.cli.main import main

main(prog_name="sponson")
