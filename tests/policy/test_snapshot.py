from __future__ import annotations

import subprocess
import sys


def test_the_snapshot_brings_no_parser_with_it() -> None:
    code = "import proxy.policy.snapshot, sys; print(*({'yaml', 'pydantic', 'click'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
