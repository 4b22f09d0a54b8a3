"""What gets installed: the wheel, the lock file, the image, and the environment that make builds."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
BUILT_FROM = ("LICENSE", "README.md", "otel", "policies", "proxy", "pyproject.toml")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built from a copy: a build writes beside its sources."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignore)
        else:
            shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*pip, "-w", target, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(target.glob("sponson-*.whl")))


def test_the_wheel_has_every_source_file(wheel: zipfile.ZipFile) -> None:
    expected = {
        file.relative_to(ROOT).as_posix()
        for package in ("proxy", "otel")
        for kind in ("*.py", "*.json", "*.md", "*.yaml", "*.html", "py.typed")
        for file in (ROOT / package).rglob(kind)
    }
    assert expected - set(wheel.namelist()) == set()


def test_the_wheel_ships_the_policies_and_their_schema(wheel: zipfile.ZipFile) -> None:
    shipped = {*(ROOT / "policies").glob("*.yaml"), ROOT / "policies/policy.schema.json"}
    assert shipped
    for file in shipped:
        assert wheel.read(f"proxy/_policies/{file.name}") == file.read_bytes()


def test_the_wheel_has_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"proxy", "otel"}


def test_the_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "sponson = proxy.__main__:main" in wheel.read(entry_points).decode()


def test_a_checkout_finds_the_policies_where_a_wheel_does() -> None:
    assert (ROOT / "proxy/_policies/local.yaml").read_bytes() == (ROOT / "policies/local.yaml").read_bytes()


@pytest.fixture(scope="module")
def locked() -> dict[str, str]:
    """Name → version of the lock file."""
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def required() -> list[Requirement]:
    """What the project and its development ask for, and what that asks for in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    todo = [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    done: dict[str, Requirement] = {}
    while todo:
        requirement = todo.pop()
        if str(requirement) in done or not _applies(requirement, ""):
            continue
        done[str(requirement)] = requirement
        for text in metadata.requires(requirement.name) or ():
            inner = Requirement(text)
            if any(_applies(inner, extra) for extra in requirement.extras or {""}):
                inner.marker = None
                todo.append(inner)
    return list(done.values())


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def test_the_lock_file_meets_every_requirement_and_has_nothing_else(locked: dict[str, str]) -> None:
    requirements = required()
    unmet = [str(r) for r in requirements if locked.get(canonicalize_name(r.name), "none") not in r.specifier]
    assert unmet == []
    assert set(locked) == {canonicalize_name(requirement.name) for requirement in requirements}


def test_the_lock_file_names_no_place_to_fetch_from() -> None:
    assert not re.search(r"://|--|@", (ROOT / "requirements.lock").read_text())


def test_the_image_is_built_from_what_reaches_the_builder() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    reaching = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert {name for line in copied for name in line.split()} == set(reaching)
    assert all((ROOT / name).exists() for name in reaching)


def test_without_a_python_make_says_what_is_missing(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path)
    make = ["make", "venv", "PYTHONS=no-such-python"]
    done = subprocess.run(make, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr
    assert not (tmp_path / ".venv").exists()
