from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.kubernetes.fragment import Mode, SidecarSettings
from proxy.kubernetes.injection import NONE_FOUND, inject
from proxy.kubernetes.problem import ManifestError
from tests.k8s.tools import Document, check, documents, pod_templates

DEFAULT = SidecarSettings()
CLASSIC = SidecarSettings(mode=Mode.CLASSIC)
APP: Document = {"name": "app", "image": "app:1"}


def pod(**spec: Any) -> Document:
    return {"containers": [APP], **spec}


def workload(kind: str = "Deployment", spec: Document | None = None, **notes: str) -> Document:
    metadata: Document = {"labels": {"app": "app"}}
    if notes:
        metadata["annotations"] = {f"sponson.dev/{key}": value for key, value in notes.items()}
    never = {"restartPolicy": "Never"} if kind in ("Job", "CronJob") else {}
    template = {"metadata": metadata, "spec": {**never, **(spec or pod())}}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, **template, "metadata": {"name": "app", **metadata}}
    outer: Document = {"template": template}
    if kind not in ("Job", "CronJob"):
        outer["selector"] = {"matchLabels": {"app": "app"}}
    if kind == "StatefulSet":
        outer["serviceName"] = "app"
    if kind == "CronJob":
        outer = {"schedule": "0 3 * * *", "jobTemplate": {"spec": outer}}
    group = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "app"}, "spec": outer}


def injected(document: Document, chosen: SidecarSettings = DEFAULT) -> Document:
    text = inject(yaml.safe_dump(document, sort_keys=False), chosen).text
    assert inject(text, chosen).text == text
    (found,) = documents(text)
    check(found)
    return found


def spec_of(document: Document) -> Document:
    found = document["spec"] if document["kind"] == "Pod" else pod_templates([document])[0]["spec"]
    assert isinstance(found, dict)
    return found


def names(spec: Document, where: str) -> list[str]:
    return [each["name"] for each in spec.get(where, ())]


def refused(document: Document, chosen: SidecarSettings = DEFAULT) -> str:
    with pytest.raises(ManifestError) as caught:
        inject(yaml.safe_dump(document), chosen)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob", "Pod"])
def test_every_kind_of_workload_gets_it_and_is_valid(kind: str) -> None:
    spec = spec_of(injected(workload(kind)))
    assert names(spec, "initContainers") == ["sponson"]
    assert spec["containers"] == [APP]


def test_it_comes_before_all_init_containers_and_they_keep_their_order() -> None:
    mesh = {"name": "mesh", "image": "m", "restartPolicy": "Always"}
    spec = spec_of(injected(workload(spec=pod(initContainers=[{"name": "migrate", "image": "m"}, mesh]))))
    assert names(spec, "initContainers") == ["sponson", "migrate", "mesh"]


def test_a_plain_container_comes_last() -> None:
    spec = spec_of(injected(workload(), CLASSIC))
    assert (names(spec, "containers"), names(spec, "initContainers")) == (["app", "sponson"], [])


def test_what_has_it_is_brought_up_to_date() -> None:
    chosen = SidecarSettings(image="mirror/sponson:v9", policy_configmap="other", keys_secret="k", memory_limit="1Gi")
    old = injected(workload())
    new = spec_of(injected(old, chosen))
    assert spec_of(injected(workload(), chosen)) == new
    assert (new["initContainers"][0]["image"], len(new["volumes"])) == ("mirror/sponson:v9", 2)
    assert new["volumes"][0]["configMap"] == {"name": "other"}
    assert injected(injected(old, CLASSIC)) == old


def test_annotations_win_over_options() -> None:
    spec = spec_of(injected(workload(policy="mine", mode="classic")))
    assert names(spec, "containers") == ["app", "sponson"]
    assert spec["volumes"][0]["configMap"] == {"name": "mine"}
    text = "# mine\n" + yaml.safe_dump(workload(inject="false"))
    assert inject(text, DEFAULT).text == text


@pytest.mark.parametrize(
    ("document", "chosen", "reason"),
    [
        (workload(spec=pod(initContainers=[{"name": "sponson", "image": "x"}])), DEFAULT, 'is named "sponson"'),
        (workload(spec=pod(volumes=[{"name": "sponson-keys", "emptyDir": {}}])), DEFAULT, 'is named "sponson-keys"'),
        (workload(spec=pod(containers=[{**APP, "ports": [{"containerPort": 4000}]}])), DEFAULT, "port 4000"),
        (workload(spec=pod(containers=[{**APP, "ports": [{"containerPort": 4001}]}])), DEFAULT, "port 4001"),
        (workload(spec=pod(containers=[{**APP, "securityContext": {"runAsUser": 65532}}])), DEFAULT, "user 65532"),
        (workload(spec=pod(securityContext={"runAsUser": 65532})), DEFAULT, "user 65532"),
        (workload(spec=pod(os={"name": "windows"})), DEFAULT, "Windows"),
        (workload("Job"), CLASSIC, "never complete"),
        (workload("CronJob"), CLASSIC, "never complete"),
        (workload("Pod", pod(restartPolicy="Never")), CLASSIC, "never complete"),
        (workload(mode="transparent"), DEFAULT, "write native or classic"),
        (workload(policy="Not A Name"), DEFAULT, "name of a ConfigMap"),
        (workload(inject="yes"), DEFAULT, 'write "true" or "false"'),
        (workload(spec={"containers": []}), DEFAULT, "has no containers"),
        (workload(spec={"containers": "x"}), DEFAULT, "not a list"),
        ({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}, DEFAULT, "has no spec.template"),
    ],
)
def test_what_is_in_its_way_is_refused_with_the_cure(document: Document, chosen: SidecarSettings, reason: str) -> None:
    said = refused(document, chosen)
    assert reason in said
    assert said.startswith(f"document 1, {document['kind']}/")


def test_what_only_looks_like_a_clash_is_none() -> None:
    udp = [{"containerPort": 4000, "protocol": "UDP"}]
    app = {**APP, "ports": udp, "securityContext": {"runAsUser": 1000}}
    injected(workload(spec=pod(containers=[app], securityContext={"runAsUser": 65532})))


def test_all_problems_are_told_at_once() -> None:
    bad = workload(
        spec=pod(containers=[{**APP, "ports": [{"containerPort": 4000}]}], securityContext={"runAsUser": 65532})
    )
    text = yaml.safe_dump_all([bad, {"kind": "ConfigMap"}, bad]) + "---\na: [\n"
    with pytest.raises(ManifestError) as caught:
        inject(text, DEFAULT)
    assert [line.partition(",")[0] for line in caught.value.problems[:4]] == ["document 1"] * 2 + ["document 3"] * 2
    assert caught.value.problems[4].startswith("document 4 (line ")


@pytest.mark.parametrize(
    ("document", "chosen", "warning"),
    [
        (workload(spec=pod(hostNetwork=True)), DEFAULT, "hostNetwork"),
        (workload(spec=pod(terminationGracePeriodSeconds=20)), DEFAULT, "more than 20"),
        (workload(spec=pod(terminationGracePeriodSeconds=25)), CLASSIC, "more than 25"),
        ({"apiVersion": "v1", "kind": "Service"}, DEFAULT, NONE_FOUND),
    ],
)
def test_what_may_not_be_meant_is_warned_of(document: Document, chosen: SidecarSettings, warning: str) -> None:
    (said,) = inject(yaml.safe_dump(document), chosen).warnings
    assert warning in said


def test_base_urls_are_set_only_when_asked_and_override_nothing() -> None:
    mine = {"name": "OPENAI_BASE_URL", "value": "http://mine"}
    document = workload(spec=pod(containers=[{**APP, "env": [mine]}], initContainers=[{"name": "i", "image": "i"}]))
    assert "env" not in spec_of(injected(document))["initContainers"][1]
    spec = spec_of(injected(document, SidecarSettings(set_base_url=True)))
    theirs = {"name": "ANTHROPIC_BASE_URL", "value": "http://127.0.0.1:4000"}
    assert spec["containers"][0]["env"] == [mine, theirs]
    assert len(spec["initContainers"][1]["env"]) == 2
    plain = spec_of(injected(document, SidecarSettings(set_base_url=True, mode=Mode.CLASSIC)))
    assert "env" not in plain["initContainers"][0]


def test_variables_from_elsewhere_that_would_be_hidden_are_warned_of() -> None:
    app = {**APP, "envFrom": [{"configMapRef": {"name": "x"}}]}
    text = yaml.safe_dump(workload(spec=pod(containers=[app])))
    (said,) = inject(text, SidecarSettings(set_base_url=True)).warnings
    assert "envFrom" in said


def test_other_documents_stay_to_the_byte() -> None:
    before = "# Source: x\n---\n# c\nkind:   ConfigMap # on\ndata: {k: on, l: !x 1, \"m\": 'on'}\n\n"
    after = "--- # e\nkind: Job\napiVersion: other.example/v1\nspec: {}\n...\n# end"
    text = inject(f"{before}---\n# of the app\n{yaml.safe_dump(workload())}# last\n{after}", DEFAULT).text
    assert text.startswith(f"{before}---\n# of the app\napiVersion: apps/v1\n")
    assert text.endswith(f"# last\n{after}")
    assert text.count("name: sponson\n") == 1


def test_lists_get_it_in_each_of_their_workloads() -> None:
    items = [workload(), {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}, workload("Job")]
    text = inject(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}), DEFAULT).text
    (found,) = documents(text)
    assert found["items"][1] == items[1]
    for index in (0, 2):
        assert names(spec_of(found["items"][index]), "initContainers") == ["sponson"]
    assert inject(text, DEFAULT).text == text


def test_json_stays_json() -> None:
    text = inject(json.dumps(workload()), DEFAULT).text
    assert json.loads(text) == injected(workload())
    assert inject(text, DEFAULT).text == text


def test_windows_line_breaks_and_marks_stay() -> None:
    source = "\ufeff---\r\n" + yaml.safe_dump(workload()).replace("\n", "\r\n")
    text = inject(source, DEFAULT).text
    assert text.startswith("\ufeff---\r\n")
    assert text.count("\n") == text.count("\r\n")
    assert inject(text, DEFAULT).text == text


LABELS = st.dictionaries(
    st.sampled_from(["a", "on", "y", "1"]), st.sampled_from(["on", "no", "1", "", "0644", "é\n x"])
)
CONTAINERS = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b", "c"]), "image": st.just("i")},
        optional={
            "restartPolicy": st.just("Always"),
            "env": st.lists(st.fixed_dictionaries({"name": st.just("A"), "value": st.text(max_size=9)}), max_size=1),
            "ports": st.just([{"containerPort": 8080}]),
        },
    ),
    max_size=3,
    unique_by=lambda each: each["name"],
)


@settings(max_examples=30)
@given(
    kind=st.sampled_from(["Deployment", "Job", "CronJob", "Pod"]),
    init=CONTAINERS,
    volumes=st.lists(st.just({"name": "v", "emptyDir": {}}), max_size=1),
    labels=LABELS,
)
def test_nothing_else_ever_changes(kind: str, init: list[Document], volumes: list[Document], labels: Document) -> None:
    document = workload(kind, pod(initContainers=init, volumes=volumes))
    document["metadata"] = {**document["metadata"], "annotations": labels}
    text = inject(yaml.safe_dump(document), DEFAULT).text
    assert inject(text, DEFAULT).text == text
    found = yaml.safe_load(text)
    spec = spec_of(found)
    assert spec["initContainers"].pop(0)["name"] == "sponson"
    assert [spec["volumes"].pop()["name"] for _ in range(2)] == ["sponson-keys", "sponson-policy"]
    template = found if kind == "Pod" else pod_templates([found])[0]
    assert template["metadata"]["labels"].pop("sponson.dev/sidecar") == "true"
    assert found == document
