"""The Dockerfile as steps, and what those of its first stage make without Docker: in a folder, with this Python."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.k8s.pod import Image
from tests.k8s.tools import ROOT

ASKED = "BUILD_IMAGE"
HOME = "/opt/sponson"
BUILD_SECONDS = 300
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction: `RUN` and what follows it."""

    word: str
    rest: str


def stages() -> list[list[Step]]:
    """Returns the steps of each stage, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE))
    found: list[list[Step]] = []
    for line in filter(None, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append(Step(word=word, rest=rest))
    return found


def of_last(word: str) -> list[str]:
    """Returns what follows a word in the last stage."""
    return [step.rest for step in stages()[-1] if step.word == word]


def entrypoint() -> list[str]:
    """Returns the image's own command."""
    (text,) = of_last("ENTRYPOINT")
    found = json.loads(text)
    assert isinstance(found, list)
    return found


def variables(lines: list[str]) -> dict[str, str]:
    """Returns what ENV lines set."""
    pairs = [pair.partition("=") for line in lines for pair in line.split()]
    return {name: value for name, _, value in pairs}


def need_asking() -> None:
    """Skips the test where nobody has asked for it: it installs everything anew."""
    if not os.environ.get(ASKED):
        pytest.skip("takes twenty seconds and a package index: `make image`")


def build(folder: Path) -> Image:
    """Runs the first stage, with the folder in place of `/`; returns the image that the last one makes of it."""
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(Path(sys.base_prefix) / "bin/python3")
    (folder / "opt").mkdir()
    home, work = f"{folder}{HOME}", folder
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
    for step in stages()[0]:
        match step.word:
            case "ENV":
                env |= variables([step.rest])
            case "WORKDIR":
                work = folder / step.rest.lstrip("/")
                work.mkdir(parents=True, exist_ok=True)
            case "COPY":
                _copy(step.rest, work)
            case "RUN":
                command = ["sh", "-c", step.rest.replace(HOME, home)]
                done = subprocess.run(
                    command, cwd=work, env=env, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
                )
                assert done.returncode == 0, done.stderr
            case word:
                assert word == "FROM"
    prefix = Path(sys.base_prefix)
    # The environment's Python is a link to the one in `bin`.
    places = [Path(home), folder / "bin", *([] if prefix.is_relative_to("/usr") else [prefix])]
    return Image(home=Path(home), mounts=tuple((place, place) for place in places), path=f"{home}/bin:/usr/bin")


def _copy(rest: str, work: Path) -> None:
    *sources, target = rest.split()
    for source in sources:
        here = ROOT / source
        if here.is_dir():
            # A folder's contents are copied, as Docker does, without what .dockerignore leaves out.
            ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
            shutil.copytree(here, work / target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            (work / target).mkdir(exist_ok=True)
            shutil.copy(here, work / target)
