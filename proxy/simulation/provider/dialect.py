"""Which API a request speaks, and errors in that API's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proxy.simulation.provider import anthropic, openai


class Dialect(StrEnum):
    """The two API shapes that the simulator speaks."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error answer before it has a shape; `code` and OpenAI's `kind` replace those that belong to the status."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    kind: str | None = None


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """Returns the dialect of a request: by its path, else by Anthropic's version header."""
    if path.startswith("/v1/messages") or "anthropic-version" in headers:
        return Dialect.ANTHROPIC
    return Dialect.OPENAI


def error_body(dialect: Dialect, problem: Problem, *, request_id: str) -> dict[str, Any]:
    """Returns the JSON body of an error."""
    if dialect is Dialect.ANTHROPIC:
        return anthropic.error(problem.status, problem.message, code=problem.code, request_id=request_id)
    return openai.error(problem.status, problem.message, code=problem.code, param=problem.param, kind=problem.kind)


def request_id_header(dialect: Dialect) -> str:
    """Returns the name of the header in which this API names a request."""
    return "request-id" if dialect is Dialect.ANTHROPIC else "x-request-id"
