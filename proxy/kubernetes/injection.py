"""A whole manifest with the sidecar in its workloads. What needs no change stays as it is, to the byte."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import yaml

from proxy.kubernetes.documents import BEGIN, Text, split
from proxy.kubernetes.fragment import SidecarSettings
from proxy.kubernetes.problem import ManifestError, Unfit
from proxy.kubernetes.sidecar import add_sidecar
from proxy.kubernetes.tree import compose, read, read_json, same
from proxy.kubernetes.workloads import PLACES, name_of, workloads
from proxy.kubernetes.writing import write_json, write_yaml

MARK = "\ufeff"
"""What some editors begin a text with; it belongs to no document."""

NONE_FOUND = f"no workload in it ({', '.join(kind for _, kind in PLACES)}): nothing changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A manifest with the sidecar, and what its reader should know."""

    text: str
    warnings: tuple[str, ...]


def inject(manifest: str, settings: SidecarSettings) -> Injected:
    """Returns the manifest with the sidecar in every workload. Raises `ManifestError` with all problems.

    What comes out goes in without a change, so that injecting twice is injecting once.
    """
    run = _Run(settings)
    mark = MARK if manifest.startswith(MARK) else ""
    texts = [run.document(text, number) for number, text in enumerate(split(manifest.removeprefix(MARK)), 1)]
    if run.problems:
        raise ManifestError(tuple(run.problems))
    warnings = run.warnings if run.workloads else [NONE_FOUND]
    return Injected(text=mark + "".join(texts), warnings=tuple(warnings))


class _Run:
    """One pass over the documents: collects what there is to say."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self.problems: list[str] = []
        self.warnings: list[str] = []
        self.workloads = 0

    def document(self, text: Text, number: int) -> str:
        """Returns the document's new text."""
        where = f"document {number}"
        try:
            found, is_json = _tree(text)
            return self._injected(text, found, is_json=is_json, where=where)
        except yaml.YAMLError as error:
            self.problems.append(f"{where} (line {_line(error, text)}): is not YAML: {_why(error)}")
        except Unfit as unfit:
            self.problems.extend(f"{where}: {reason}" for reason in unfit.reasons)
        return text.whole

    def _injected(self, text: Text, found: Any, *, is_json: bool, where: str) -> str:
        new = copy.deepcopy(found)
        for workload in workloads(new):
            self.workloads += 1
            name = f"{where}, {name_of(workload)}"
            try:
                self.warnings += (f"{name}: {said}" for said in add_sidecar(workload, self._settings))
            except Unfit as unfit:
                self.problems.extend(f"{name}: {reason}" for reason in unfit.reasons)
        if same(new, found) or self.problems:
            return text.whole
        return _written(text, new, is_json=is_json)


def _tree(text: Text) -> tuple[Any, bool]:
    """Returns what a document says, None where it is no object of the API, and whether it is JSON."""
    body = text.body
    if body.lstrip().startswith("{"):
        try:
            return read_json(body), True
        except (ValueError, RecursionError):
            pass  # YAML in braces
    node = compose(body)
    if not isinstance(node, yaml.MappingNode) or not _may_be_workload(node):
        return None, False
    return read(node), False


def _may_be_workload(node: yaml.MappingNode) -> bool:
    """Whether it is of a kind that matters; what others say, tags of their own too, is no concern here."""
    kinds = {kind for _, kind in PLACES} | {"List"}
    return any(key.value == "kind" and value.value in kinds for key, value in node.value if _is_text(value))


def _is_text(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode)


def _written(text: Text, tree: Any, *, is_json: bool) -> str:
    line_break = "\r\n" if "\r\n" in text.body else "\n"
    begin = f"---{line_break}" if BEGIN.match(text.body) else ""
    body = write_json(tree) if is_json else write_yaml(tree, line_break=line_break)
    return text.head + begin + body + text.tail


def _line(error: yaml.YAMLError, text: Text) -> int:
    mark = getattr(error, "problem_mark", None)
    return text.line + (mark.line if mark is not None else 0)


def _why(error: yaml.YAMLError) -> str:
    return getattr(error, "problem", None) or str(error).partition("\n")[0]
