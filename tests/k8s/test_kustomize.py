"""What kustomize builds of `k8s/`: valid, locked down, in the right order, with policies that load."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from proxy.policy.load import load_policy
from proxy.policy.source import PolicyBytes
from tests.k8s.tools import K8S, Document, built, check, of_kind, pod_templates

FOLDERS = sorted(file.parent for file in K8S.rglob("kustomization.yaml"))
COMPONENTS = [folder for folder in FOLDERS if "components" in folder.parts]
BUILDS = [folder for folder in FOLDERS if folder not in COMPONENTS]
EXAMPLES = [folder for folder in BUILDS if folder.parent.name == "examples"]
GRACE_SECONDS = 30
"""terminationGracePeriodSeconds where a pod does not say."""


def name_of(folder: Path) -> str:
    return folder.relative_to(K8S).as_posix()


@pytest.fixture(params=BUILDS, ids=name_of)
def everything(request: pytest.FixtureRequest) -> list[Document]:
    """All that one folder builds."""
    return built(request.param)


@pytest.fixture(params=EXAMPLES, ids=name_of)
def example(request: pytest.FixtureRequest) -> list[Document]:
    """All that one example builds."""
    return built(request.param)


def sponson(template: Document, where: str) -> Document:
    """Returns our container of a pod template."""
    (found,) = [container for container in template["spec"][where] if container["name"] == "sponson"]
    assert isinstance(found, dict)
    return found


def our(template: Document) -> Document:
    native = [container["name"] for container in template["spec"].get("initContainers", ())]
    return sponson(template, "initContainers" if "sponson" in native else "containers")


def built_with(component: str, tmp_path: Path) -> list[Document]:
    """Returns what base, a Deployment without Sponson, a Job and one component make."""
    k8s = os.path.relpath(K8S, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{k8s}/base, bare.yaml, job.yaml]\ncomponents: [{k8s}/components/{component}]\n"
    )
    (tmp_path / "bare.yaml").write_bytes((K8S / "examples/deployment/deployment.yaml").read_bytes())
    (tmp_path / "job.yaml").write_bytes((K8S / "examples/job/job.yaml").read_bytes())
    return built(tmp_path)


def test_there_is_something_to_build() -> None:
    assert {name_of(folder) for folder in BUILDS} >= {"base", "examples/deployment", "examples/job"}
    assert {folder.name for folder in COMPONENTS} >= {"sidecar", "classic"}


def test_every_document_is_valid(everything: list[Document]) -> None:
    assert everything
    for document in everything:
        check(document)


def test_names_are_given_once(everything: list[Document]) -> None:
    names = [(document["kind"], document["metadata"]["name"]) for document in everything]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("component", [folder.name for folder in COMPONENTS])
def test_every_component_builds_alone(component: str, tmp_path: Path) -> None:
    for document in built_with(component, tmp_path):
        check(document)


def test_a_field_that_the_api_does_not_know_is_seen() -> None:
    (account,) = of_kind(built(K8S / "base"), "ServiceAccount")
    with pytest.raises(Exception, match="automount"):
        check({**account, "automount": False})


def test_policies_load_and_their_keys_are_mounted(everything: list[Document]) -> None:
    for policy in of_kind(everything, "ConfigMap"):
        if policy["metadata"]["name"] != "sponson-policy":
            continue
        assert "immutable" not in policy
        for name, text in policy["data"].items():
            load_policy(PolicyBytes(files=((name, text.encode()),)))
            for key in re.findall(r"file: /etc/sponson/keys/(\w+)", text):
                (secret,) = of_kind(built(K8S / "examples/keys"), "Secret")
                assert key in secret["stringData"]


def test_the_policy_keeps_its_name_so_that_it_reloads(example: list[Document]) -> None:
    names = {document["metadata"]["name"] for document in of_kind(example, "ConfigMap")}
    assert names in ({"sponson-policy", "sponson-env"}, set())


def test_limits_are_divided_by_all_pods_that_there_may_be(example: list[Document]) -> None:
    pods = 0
    for document in example:
        spec = document.get("spec", {})
        if document["kind"] == "Deployment":
            pods += spec["replicas"] + spec["strategy"].get("rollingUpdate", {}).get("maxSurge", 0)
        if document["kind"] in ("Job", "CronJob"):
            pods += 1
    for policy in of_kind(example, "ConfigMap"):
        for text in policy["data"].values():
            if "version: 1" in text:
                assert yaml.safe_load(text)["fleet"] == {"size": {"static": pods}}


def test_every_pod_has_sponson_once_locked_down(example: list[Document]) -> None:
    for template in pod_templates(example):
        container = our(template)
        assert template["metadata"]["labels"]["sponson.dev/sidecar"] == "true"
        assert container["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert all(mount["readOnly"] for mount in container["volumeMounts"])
        assert "cpu" not in container["resources"]["limits"]


def test_volumes_are_whole_directories_that_exist(example: list[Document]) -> None:
    for template in pod_templates(example):
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        for mount in our(template)["volumeMounts"]:
            assert "subPath" not in mount
            assert mount["name"] in volumes
        names = {(document["kind"], document["metadata"]["name"]) for document in example}
        assert ("ConfigMap", volumes["sponson-policy"]["configMap"]["name"]) in names
        assert ("Secret", volumes["sponson-keys"]["secret"]["secretName"]) in names


def test_probes_ask_the_port_that_all_interfaces_have(example: list[Document]) -> None:
    for template in pod_templates(example):
        container = our(template)
        (port,) = container["ports"]
        assert f"--admin=:{port['containerPort']}" in container["args"]
        assert "--listen=127.0.0.1:4000" in container["args"]
        for probe, path in (("startup", "/startupz"), ("readiness", "/readyz"), ("liveness", "/livez")):
            assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": port["name"]}


def test_it_has_ended_before_its_pod_is_killed(example: list[Document]) -> None:
    for template in pod_templates(example):
        container = our(template)
        (drain,) = [int(arg[8:-1]) for arg in container["args"] if arg.startswith("--drain=")]
        hook = container.get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})
        program, seconds = hook["exec"]["command"]
        assert program == "sleep"
        assert drain + int(seconds) < template["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)


def test_variables_are_expanded_from_those_before_them(example: list[Document]) -> None:
    for template in pod_templates(example):
        earlier: set[str] = set()
        for variable in our(template)["env"]:
            assert set(re.findall(r"\$\((\w+)\)", variable.get("value", ""))) <= earlier
            earlier.add(variable["name"])


def test_the_native_sidecar_comes_first(tmp_path: Path) -> None:
    for template in pod_templates(built_with("sidecar", tmp_path)):
        names = [container["name"] for container in template["spec"]["initContainers"]]
        assert names in (["sponson", "migrate"], ["sponson"])
        container = sponson(template, "initContainers")
        assert container["restartPolicy"] == "Always"
        assert "--linger=0s" in container["args"]
        assert "sponson" not in [container["name"] for container in template["spec"]["containers"]]


def test_the_plain_container_leaves_jobs_alone(tmp_path: Path) -> None:
    deployment, job = pod_templates(built_with("classic", tmp_path))
    names = [container["name"] for container in deployment["spec"]["containers"]]
    assert sorted(names) == ["app", "sponson"]
    assert "restartPolicy" not in sponson(deployment, "containers")
    assert [container["name"] for container in job["spec"]["containers"]] == ["embed"]


def test_both_kinds_of_container_are_the_same_but_for_their_end(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    native = our(pod_templates(built_with("sidecar", tmp_path / "a"))[0])
    plain = our(pod_templates(built_with("classic", tmp_path / "b"))[0])
    for container in (native, plain):
        container["args"] = [arg for arg in container["args"] if not arg.startswith("--linger")]
    del native["restartPolicy"], plain["lifecycle"]
    assert native == plain


def test_a_cron_job_gets_what_other_workloads_get() -> None:
    job, scheduled = sorted(pod_templates(built(K8S / "examples/job")), key=lambda each: len(str(each["metadata"])))
    assert our(job) == our(scheduled)
    assert job["spec"]["volumes"] == scheduled["spec"]["volumes"]


def test_the_image_may_be_replaced(tmp_path: Path) -> None:
    k8s = os.path.relpath(K8S, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(
        f"resources: [{k8s}/examples/deployment]\nimages: [{{name: sponson, newName: mirror/sponson, newTag: v9}}]\n"
    )
    (template,) = pod_templates(built(tmp_path))
    assert our(template)["image"] == "mirror/sponson:v9"


def test_the_monitor_names_the_port_and_the_pods(tmp_path: Path) -> None:
    found = built(K8S / "examples/production")
    (monitor,), (template,) = of_kind(found, "PodMonitor"), pod_templates(found)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == our(template)["ports"][0]["name"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_the_network_policy_shuts_the_admin_port_and_nothing_else_of_the_application() -> None:
    found = built(K8S / "examples/production")
    (policy,), (template,) = of_kind(found, "NetworkPolicy"), pod_templates(found)
    spec = policy["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (admin,) = [port["containerPort"] for port in our(template)["ports"]]
    shut = set(range(1, 65536))
    for rule in spec["ingress"]:
        for port in rule["ports"]:
            if "from" not in rule and port["protocol"] == "TCP":
                shut -= set(range(port["port"], port["endPort"] + 1))
    assert shut == {admin}
    assert [rule["ports"] for rule in spec["ingress"] if "from" in rule] == [[{"protocol": "TCP", "port": admin}]]


def test_the_account_may_do_nothing_unless_it_is_told_to_look(tmp_path: Path) -> None:
    (account,) = of_kind(built(K8S / "base"), "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    assert of_kind(built(K8S / "examples/production"), "Role") == []
    found = built_with("endpoints", tmp_path)
    (role,), (binding,) = of_kind(found, "Role"), of_kind(found, "RoleBinding")
    assert role["rules"] == [
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]


def test_files_of_manifests_are_all_used() -> None:
    """What no kustomization names is forgotten, or belongs to it."""
    for folder in (K8S / "base", *COMPONENTS, *EXAMPLES):
        text = (folder / "kustomization.yaml").read_text()
        for file in folder.iterdir():
            assert file.is_dir() or file.name == "kustomization.yaml" or file.name in text, file


def test_commands_of_the_manual_name_what_exists() -> None:
    manual = (K8S / "README.md").read_text()
    for path in re.findall(r"k8s/[\w/.-]+", manual):
        assert (K8S.parent / path).exists(), path
    for folder in (*COMPONENTS, *EXAMPLES):
        assert f"`{folder.name}`" in manual or f"k8s/{name_of(folder)}" in manual, folder
