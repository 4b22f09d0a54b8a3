"""Bytes → PolicySnapshot, or all problems at once (`PolicyError`).

Every step looks at all it can: a file that is no YAML ends the work; everything else is collected, by place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pydantic import ValidationError

from proxy.policy.build import build
from proxy.policy.limit_reach import limit_warnings
from proxy.policy.limit_references import limit_references
from proxy.policy.merge import merge
from proxy.policy.parse import MOST_NODES, Parsed, parse
from proxy.policy.problem import Place, PolicyError, Problem, problem_at
from proxy.policy.reach import warnings
from proxy.policy.references import references
from proxy.policy.saved_reach import saved_warnings
from proxy.policy.saved_references import saved_references
from proxy.policy.schema.policy import Policy
from proxy.policy.snapshot import PolicySnapshot
from proxy.policy.source import LARGEST_POLICY, PolicyBytes
from proxy.policy.support import unsupported
from proxy.policy.tree import Mapping, plain
from proxy.policy.wording import problems_of


def load_policy(data: PolicyBytes, *, instance_index: int | None = None) -> PolicySnapshot:
    """Returns the snapshot of a policy, with its warnings. Raises `PolicyError` with all that is wrong.

    `instance_index` says which of the fleet's instances this one is, where that is known.
    """
    parsed = _parse_all(data)
    merged = merge([one.root for one in parsed])
    problems = _Problems(problem for one in parsed for problem in one.problems)
    problems.add(merged.problems)
    if not isinstance(merged.root, Mapping):
        message = "expected a mapping with version and providers"
        problems.add([problem_at(merged.root.place, (), message)])
        raise PolicyError(problems.found)
    policy: Policy | None = None
    try:
        policy = Policy.model_validate(plain(merged.root))
    except ValidationError as error:
        problems.add(problems_of(error, merged.root))
    problems.add(references(merged.root))
    problems.add(limit_references(merged.root))
    problems.add(saved_references(merged.root))
    problems.add(unsupported(merged.root))
    if policy is None or problems.found:
        raise PolicyError(problems.found)
    snapshot = build(policy, merged.root, digest=data.digest, instance_index=instance_index)
    told = (warnings, limit_warnings, saved_warnings)
    lines = sorted({line for one in told for line in one(merged.root, snapshot)})
    return replace(snapshot, warnings=tuple(str(line) for line in lines))


class _Problems:
    """What was found, without what an earlier step said of the same thing."""

    def __init__(self, first: Iterable[Problem]) -> None:
        self.found = list(first)

    def add(self, more: Iterable[Problem]) -> None:
        said = {(problem.file, problem.path) for problem in self.found}
        self.found += [problem for problem in more if (problem.file, problem.path) not in said]


def _parse_all(data: PolicyBytes) -> list[Parsed]:
    if not data.files:
        raise PolicyError([problem_at(Place(file="policy", line=1, column=1), (), "has no files")])
    if sum(len(content) for _, content in data.files) > LARGEST_POLICY:
        place = Place(file=data.files[-1][0], line=1, column=1)
        raise PolicyError([problem_at(place, (), f"is larger than {LARGEST_POLICY >> 20} MiB, all files")])
    parsed: list[Parsed] = []
    problems: list[Problem] = []
    broken = False
    for name, content in data.files:
        used = sum(one.size for one in parsed)
        try:
            parsed.append(parse(name, content, most_nodes=MOST_NODES - used))
        except PolicyError as error:
            broken = True
            problems += error.problems
    if broken:
        raise PolicyError([*problems, *(problem for one in parsed for problem in one.problems)])
    return parsed
