"""Named values (`env`, `file`): read for a policy, kept when a file vanishes later, never shown."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

from proxy.policy.problem import Problem
from proxy.policy.secret_sources import SecretProblem, read_value, sources
from proxy.policy.snapshot import PolicySnapshot, ValueSource

_log = logging.getLogger("sponson.secrets")

SourceId = tuple[str | None, str | None, str | None]


class Secrets:
    """The values that a policy names, as they are now. `repr` shows none."""

    __slots__ = ("_environ", "_missed", "_values")

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._values: dict[SourceId, str] = {}
        self._missed: set[SourceId] = set()

    def __repr__(self) -> str:
        return f"<Secrets {len(self._values)} values>"

    def __getitem__(self, source: ValueSource) -> str:
        return self._values[_id(source)]

    def read(self, snapshot: PolicySnapshot) -> list[Problem]:
        """Reads every value anew; returns a problem for each that was never readable. Blocking: run in a thread."""
        problems = []
        for path, source in sources(snapshot):
            identity = _id(source)
            try:
                self._values[identity] = read_value(source, self._environ)
                self._missed.discard(identity)
            except SecretProblem as problem:
                if identity in self._values:
                    self._keep(identity, problem)
                else:
                    file, line, column = source.place.rsplit(":", 2)
                    problems.append(
                        Problem(file=file, line=int(line), column=int(column), path=path, message=str(problem))
                    )
        return problems

    def forget_others(self, snapshot: PolicySnapshot) -> None:
        """Forgets every value that this policy, which is live, does not name: old policies' would pile up."""
        named = {_id(source) for _, source in sources(snapshot)}
        self._values = {identity: value for identity, value in self._values.items() if identity in named}
        self._missed &= named

    def digest(self, snapshot: PolicySnapshot) -> str:
        """Returns a hash that changes when a value changes that this policy names."""
        whole = hashlib.sha256()
        for path, source in sources(snapshot):
            whole.update(f"{path}\0{self[source]}\0".encode())
        return whole.hexdigest()

    def _keep(self, identity: SourceId, problem: SecretProblem) -> None:
        if identity not in self._missed:
            self._missed.add(identity)
            _log.warning("%s; its last value stays in use", problem)


def secret_hash(value: str) -> str:
    """Returns what tells two secrets apart without holding either."""
    return hashlib.sha256(value.encode()).hexdigest()


def _id(source: ValueSource) -> SourceId:
    return source.literal, source.env, source.file
