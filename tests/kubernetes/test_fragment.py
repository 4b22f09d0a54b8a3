"""The sidecar that is added is the one of the kustomize components."""

from __future__ import annotations

import pytest
import yaml

from proxy.kubernetes.fragment import LABEL, Mode, SidecarSettings, container, volumes
from tests.k8s.tools import K8S, pod_templates


@pytest.mark.parametrize(
    ("file", "mode", "where"),
    [
        ("sidecar/workload.yaml", Mode.NATIVE, "initContainers"),
        ("sidecar/cron-job.yaml", Mode.NATIVE, "initContainers"),
        ("classic/workload.yaml", Mode.CLASSIC, "containers"),
    ],
)
def test_it_is_the_components(file: str, mode: Mode, where: str) -> None:
    (template,) = pod_templates([yaml.safe_load((K8S / "components" / file).read_text())])
    settings = SidecarSettings(mode=mode)
    assert template["spec"] == {where: [container(settings)], "volumes": volumes(settings)}
    assert template["metadata"] == {"labels": {LABEL: "true"}}
