"""What of a pod is in the sidecar's way: names, ports and users that are the sidecar's own."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.kubernetes.fragment import (
    ADMIN_NAME,
    ADMIN_PORT,
    DRAIN_SECONDS,
    KEYS_VOLUME,
    LISTEN_PORT,
    NAME,
    POLICY_VOLUME,
    PRE_STOP_SECONDS,
    UID,
    Mode,
)
from proxy.kubernetes.tree import Document, is_null
from proxy.kubernetes.workloads import listed, mapped

GRACE_SECONDS = 30
"""terminationGracePeriodSeconds of pods that do not say."""


def name_clashes(spec: Document) -> Iterator[str]:
    """Yields what has a name of the sidecar's, in a pod that has no sidecar yet."""
    for where in ("initContainers", "containers"):
        if any(each.get("name") == NAME for each in listed(spec, where)):
            yield f'a container of its own is named "{NAME}": give it another name'
    for volume in (POLICY_VOLUME, KEYS_VOLUME):
        if any(each.get("name") == volume for each in listed(spec, "volumes")):
            yield f'a volume of its own is named "{volume}": give it another name'


def clashes(kind: str, spec: Document, *, mode: Mode) -> Iterator[str]:
    """Yields why the pod cannot have the sidecar, and the cures."""
    for each in others(spec):
        yield from _port_clashes(each)
        yield from _user_clashes(each, spec)
    if mapped(spec, "os").get("name") == "windows":
        yield 'is for Windows, and the sidecar is for Linux: annotate the pod template with sponson.dev/inject: "false"'
    if mode is Mode.CLASSIC and (kind in ("Job", "CronJob") or spec.get("restartPolicy", "Always") != "Always"):
        yield "would never complete with a plain second container: use the mode native"


def warnings(spec: Document, *, mode: Mode) -> Iterator[str]:
    """Yields what works, but perhaps not as meant."""
    if str(spec.get("hostNetwork")).lower() == "true":
        yield f"hostNetwork: ports {LISTEN_PORT} and {ADMIN_PORT} are the node's, for one such pod a node"
    seconds = str(spec.get("terminationGracePeriodSeconds", GRACE_SECONDS))
    needed = DRAIN_SECONDS + (PRE_STOP_SECONDS if mode is Mode.CLASSIC else 0)
    if seconds.isdigit() and int(seconds) <= needed:
        yield f"terminationGracePeriodSeconds is {seconds}: calls in flight are cut; more than {needed} lets them end"


def others(spec: Document) -> list[Document]:
    """Returns all containers but the sidecar."""
    every = [*listed(spec, "initContainers"), *listed(spec, "containers")]
    return [each for each in every if each.get("name") != NAME]


def _port_clashes(container: Document) -> Iterator[str]:
    name = container.get("name")
    for port in listed(container, "ports"):
        number = str(port.get("containerPort"))
        if number in (str(LISTEN_PORT), str(ADMIN_PORT)) and port.get("protocol", "TCP") == "TCP":
            yield f'container "{name}" has port {number}, which is the sidecar\'s: let it listen on another one'
        if port.get("name") == ADMIN_NAME:
            yield f'container "{name}" has a port named "{ADMIN_NAME}": give it another name'


def _user_clashes(container: Document, spec: Document) -> Iterator[str]:
    own, pod = (mapped(each, "securityContext").get("runAsUser") for each in (container, spec))
    if str(pod if own is None or is_null(own) else own) == str(UID):
        yield (
            f'container "{container.get("name")}" runs as user {UID}, which is the sidecar\'s alone: '
            "set its securityContext.runAsUser to another one"
        )
