"""Where a kind of workload has its pod template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.kubernetes.problem import Unfit
from proxy.kubernetes.tree import Document, is_null

TEMPLATE = ("spec", "template")
PLACES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "Pod"): (),
    ("", "ReplicationController"): TEMPLATE,
    ("apps", "Deployment"): TEMPLATE,
    ("apps", "StatefulSet"): TEMPLATE,
    ("apps", "DaemonSet"): TEMPLATE,
    ("apps", "ReplicaSet"): TEMPLATE,
    ("batch", "Job"): TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", *TEMPLATE),
}
"""By API group and kind; a Pod is its own template."""


def workloads(document: Any) -> Iterator[Document]:
    """Yields the workloads of a document: itself, or those of a List."""
    if not isinstance(document, dict):
        return
    if (document.get("apiVersion"), document.get("kind")) == ("v1", "List"):
        for item in listed(document, "items"):
            yield from workloads(item)
    elif _place(document) is not None:
        yield document


def template_of(workload: Document) -> Document:
    """Returns the pod template of a workload, the very mapping. Raises `Unfit`."""
    found: Any = workload
    for key in _place(workload) or ():
        found = found.get(key)
        if not isinstance(found, dict):
            raise Unfit(f"has no {'.'.join(_place(workload) or ())}: complete it")
    if not isinstance(found.get("spec"), dict) or not listed(found["spec"], "containers"):
        raise Unfit("has no containers: complete its pod's spec")
    return found  # type: ignore[no-any-return]


def name_of(workload: Document) -> str:
    """Returns kind/name, as kubectl writes it."""
    metadata = workload.get("metadata")
    name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
    return f"{workload.get('kind')}/{name or '(no name)'}"


def listed(mapping: Document, key: str) -> list[Document]:
    """Returns the list of mappings under a key, empty where there is none. Raises `Unfit`."""
    found = mapping.get(key)
    if found is None or is_null(found):
        return []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Unfit(f"has {key} that are not a list of mappings: correct them")
    return found


def mapped(mapping: Document, key: str) -> Document:
    """Returns the mapping under a key, an empty one where there is none. Raises `Unfit`."""
    found = mapping.get(key)
    if found is None or is_null(found):
        return {}
    if not isinstance(found, dict):
        raise Unfit(f"has {key} that is not a mapping: correct it")
    return found


def _place(workload: Document) -> tuple[str, ...] | None:
    version, kind = workload.get("apiVersion"), workload.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    group = version.rpartition("/")[0]
    return PLACES.get((group, kind))
