"""Which policy file the demo uses: one that may be edited while it runs."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

from proxy.simulation.demo.settings import BASE_PORT, HOST, PROVIDERS

NAME = "local.yaml"
SCHEMA = "policy.schema.json"


def policy_file(base_port: int, folder: Path) -> Path:
    """Returns the checkout's own `policies/local.yaml`, else a copy in `folder` with these ports.

    In a checkout `_policies` is a link; an installed file is no place for edits.
    """
    policies = Path(str(files("proxy"))) / "_policies"
    if base_port == BASE_PORT and policies.is_symlink():
        return (policies / NAME).resolve()
    shutil.copyfile(policies / SCHEMA, folder / SCHEMA)
    copy = folder / NAME
    copy.write_text(moved((policies / NAME).read_text(encoding="utf-8"), base_port), encoding="utf-8")
    return copy


def moved(policy: str, base_port: int) -> str:
    """Returns the policy with the providers' ports counted from another base."""
    for offset in PROVIDERS.values():
        policy = policy.replace(f"{HOST}:{BASE_PORT + offset}/", f"{HOST}:{base_port + offset}/")
    return policy
