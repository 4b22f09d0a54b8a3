"""The README is true: its paths, commands, flags, policies, reasons and names exist, and mean what it says."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner

import proxy
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
from proxy.runtime import pipeline
from tests.bench.__main__ import main as bench
from tests.fakes import make_exchange
from tests.soak.__main__ import main as soak

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


def files_of_the_walk() -> list[str]:
    """What the life of a request names, in the order in which it is named first."""
    walk = section("## Life of a request").split("A policy's life", 1)[0]
    return list(dict.fromkeys(name for name in quoted(walk) if name.startswith(ROOMS)))


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
    known = {flag for command in (*commands().values(), bench, soak) for flags in command.params for flag in flags.opts}
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


def test_every_metric_exists_and_is_told_of() -> None:
    rows_of_table = table(GENAI_1_41)
    known = {prometheus_name(row) + "_total" * (row.kind is Kind.COUNTER) for row in rows_of_table}
    named = {name for name in quoted(PROSE) if re.match(r"(?:gen_ai_client|http_server|sponson)_[a-z_]+$", name)}
    assert named == known


def test_the_change_of_a_policy_does_what_is_shown(tmp_path: Path) -> None:
    (shown,) = (text for _, text in BLOCKS if "$ sponson diff " in text)
    edit, command, output = shown.split("\n", 2)
    match = re.fullmatch(r"\$ sed 's/([^/]+)/([^/]+)/' (\S+) >(\S+)", edit)
    assert match is not None
    old, new, shipped, written = match.groups()
    text = (ROOT / shipped).read_text("utf-8")
    assert old in text
    paths = {name: tmp_path / Path(name).name for name in command.removeprefix("$ sponson diff ").split()}
    paths[shipped].write_text(text, "utf-8")
    paths[written].write_text(text.replace(old, new), "utf-8")
    runner = CliRunner(env={"SPONSON_INSTANCE_INDEX": None})
    done = runner.invoke(commands()["diff"], [str(path) for path in paths.values()])
    title = "{} → {}".format
    assert done.exit_code == 0
    assert done.output.replace(title(*paths.values()), title(*paths)) == output


def test_the_walk_is_ten_sentences() -> None:
    items = re.findall(r"^\d+\. (.+(?:\n {3,}.+)*)", section("## Life of a request"), re.MULTILINE)
    assert len(items) == 10
    assert [item for item in items if re.findall(r"[.!?](?=\s|$)", item) != ["."] or item[-1] != "."] == []


def test_the_walk_names_files_that_exist() -> None:
    assert len(files_of_the_walk()) > 25
    assert [name for name in files_of_the_walk() if not (ROOT / name).is_file()] == []


def stages_in_order() -> list[str]:
    """The files that a call enters, by the pipelines themselves: recorders stand for stages and terminals."""
    entered: list[str] = []

    def stage(path: str) -> Any:
        def call(exchange: object, call_next: Callable[[object], object]) -> object:
            entered.append(path)
            return call_next(exchange)

        return call

    def terminal(path: str, call_next: Callable[[Any], object] | None = None) -> Any:
        def call(exchange: object) -> object:
            entered.append(path)
            return call_next(exchange) if call_next is not None else None

        return call

    parts = {name: stage(f"proxy/stages/{name}.py") for name in pipeline.TargetStages.__dataclass_fields__}
    target = pipeline.target(pipeline.TargetStages(**parts), terminal("proxy/upstream/transport.py"))
    tiers = terminal("proxy/stages/fallback.py", target)
    route = pipeline.route(stage("proxy/stages/deadline.py"), tiers)
    front = pipeline.front(stage("proxy/stages/observation.py"), terminal("proxy/stages/classification.py", route))
    front(make_exchange())
    return entered


def test_the_walk_passes_the_stages_in_the_order_of_the_pipeline() -> None:
    order = stages_in_order()
    assert len(order) == 9
    assert [name for name in files_of_the_walk() if name in order] == order


def shown_in_the_diagram() -> list[str]:
    """The files in its boxes: those of both rims above, with what goes on between them, and the stages below."""
    (diagram,) = (text for language, text in BLOCKS if language == "text" and "─ downstream/ ─" in text)
    above, below = diagram.split("─ one a process ─")
    shown = []
    for rooms, part in ((("downstream", "", "upstream"), above), (("stages", "stages", "stages"), below)):
        for line in part.splitlines():
            cells = re.split("[│┼]", line)[1:-1] if line.startswith(" │") else []
            for room, cell in zip(rooms, cells, strict=bool(cells)):
                names = re.findall(r"\b(?!or\b|and\b)\w+", cell) if room else ()
                shown += [f"proxy/{room}/{name}.py" for name in names]
    return shown


def test_the_walks_diagram_shows_files_in_their_rooms_and_stages_in_their_order() -> None:
    shown, order = shown_in_the_diagram(), stages_in_order()[:-1]
    assert len(shown) > 20
    assert [name for name in shown if not (ROOT / name).is_file()] == []
    assert set(shown) <= set(files_of_the_walk())
    assert [name for name in shown if name in order] == order


def test_where_to_change_what_leads_to_files() -> None:
    found = list(rows(section("## Where do I change")))[1:]
    paths = [path for _, where in found for path in quoted(where)]
    assert len(found) > 10
    assert [wish for wish, where in found if not any("/" in path for path in quoted(where))] == []
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_where_to_change_what_leads_into_every_room() -> None:
    paths = [path for _, where in rows(section("## Where do I change")) for path in quoted(where)]
    assert proxy.__doc__ is not None
    rooms = [
        tuple(f"proxy/{name}" if name.endswith("/") else f"proxy/{name}.py" for name in cells[0].split(", "))
        for cells in list(rows(proxy.__doc__))[1:]
    ]
    assert len(rooms) > 10
    assert [room for room in (*rooms, ("otel/",)) if not any(path.startswith(room) for path in paths)] == []


def test_the_benchmark_has_its_place() -> None:
    assert re.search(r"<!-- bench:begin -->\n(?:.*\n)+<!-- bench:end -->", README)
