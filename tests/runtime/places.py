"""How policies are put in place: by a rename, and as kubelet mounts a ConfigMap."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def moved_in(file: Path, content: str) -> None:
    """Writes a file beside, some time ago, and renames it into place."""
    new = file.parent / f".{file.name}.new"
    new.write_text(content)
    os.utime(new, ns=(1, 1))
    new.rename(file)


def mounted(directory: Path, version: str, content: str) -> None:
    """Swaps a version in as kubelet does.

    A new hidden directory with the files, a link to it renamed over `..data`, links to the files through `..data`;
    then the old directory goes.
    """
    link = directory / "..data"
    old = link.resolve() if link.is_symlink() else None
    data = directory / f"..{version}"
    data.mkdir()
    (data / "policy.yaml").write_text(content)
    new = directory / "..data_tmp"
    new.symlink_to(data.name)
    new.rename(link)
    entry = directory / "policy.yaml"
    if not entry.is_symlink():
        entry.symlink_to("..data/policy.yaml")
    if old is not None:
        shutil.rmtree(old)
