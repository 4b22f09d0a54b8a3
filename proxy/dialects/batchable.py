"""Batchable calls: several inputs in one call, and whose result is whose (`facts.md` §2.4).

Owns the reading of inputs, the joined request, and the dealing of its answer. Nothing is guessed: what is not plainly
a text, a token array or a list of such is nothing that can travel with others; an answer that does not show exactly
one result for each input is dealt to nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import orjson

from proxy.dialects.apportioning import apportioned
from proxy.dialects.base import Operation
from proxy.dialects.canonical import canonical
from proxy.dialects.splice import with_fields

MOST_CHOICES: Final = 128
"""What OpenAI's interface takes at most for `n`."""
_BYTES_PER_TOKEN: Final = 4
_FILL_IN_THE_MIDDLE: Final = "/fim/completions"
"""Takes one prompt."""


class Layout(StrEnum):
    """How results stand in an answer."""

    INDEX = "index"
    """Each says by `index` which input it belongs to; of several answers to one input, i * n + j."""
    POSITION = "position"
    """In the order of the inputs."""
    EITHER = "either"
    """By `index` where each has one, else by position."""

    __hash__ = str.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Batchable:
    """A call that takes several inputs: the field that holds them, the one that holds the results, and how."""

    inputs: str
    results: str
    layout: Layout
    choices: bool = False
    """Each input may be answered `n` times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of one request. `kind` is "text" or "tokens"; `tokens` estimates each, `bound` is above them all.

    `each`: how many results one input has.
    """

    kind: str
    values: Sequence[Any] = field(repr=False)
    tokens: tuple[int, ...]
    bound: int
    each: int = 1

    @property
    def results(self) -> int:
        """How many results answer them."""
        return len(self.values) * self.each


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """One request's answer; `made` weighs what was written for it."""

    body: bytes = field(repr=False)
    made: int = 0


_KNOWN: Final = {
    "embeddings": Batchable(inputs="input", results="data", layout=Layout.INDEX),
    "completions": Batchable(inputs="prompt", results="choices", layout=Layout.INDEX, choices=True),
    "moderations": Batchable(inputs="input", results="results", layout=Layout.POSITION),
}

_MOST_INPUTS: Final = {
    "api.openai.com": 2048,
    "api.cohere.com": 96,
    "api.cohere.ai": 96,
    "api.mistral.ai": 64,
    "api.voyageai.com": 1000,
}
_MOST_INPUTS_BELOW: Final = {".openai.azure.com": 2048, ".cognitiveservices.azure.com": 2048}


def most_inputs(host: str) -> int | None:
    """Returns how many inputs one call to a host may carry; None where that is not known."""
    host = host.lower().rstrip(".")
    below = (most for end, most in _MOST_INPUTS_BELOW.items() if host.endswith(end))
    return _MOST_INPUTS.get(host) or next(below, None)


def batchable_of(
    operation: Operation | None, path: str, *, inputs: str | None, results: str | None
) -> Batchable | None:
    """Returns how a call takes several inputs: by its path, or else as the policy declares it. None: it takes one."""
    if operation is not None and operation.kind in _KNOWN:
        return None if path.endswith(_FILL_IN_THE_MIDDLE) else _KNOWN[operation.kind]
    if inputs is None or results is None or operation is not None:
        return None
    return Batchable(inputs=inputs, results=results, layout=Layout.EITHER)


def inputs_of(document: Mapping[str, Any], call: Batchable) -> Inputs | None:
    """Reads the inputs of a request; None where they cannot travel with others."""
    if document.get("stream"):
        return None
    each = _choices(document) if call.choices else 1
    value: Any = document.get(call.inputs)
    values: list[Any]
    if type(value) is str or (type(value) is list and value and type(value[0]) is int):
        values = [value]
    elif type(value) is list and value:
        values = value
    else:
        return None
    kind = "text" if type(values[0]) is str else "tokens"
    if not each or not all(map(_is_text if kind == "text" else _is_tokens, values)):
        return None
    if kind == "tokens":
        tokens = tuple(map(len, values))
        return Inputs(kind=kind, values=values, tokens=tokens, bound=sum(tokens), each=each)
    sizes = [len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")) for text in values]
    tokens = tuple(size // _BYTES_PER_TOKEN + 1 for size in sizes)
    return Inputs(kind=kind, values=values, tokens=tokens, bound=sum(sizes), each=each)


def rest_of(body: bytes, document: Mapping[str, Any], call: Batchable) -> bytes | None:
    """Returns what has to be the same to travel together: all of a request's body but its inputs, `canonical`.

    None for a body that may be read in several ways.
    """
    rest = with_fields(body, document, {call.inputs: None})
    return canonical(rest, ignore=frozenset({call.inputs}), spaces=False, case=False)


def joined(parts: Sequence[Inputs]) -> list[Any]:
    """Returns the inputs of several requests as those of one."""
    return [value for part in parts for value in part.values]


def deal(answer: bytes, call: Batchable, parts: Sequence[Inputs]) -> list[Dealt] | None:
    """Returns what of an answer belongs to each request, as an answer of its own; None at any doubt.

    Results are counted from 0 for each. Usage is shared out in whole numbers that add up to what was reported.
    """
    try:
        document = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return None
    if type(document) is not dict or document.get("error"):
        return None
    results = _in_order(document.get(call.results), call.layout, sum(part.results for part in parts))
    if results is None:
        return None
    dealt, rest = [], iter(results)
    for part in parts:
        own = [next(rest) for _ in range(part.results)]
        dealt.append([_numbered(result, index) for index, result in enumerate(own)])
    made = [sum(map(_size, own)) for own in dealt]
    usages = apportioned(document.get("usage"), given=[sum(part.tokens) for part in parts], made=made)
    answers = []
    for own, usage, size in zip(dealt, usages, made, strict=True):
        document[call.results] = own
        if "usage" in document:
            document["usage"] = usage
        answers.append(Dealt(body=orjson.dumps(document), made=size))
    return answers


def _choices(document: Mapping[str, Any]) -> int:
    """Returns how many results each input has; 0 where that is not plain."""
    n, best_of = document.get("n"), document.get("best_of")
    if best_of is not None and type(best_of) is not int:
        return 0
    if n is None:
        return 1
    return n if type(n) is int and 0 < n <= MOST_CHOICES else 0


def _is_text(value: Any) -> bool:
    return type(value) is str and bool(value)


def _is_tokens(value: Any) -> bool:
    return type(value) is list and bool(value) and all(type(token) is int for token in value)


def _in_order(results: Any, layout: Layout, count: int) -> list[Any] | None:
    """Returns as many results as there are to be, in the order of their inputs."""
    if type(results) is not list or len(results) != count:
        return None
    indices: list[Any] = [result.get("index") if type(result) is dict else None for result in results]
    given = sum(index is not None for index in indices)
    if layout is Layout.POSITION or (layout is Layout.EITHER and not given):
        return results
    if any(type(index) is not int for index in indices) or set(indices) != set(range(count)):
        return None
    return [result for _, result in sorted(zip(indices, results, strict=True), key=lambda pair: pair[0])]


def _numbered(result: Any, index: int) -> Any:
    if type(result) is dict and type(result.get("index")) is int:
        result["index"] = index
    return result


def _size(result: Any) -> int:
    """Weighs what was written: a completion by its text; other results are no text."""
    text = result.get("text") if type(result) is dict else None
    return len(text) if type(text) is str else 0
