"""`sponson diff` as a command, about a policy that a real proxy runs and takes."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.harness import Lab

OLD: dict[str, Any] = {"version": 1, "providers": {"alpha": {"limits": {"concurrency": 8}}}}


def diff(old: Path, new: Path) -> subprocess.CompletedProcess[str]:
    """Runs the command without any variable of ours."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPONSON_")}
    arguments = [sys.executable, "-m", "proxy", "diff", str(old), str(new)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, env=env, check=False)


async def test_shares_after_the_reload_are_those_that_were_told(tmp_path: Path) -> None:
    async with Lab(OLD) as lab:
        old = tmp_path / "old.yaml"
        old.write_text(lab.proxy.policy_path.read_text())
        lab.proxy.rewrite({**lab.policy, "fleet": {"size": {"static": 3}}})
        done = await asyncio.to_thread(diff, old, lab.proxy.policy_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.search(r"share of an instance +8 → 2 ", done.stdout)
        async with asyncio.timeout(10):
            while (await lab.proxy.get("/policy")).json()["revision"] != 2:
                await asyncio.sleep(0.05)
        permits = (await lab.proxy.get("/status")).json()["permits"]
        assert {"limit": "provider alpha", "in_use": 0, "size": 2} in permits


async def test_caps_of_tenants_after_the_reload_are_those_that_were_told(tmp_path: Path) -> None:
    tenants = {"from": [{"header": "x-agent"}], "default": {"rps": 3, "concurrency": 4}}
    async with Lab({**OLD, "tenants": tenants}) as lab:
        assert (await lab.chat("m", headers=[("x-agent", "one")])).status == 200
        old = tmp_path / "old.yaml"
        old.write_text(lab.proxy.policy_path.read_text())
        lab.proxy.rewrite({**lab.policy, "tenants": {**tenants, "default": {"rps": 60, "concurrency": 4}}})
        done = await asyncio.to_thread(diff, old, lab.proxy.policy_path)
        assert re.search(r"default\.rps +3 → 60 ", done.stdout)
        assert "what tenants have used and have in flight stays counted" in done.stdout
        async with asyncio.timeout(10):
            while (await lab.proxy.get("/policy")).json()["revision"] != 2:
                await asyncio.sleep(0.05)
        assert (await lab.chat("m", headers=[("x-agent", "two")])).status == 200
        assert (await lab.row("tenants", tenant="two"))["rps"] == 60


def test_what_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    done = diff(tmp_path / "one.yaml", tmp_path / "two.yaml")
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr == ""
