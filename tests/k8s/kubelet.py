"""What kubelet does for a container: mounts that are swapped as a whole, and variables out of the manifest."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.k8s.tools import Document

FIELDS = {
    "metadata.name": "app-5d4f9c-x7k2p",
    "metadata.namespace": "shop",
    "metadata.uid": "0b9d7c52-6c1b-4f0e-9a55-1f2f3c4d5e6f",
    "spec.nodeName": "node-1",
    # No StatefulSet: a label that is missing is empty.
    "metadata.labels['apps.kubernetes.io/pod-index']": "",
}


class Volume:
    """A ConfigMap or Secret as kubelet mounts it: files are links through `..data`, which is swapped as a whole."""

    def __init__(self, place: Path, files: Mapping[str, str]) -> None:
        self.place = place
        self._version = 0
        place.mkdir(mode=0o755)
        self.swap(files)

    def swap(self, files: Mapping[str, str]) -> None:
        """Puts other contents in place."""
        link = self.place / "..data"
        old = link.resolve() if link.is_symlink() else None
        self._version += 1
        data = self.place / f"..2026_12_01.{self._version}"
        data.mkdir(mode=0o755)
        for name, text in files.items():
            (data / name).write_text(text)
            (data / name).chmod(0o644)
            if not (self.place / name).is_symlink():
                (self.place / name).symlink_to(f"..data/{name}")
        new = self.place / "..data_tmp"
        new.symlink_to(data.name)
        new.rename(link)
        if old is not None:
            shutil.rmtree(old)


def environment(container: Document, config: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Returns a container's variables as kubelet makes them; `config` has the ConfigMaps."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        found |= config[source["configMapRef"]["name"]]
    for variable in container["env"]:
        if "value" in variable:
            value = re.sub(r"\$\((\w+)\)", lambda match: found.get(match[1], match[0]), variable["value"])
        else:
            value = FIELDS[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        found[variable["name"]] = value
    return found
