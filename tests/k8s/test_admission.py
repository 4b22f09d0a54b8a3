"""The policy that puts the sidecar into pods in the API server: valid, the same sidecar. Its CEL is not run here."""

from __future__ import annotations

import pytest

from proxy.kubernetes.fragment import SidecarSettings
from proxy.kubernetes.sidecar import INJECT, POLICY
from tests.k8s.cel import expression
from tests.k8s.tools import K8S, Document, check, documents

ADMISSION = K8S / "admission"


@pytest.fixture
def policy() -> Document:
    (found,) = documents((ADMISSION / "policy.yaml").read_text())
    return found


@pytest.fixture
def bindings() -> list[Document]:
    return documents((ADMISSION / "bindings.yaml").read_text())


def test_all_of_it_is_valid(policy: Document, bindings: list[Document]) -> None:
    for document in (policy, *bindings):
        check(document)
        with pytest.raises(Exception, match="unheard"):
            check({**document, "spec": {**document["spec"], "unheard": 1}})


def test_it_adds_the_sidecar_of_the_command(policy: Document) -> None:
    (mutation,) = policy["spec"]["mutations"]
    assert mutation == {"patchType": "JSONPatch", "jsonPatch": {"expression": expression()}}


def test_what_can_be_chosen_is_what_the_command_has_by_default(policy: Document) -> None:
    found = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    defaults = SidecarSettings()
    assert found["image"] == f'"{defaults.image}"'
    assert found["keys"] == f'"{defaults.keys_secret}"'
    assert found["policy"].endswith(f'object.metadata.annotations["{POLICY}"] : "{defaults.policy_configmap}"')


def test_only_pods_that_ask_get_it_once(policy: Document, bindings: list[Document]) -> None:
    (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    conditions = " ".join(each["expression"] for each in policy["spec"]["matchConditions"])
    assert f'object.metadata.annotations["{INJECT}"] != "false"' in conditions
    assert conditions.count('each.name == "sponson"') == 2
    asked = {"matchLabels": {INJECT: "true"}}
    for binding in bindings:
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert asked in binding["spec"]["matchResources"].values()
