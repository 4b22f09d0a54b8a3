from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.cli.main import main
from tests.k8s.tools import K8S, check, documents

DEPLOYMENT = (K8S / "examples/deployment/deployment.yaml").read_text()
CONFIG = '---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {k: "on"}\n'


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(main, ["inject", *arguments], input=text)


def test_a_manifest_comes_out_with_the_sidecar(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(DEPLOYMENT + CONFIG)
    found = run(str(tmp_path / "app.yaml"))
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.endswith(CONFIG)
    for document in documents(found.stdout):
        check(document)
    assert run("-", text=found.stdout).stdout == found.stdout


def test_options_reach_the_sidecar() -> None:
    options = ["--image=r/s:9", "--policy-configmap=p", "--keys-secret=k", "--cpu-request=1", "--memory-request=1Gi"]
    found = run("-", "--mode=classic", "--memory-limit=2Gi", "--set-base-url", *options, text=DEPLOYMENT)
    spec = documents(found.stdout)[0]["spec"]["template"]["spec"]
    app, sidecar = spec["containers"]
    assert sidecar["image"] == "r/s:9"
    assert sidecar["resources"] == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    assert [spec["volumes"][0]["configMap"]["name"], spec["volumes"][1]["secret"]["secretName"]] == ["p", "k"]
    assert [each["name"] for each in app["env"]] == ["OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL"]


def test_problems_leave_stdout_empty() -> None:
    found = run("-", text=CONFIG + DEPLOYMENT.replace("8080", "4000").join(["---\n", "---\na: ]\n"]))
    assert (found.exit_code, found.stdout) == (1, "")
    assert 'document 2, Deployment/app: container "app" has port 4000' in found.stderr
    assert found.stderr.endswith("2 problems\n")


def test_what_is_no_text_is_refused() -> None:
    found = CliRunner().invoke(main, ["inject", "-"], input=b"\xff\xfe")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "UTF-8" in found.stderr


def test_a_manifest_without_workloads_is_passed_on_with_a_warning() -> None:
    found = run("-", text=CONFIG)
    assert (found.exit_code, found.stdout) == (0, CONFIG)
    assert "no workload" in found.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["/nowhere/app.yaml"],
        ["-", "--image="],
        ["-", "--mode=transparent"],
        ["-", "--policy-configmap=A B"],
        ["-", "--memory-limit=lots"],
        [],
    ],
)
def test_what_cannot_start_exits_with_two(arguments: list[str]) -> None:
    assert run(*arguments, text=DEPLOYMENT).exit_code == 2
