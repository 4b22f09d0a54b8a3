"""The Helm chart: lint, the schema of its values, and the same pods as kustomize's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from proxy.policy.load import load_policy
from proxy.policy.source import PolicyBytes
from tests.k8s.tools import K8S, Document, built, check, documents, of_kind, pod_templates, run

CHART = K8S / "chart"
ALL = ("--set", "podMonitor.enabled=true", "--set", "networkPolicy.enabled=true")

# A chart that adds Sponson to its Deployment, as the chart's own words say.
PARENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  selector: {matchLabels: {app.kubernetes.io/name: app}}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: app
        {{- include "sponson.podLabels" .Subcharts.sponson | nindent 8 }}
    spec:
      initContainers:
        {{- include "sponson.sidecar" .Subcharts.sponson | nindent 8 }}
        - {name: migrate, image: "app:1"}
      containers: [{name: app, image: "app:1"}]
      volumes:
        {{- include "sponson.volumes" .Subcharts.sponson | nindent 8 }}
"""


def template(chart: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return run("helm", "template", "trial", chart, *flags)


def rendered(chart: Path, *flags: str) -> list[Document]:
    """Returns what a chart makes of its values."""
    done = template(chart, *flags)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def bare(document: Document) -> Document:
    """Returns a document without its labels, in which tools differ."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "labels"}
    return {**document, "metadata": metadata}


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A chart of somebody else with this one as a dependency."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: app\nversion: 1.0.0\n")
    (tmp_path / "templates/app.yaml").write_text(PARENT)
    shutil.copytree(CHART, tmp_path / "charts/sponson")
    return tmp_path


def test_lint_finds_nothing() -> None:
    done = run("helm", "lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("flags", [(), ALL], ids=["as written", "everything"])
def test_every_document_is_valid(flags: tuple[str, ...]) -> None:
    found = rendered(CHART, *flags)
    assert found
    for document in found:
        check(document)


def test_it_makes_what_kustomize_makes() -> None:
    kustomize = [*built(K8S / "base"), *built(K8S / "examples/production")]
    theirs = {(each["kind"], each["metadata"]["name"]): bare(each) for each in reversed(kustomize)}
    for document in rendered(CHART, *ALL):
        if document["metadata"]["name"] == "sponson-policy":
            continue
        assert bare(document) == theirs[document["kind"], document["metadata"]["name"]]


def policy(found: list[Document]) -> str:
    """Returns the policy's text."""
    (config,) = [each for each in of_kind(found, "ConfigMap") if each["metadata"]["name"] == "sponson-policy"]
    assert list(config["data"]) == ["policy.yaml"]
    text = config["data"]["policy.yaml"]
    assert isinstance(text, str)
    return text


def test_the_policy_loads_and_is_that_of_the_base() -> None:
    ours = policy(rendered(CHART))
    load_policy(PolicyBytes(files=(("policy.yaml", ours.encode()),)))
    assert yaml.safe_load(ours) == yaml.safe_load(policy(built(K8S / "base")))


def test_another_chart_gets_the_same_pod_as_with_kustomize(parent: Path) -> None:
    found = rendered(parent)
    for document in found:
        check(document)
    (ours,), (theirs,) = pod_templates(found), pod_templates(built(K8S / "examples/deployment"))
    sidecar, migrate = ours["spec"]["initContainers"]
    assert migrate["name"] == "migrate"
    assert sidecar.pop("imagePullPolicy") == "IfNotPresent"
    assert sidecar == theirs["spec"]["initContainers"][0]
    assert ours["spec"]["volumes"] == theirs["spec"]["volumes"]
    assert ours["metadata"]["labels"]["sponson.dev/sidecar"] == "true"


def test_values_reach_the_pod(parent: Path) -> None:
    values = ("name=llm", "image.repository=mirror/sponson", "image.tag=v9", "drain=50", "keysSecret=vault")
    (pod,) = pod_templates(rendered(parent, *(part for value in values for part in ("--set", f"sponson.{value}"))))
    sidecar = pod["spec"]["initContainers"][0]
    assert sidecar["image"] == "mirror/sponson:v9"
    assert "--drain=50s" in sidecar["args"]
    assert sidecar["envFrom"] == [{"configMapRef": {"name": "llm-env", "optional": True}}]
    policy, keys = pod["spec"]["volumes"]
    assert policy["configMap"]["name"] == "llm-policy"
    assert keys["secret"]["secretName"] == "vault"


def test_a_policy_comes_from_a_file_as_it_is(tmp_path: Path) -> None:
    text = "version: 1\nproviders: {a: {base_url: 'https://a.example', limits: {tpm: 2000000}}}\n"
    (tmp_path / "policy.yaml").write_text(text)
    assert policy(rendered(CHART, "--set-file", f"policy={tmp_path / 'policy.yaml'}")) == text


@pytest.mark.parametrize(
    "value",
    ["polcy=x", "policy=hello", "image.repository=", "drain=0", "podMonitor.enabled=perhaps", "name=Not_a_name"],
)
def test_wrong_values_are_refused(value: str) -> None:
    done = template(CHART, "--set", value)
    assert done.returncode != 0
    assert "values don't meet the specifications" in done.stderr


def test_the_version_is_that_of_the_project() -> None:
    text = (CHART / "Chart.yaml").read_text()
    project = (K8S.parent / "pyproject.toml").read_text()
    version = project.split('\nversion = "', 1)[1].split('"', 1)[0]
    assert f"\nversion: {version}\nappVersion: {version}\n" in text
