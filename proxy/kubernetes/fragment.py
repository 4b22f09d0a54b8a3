"""The sidecar: what a pod gets, as `k8s/components/sidecar` and `classic` have it too (tests hold them equal)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from proxy.kubernetes.tree import Document

NAME = "sponson"
LABEL = "sponson.dev/sidecar"
"""On pods that have the sidecar; monitors and network policies find them by it."""
UID = 65532
LISTEN_PORT = 4000
ADMIN_PORT = 4001
ADMIN_NAME = "sponson-admin"
POLICY_VOLUME = "sponson-policy"
KEYS_VOLUME = "sponson-keys"
DRAIN_SECONDS = 20
PRE_STOP_SECONDS = 5
BASE_URLS = (
    ("OPENAI_BASE_URL", f"http://127.0.0.1:{LISTEN_PORT}/v1"),
    ("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{LISTEN_PORT}"),
)
"""The variables that the providers' own clients read."""


class Mode(StrEnum):
    """How the sidecar stands in its pod."""

    NATIVE = "native"
    """An init container that stays: Kubernetes 1.29 or newer."""
    CLASSIC = "classic"
    """A plain second container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """What of the sidecar can be chosen."""

    mode: Mode = Mode.NATIVE
    image: str = "sponson:0.1.0"
    policy_configmap: str = "sponson-policy"
    keys_secret: str = "sponson-keys"
    cpu_request: str = "50m"
    memory_request: str = "96Mi"
    memory_limit: str = "384Mi"
    set_base_url: bool = False
    """Whether the application's containers get the addresses of `BASE_URLS`."""


def container(settings: SidecarSettings) -> Document:
    """Returns the sidecar's container."""
    native = settings.mode is Mode.NATIVE
    linger = "0s" if native else "2s"
    return {
        "name": NAME,
        "image": settings.image,
        **({"restartPolicy": "Always"} if native else {}),
        "args": [
            "run",
            "--policy=/etc/sponson/policy",
            f"--listen=127.0.0.1:{LISTEN_PORT}",
            f"--admin=:{ADMIN_PORT}",
            f"--linger={linger}",
            f"--drain={DRAIN_SECONDS}s",
        ],
        "ports": [{"name": ADMIN_NAME, "containerPort": ADMIN_PORT, "protocol": "TCP"}],
        "env": _env(),
        "envFrom": [{"configMapRef": {"name": "sponson-env", "optional": True}}],
        "startupProbe": _probe("/startupz", period=1, timeout=2, failures=60),
        "readinessProbe": _probe("/readyz", period=5, timeout=2, failures=2),
        "livenessProbe": _probe("/livez", period=10, timeout=5, failures=3),
        **({} if native else {"lifecycle": {"preStop": {"exec": {"command": ["sleep", str(PRE_STOP_SECONDS)]}}}}),
        "resources": {
            "requests": {"cpu": settings.cpu_request, "memory": settings.memory_request},
            "limits": {"memory": settings.memory_limit},
        },
        "securityContext": _security(),
        "volumeMounts": [
            {"name": POLICY_VOLUME, "mountPath": "/etc/sponson/policy", "readOnly": True},
            {"name": KEYS_VOLUME, "mountPath": "/etc/sponson/keys", "readOnly": True},
        ],
    }


def volumes(settings: SidecarSettings) -> list[Document]:
    """Returns the volumes that the container mounts."""
    return [
        {"name": POLICY_VOLUME, "configMap": {"name": settings.policy_configmap}},
        {"name": KEYS_VOLUME, "secret": {"secretName": settings.keys_secret}},
    ]


def _env() -> list[Document]:
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_UID": "metadata.uid",
        "NODE_NAME": "spec.nodeName",
    }
    attributes = {
        "k8s.namespace.name": "$(POD_NAMESPACE)",
        "k8s.pod.name": "$(POD_NAME)",
        "k8s.pod.uid": "$(POD_UID)",
        "k8s.node.name": "$(NODE_NAME)",
        "k8s.container.name": NAME,
        "service.instance.id": f"$(POD_NAMESPACE).$(POD_NAME).{NAME}",
    }
    told = ",".join(f"{name}={value}" for name, value in attributes.items())
    return [
        *(_from_field(name, path) for name, path in fields.items()),
        {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": told},
        # A StatefulSet numbers its pods; elsewhere the label is missing, and empty means unknown.
        _from_field("SPONSON_INSTANCE_INDEX", "metadata.labels['apps.kubernetes.io/pod-index']"),
    ]


def _from_field(name: str, path: str) -> Document:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, *, period: int, timeout: int, failures: int) -> Document:
    return {
        "httpGet": {"path": path, "port": ADMIN_NAME},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _security() -> Document:
    return {
        "runAsNonRoot": True,
        "runAsUser": UID,
        "runAsGroup": UID,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
