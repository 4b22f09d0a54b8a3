"""The sidecar as an expression of CEL, as a MutatingAdmissionPolicy writes objects: by the type's path, Object.spec…"""

from __future__ import annotations

import json
from typing import Any

from proxy.kubernetes.fragment import LABEL, SidecarSettings, container, volumes

STEP = "  "
# Free-form mappings of the API, whose keys are no fields.
MAPS = frozenset({"requests", "limits"})
CHOSEN = SidecarSettings(
    image="variables.image", policy_configmap="variables.policy", keys_secret="variables.keys", set_base_url=False
)


def expression() -> str:
    """Returns the patches that put the sidecar first among the init containers of a pod."""
    first = cel(container(CHOSEN), "Object.spec.initContainers", STEP)
    lines = [
        *_made("metadata.labels", "{}"),
        f'[JSONPatch{{op: "add", path: "/metadata/labels/{LABEL.replace("/", "~1")}", value: "true"}}] +',
        *_made("spec.initContainers", "[]"),
        f'[JSONPatch{{op: "add", path: "/spec/initContainers/0", value: {first}}}] +',
        *_made("spec.volumes", "[]"),
        "[",
        *(
            f'{STEP}JSONPatch{{op: "add", path: "/spec/volumes/-", value: {cel(each, "Object.spec.volumes", STEP)}}},'
            for each in volumes(CHOSEN)
        ),
    ]
    return "\n".join([*lines[:-1], lines[-1].removesuffix(","), "]"]) + "\n"


def _made(path: str, empty: str) -> list[str]:
    pointer = "/" + path.replace(".", "/")
    return [f'(has(object.{path}) ? [] : [JSONPatch{{op: "add", path: "{pointer}", value: {empty}}}]) +']


def cel(value: Any, path: str, indent: str) -> str:
    """Returns a value of the API as CEL; its type is named by its path."""
    inner = indent + STEP
    match value:
        case dict() if path.rpartition(".")[2] in MAPS:
            return "{" + ", ".join(f"{json.dumps(key)}: {cel(each, path, inner)}" for key, each in value.items()) + "}"
        case dict():
            fields = [f"{key}: {cel(each, f'{path}.{key}', inner)}" for key, each in value.items()]
            short = f"{path}{{{', '.join(fields)}}}"
            if len(indent + short) <= 110 and "\n" not in short:
                return short
            return f"{path}{{\n{inner}" + f",\n{inner}".join(fields) + f"\n{indent}}}"
        case list():
            items = [cel(each, path, inner) for each in value]
            short = f"[{', '.join(items)}]"
            if len(indent + short) <= 110 and "\n" not in short:
                return short
            return f"[\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}]"
        case str() if value.startswith("variables."):
            return value
    return json.dumps(value)
