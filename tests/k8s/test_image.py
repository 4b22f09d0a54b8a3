"""The Dockerfile's promises: what can be read from it always, what its steps make by `make image`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests.k8s.image import HOME, entrypoint, of_last, stages, variables
from tests.k8s.pod import Image
from tests.k8s.tools import K8S, ROOT, built, pod_templates


@pytest.fixture
def home(made: Image) -> Path:
    """The environment that goes into the image."""
    return made.home


def test_nothing_is_made_in_the_stage_that_is_shipped() -> None:
    first, last = stages()
    assert {step.word for step in last} <= {"FROM", "COPY", "ENV", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert of_last("COPY") == [f"--from=build {HOME} {HOME}"]
    # The environment's Python is a link to that of the base.
    assert [step.rest.split()[0] for step in (first[0], last[0])] == [of_last("FROM")[0]] * 2
    assert of_last("FROM")[0].endswith("-slim")


def test_its_user_is_a_number_and_that_of_the_manifests() -> None:
    (user,) = of_last("USER")
    for template in pod_templates(built(K8S / "examples/deployment")):
        context = template["spec"]["initContainers"][0]["securityContext"]
        assert user == f"{context['runAsUser']}:{context['runAsGroup']}"


def test_its_command_is_process_1_and_found() -> None:
    assert entrypoint() == ["sponson"]
    assert json.loads(of_last("CMD")[0]) == ["run"]
    assert variables(of_last("ENV"))["PATH"] == f"{HOME}/bin:$PATH"


def test_versions_are_those_that_were_tested() -> None:
    (install,) = [step.rest for step in stages()[0] if step.word == "RUN" and "pip install" in step.rest]
    assert "--constraint requirements.lock" in install


def test_only_what_is_named_reaches_the_builder() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    assert "**/__pycache__" in lines


def test_its_steps_make_an_environment_of_tested_versions_without_tools(home: Path) -> None:
    text = (ROOT / "requirements.lock").read_text()
    locked = {canonicalize_name(line.split("==")[0]): line for line in text.splitlines() if "==" in line}
    found = {}
    for place in home.glob("lib/python3*/site-packages/*.dist-info"):
        name, _, version = place.name.removesuffix(".dist-info").partition("-")
        found[canonicalize_name(name)] = version
    assert found.keys() >= {"sponson", "aiohttp", "uvloop", "redis"}
    assert found.keys().isdisjoint({"pip", "pytest", "mypy", "ruff", "hypothesis", "openai", "kubernetes-validate"})
    # Python 3.11 puts an old setuptools into every environment, the image's Python none.
    for name, version in found.items():
        assert name in ("sponson", "setuptools") or locked[name].endswith(f"=={version}")


def test_its_command_checks_a_policy(home: Path) -> None:
    check = [str(home / "bin/sponson"), "check", str(K8S / "base/policy.yaml")]
    done = subprocess.run(check, capture_output=True, text=True, check=False, timeout=60, env={})
    assert done.returncode == 0, done.stdout + done.stderr


def test_its_modules_are_compiled_because_nobody_can_later(home: Path) -> None:
    sources = list(home.glob("lib/python3*/site-packages/proxy/**/*.py"))
    assert sources
    assert [file for file in sources if not list((file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"))] == []
