"""The README is true: its paths, commands, flags, policies, reasons and names exist, and mean what it says."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from otel.attributes import GENAI_1_41
from otel.instruments import Kind, table
from otel.prometheus import prometheus_name
from proxy.cli.main import COMMANDS
from proxy.decisions.joining import join
from proxy.outcome import STATUS
from proxy.policy.load import load_policy
from proxy.policy.problem import PolicyError
from proxy.policy.source import PolicyBytes
from proxy.policy.support import NOT_YET

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(.*)\n((?:.*\n)*?)```$", README, re.MULTILINE)
"""(language, text) of every fenced block."""
PROSE = re.sub(r"^```.*\n(?:.*\n)*?```$", "", README, flags=re.MULTILINE)
FILES = re.compile(r"[\w.-]+\.(?:json|lock|md|py|toml|yaml)$")
ROOMS = ("otel/", "policies/", "proxy/", "tests/", ".ci/")


def quoted(text: str) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def section(title: str) -> str:
    """The text from a heading, or a paragraph's bold beginning, to the next heading."""
    return re.split(r"^##", PROSE.split(title, 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each table row, heads and rules apart."""
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and not set("".join(cells)) <= set("-"):
            yield cells


def commands() -> dict[str, click.Command]:
    return {name: importlib.import_module(f"proxy.cli.{name}").command for name in COMMANDS}


def options(name: str) -> list[click.Option]:
    return [option for option in commands()[name].params if isinstance(option, click.Option)]


def policies(info: str) -> list[str]:
    return [text for language, text in BLOCKS if language == info and text.startswith("version:")]


def loaded(text: str, name: str) -> list[str]:
    """Loads a policy; returns its problems as lines."""
    try:
        load_policy(PolicyBytes(files=((name, text.encode()),)))
    except PolicyError as error:
        return [str(problem) for problem in error.problems]
    return []


def test_every_path_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", PROSE) if "://" not in link]
    paths = [name for name in quoted(PROSE) if name.startswith(ROOMS) or FILES.match(name)]
    assert len(links) > 2
    assert len(paths) > 50
    assert [path for path in {*links, *paths} if not (ROOT / path).exists()] == []


def test_every_link_inside_leads_somewhere() -> None:
    headings = {re.sub(r"[^\w -]", "", line).strip().lower() for line in re.findall(r"^##+ (.+)$", PROSE, re.MULTILINE)}
    anchors = {heading.replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PROSE)) <= anchors


def test_every_make_target_exists() -> None:
    scripts = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
    named = {words[1] for words in map(str.split, [*quoted(PROSE), *scripts]) if words[0] == "make" and words[1:]}
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"run", "test", "check", "bench"} <= named <= targets


def test_every_command_is_there_and_every_named_one_exists() -> None:
    named = set(re.findall(r"`sponson ([a-z]+)", PROSE)) | set(
        re.findall(r"^\$ sponson ([a-z]+)", README, re.MULTILINE)
    )
    assert named == set(COMMANDS)


def test_every_flag_exists() -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", README))
    known = {flag for name in COMMANDS for option in options(name) for flag in option.opts}
    assert len(named) > 10
    assert named - known == set()


def test_the_table_of_flags_says_what_run_takes() -> None:
    cells_of_flags = [cells for cells in rows(section("## The command")) if "`SPONSON_" in cells[1]]
    told = {tuple(quoted(cells[0] + cells[1])): cells[2] for cells in cells_of_flags}
    flags = [option for option in options("run") if not option.hidden and option.name != "help"]
    assert set(told) == {(option.opts[0], option.envvar) for option in flags} | {("SPONSON_INSTANCE_INDEX",)}
    for option in flags:
        if isinstance(option.default, str):
            assert told[option.opts[0], str(option.envvar)] == f"`{option.default}`"


def test_flags_that_are_not_supported_are_named() -> None:
    assert {option.opts[0] for option in options("run") if option.hidden} <= set(quoted(PROSE))


@pytest.mark.parametrize("number", range(len(policies("yaml"))))
def test_every_policy_is_good(number: int) -> None:
    assert loaded(policies("yaml")[number], "policy.yaml") == []


def test_every_block_of_yaml_is_a_whole_policy() -> None:
    assert len(policies("yaml")) >= 2
    assert [text for language, text in BLOCKS if language.startswith("yaml") and not text.startswith("version:")] == []


def test_the_smallest_policy_is_the_shipped_one() -> None:
    shipped = (ROOT / "policies/minimal.yaml").read_text("utf-8")
    assert policies("yaml")[0] == re.sub(r"^#.*\n", "", shipped, flags=re.MULTILINE)


def test_a_bad_policy_has_the_problems_that_are_shown() -> None:
    (bad,) = policies("yaml bad")
    (shown,) = (text for _, text in BLOCKS if text.startswith("$ sponson check bad.yaml\n"))
    problems = loaded(bad, "bad.yaml")
    assert shown.splitlines()[1:] == [*problems, f"{len(problems)} problems"]


def test_what_is_not_supported_yet_is_listed() -> None:
    told = [name for cells in rows(section("**Not supported yet.**")) for name in quoted(cells[1])]
    assert set(told) == {gap.pattern.rpartition(".")[2] for gap in NOT_YET}


def test_paths_are_joined_as_shown() -> None:
    examples = [quoted(" ".join(cells)) for cells in rows(section("## Routing"))]
    wrong = [
        (base_url, asked, shown)
        for base_url, asked, shown in (cells for cells in examples if len(cells) == 3)
        if join(asked.removeprefix("/alpha"), urlsplit(base_url).path) != shown
    ]
    assert len(examples) > 5
    assert wrong == []


def test_the_reasons_are_those_that_callers_get() -> None:
    text = section("## Answers made by the proxy")
    told = [(reason, int(status)) for status, reason in re.findall(r"^\| (\d{3}) \| `(\w+)` \|", text, re.MULTILINE)]
    reserved = text.split("Reserved for", 1)[1].split("A 500", 1)[0]
    told += [(reason, int(status)) for status, reason in re.findall(r"(\d{3})\s`(\w+)`", reserved)]
    assert sorted(told) == sorted((reason.value, status) for reason, status in STATUS.items())


def test_every_metric_exists() -> None:
    rows_of_table = table(GENAI_1_41)
    known = {prometheus_name(row) + "_total" * (row.kind is Kind.COUNTER) for row in rows_of_table}
    named = {name for name in quoted(PROSE) if re.match(r"(?:gen_ai_client|http_server|sponson)_[a-z_]+$", name)}
    assert len(named) > 15
    assert named - known == set()


def test_where_to_change_what_leads_to_files() -> None:
    found = list(rows(section("## Where do I change")))[1:]
    assert len(found) >= 8
    assert [wish for wish, where in found if not quoted(where)] == []


def test_the_benchmark_has_its_place() -> None:
    assert re.search(r"<!-- bench:begin -->\n(?:.*\n)+<!-- bench:end -->", README)
