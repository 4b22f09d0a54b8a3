"""Single values of a policy: each type says what it expected, and has its form in the JSON Schema.

Messages are complete sentences after `path: `; `wording.py` adds what was found instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, WithJsonSchema
from pydantic_core import PydanticCustomError, core_schema

from proxy.policy.units import (
    DURATION_PATTERN,
    LARGEST_BYTES,
    LONGEST_SECONDS,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)

OURS = "policy"
"""The pydantic error type of all messages from here."""

T = TypeVar("T")

if TYPE_CHECKING:
    Maybe: TypeAlias = T | None
else:

    class Maybe:
        """A field that may be absent, for which None stands; nobody can write None."""

        def __class_getitem__(cls, item: Any) -> Any:
            return item


def expected(what: str) -> PydanticCustomError:
    """Returns the error for a value that is not `what`."""
    return PydanticCustomError(OURS, "expected " + what)


class Duration(float):
    """Seconds, written with units."""

    def __str__(self) -> str:
        return format_duration(self)

    @classmethod
    def read(cls, value: object) -> Duration:
        """Returns the duration of a text such as `1m30s`."""
        seconds = parse_duration(value) if isinstance(value, str) else None
        if seconds is None:
            raise expected("a duration such as 250ms, 5s, 10m or 1h")
        if seconds > LONGEST_SECONDS:
            raise expected(f"a duration of at most {format_duration(LONGEST_SECONDS)}")
        return cls(seconds)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "pattern": DURATION_PATTERN, "examples": ["250ms", "5s", "10m", "1h"]}


class Size(int):
    """Bytes, written with units or as a plain number."""

    def __str__(self) -> str:
        return format_size(self)

    @classmethod
    def read(cls, value: object) -> Size:
        """Returns the size of a text such as `64KiB`, or of a whole number of bytes."""
        count = parse_size(value) if isinstance(value, str) else _whole(value)
        if count is None or not 0 <= count <= LARGEST_BYTES:
            raise expected("a size such as 64KiB, 1MiB or a number of bytes")
        return cls(count)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        text = {"type": "string", "pattern": SIZE_PATTERN, "examples": ["64KiB", "1MiB"]}
        return {"anyOf": [text, {"type": "integer", "minimum": 0}]}


def _above_zero(value: Duration) -> Duration:
    if not value:
        raise expected("a duration above zero")
    return value


LARGEST_COUNT = 10**15


def _whole(value: object) -> int | None:
    """An int or a float without a fraction (`1e3`); None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else None
    return value


def _count(least: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        count = _whole(value)
        if count is None or count < least:
            raise expected(f"a whole number, {least} or more")
        if count > LARGEST_COUNT:
            raise expected("a smaller number")
        return count

    return check


def _finite(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise expected(what)
    if abs(value) > LARGEST_COUNT or not math.isfinite(value):
        raise expected(f"{what}, finite and not above {LARGEST_COUNT:.0e}")
    return float(value)


def _number(value: object) -> float:
    number = _finite(value, what := "a number, 0 or more")
    if number < 0:
        raise expected(what)
    return number


def _weight(value: object) -> float:
    number = _finite(value, what := "a number above 0")
    if number <= 0:
        raise expected(what)
    return number


def _ratio(value: object) -> float:
    number = _finite(value, what := "a number from 0 to 1")
    if not 0 <= number <= 1:
        raise expected(what)
    return number


def _status(value: object) -> int:
    status = _whole(value)
    if status is None or not 200 <= status <= 599:
        raise expected("a status from 200 to 599")
    return status


def _version(value: object) -> int:
    if _whole(value) != 1:
        raise expected("1, the only version there is")
    return 1


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise expected("text")
    if not value.strip():
        raise expected("text that is not empty")
    if not value.isprintable():
        raise expected("text without control characters")
    return value


def _header_text(value: object) -> str:
    text = _text(value)
    if not text.isascii() or text != text.strip():
        raise expected("ASCII text without space around it, as headers have")
    return text


def _matching(pattern: str, what: str) -> Callable[[object], str]:
    compiled = re.compile(pattern)

    def check(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise expected(what)
        return value

    return check


PROVIDER_NAME = r"^(?!(?:v1|sponson)$)[a-z][a-z0-9-]{0,62}$"
LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
HEADER = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?|[0-9a-f.]*:[0-9a-f:.]*(?:%[\w.-]+)?", re.ASCII)

PositiveDuration = Annotated[Duration, AfterValidator(_above_zero)]
Version = Annotated[Literal[1], BeforeValidator(_version)]
Count = Annotated[int, Field(ge=0), BeforeValidator(_count(0))]
PositiveCount = Annotated[int, Field(ge=1), BeforeValidator(_count(1))]
Number = Annotated[float, Field(ge=0), BeforeValidator(_number)]
Weight = Annotated[float, Field(gt=0), BeforeValidator(_weight)]
Ratio = Annotated[float, Field(ge=0, le=1), BeforeValidator(_ratio)]
Status = Annotated[int, Field(ge=200, le=599), BeforeValidator(_status)]
Text = Annotated[str, Field(min_length=1), BeforeValidator(_text)]
HeaderText = Annotated[str, Field(min_length=1), BeforeValidator(_header_text)]
ProviderName = Annotated[
    str,
    BeforeValidator(_matching(PROVIDER_NAME, "a name of a-z, 0-9 and -, a letter first, and not v1 or sponson")),
    WithJsonSchema({"type": "string", "pattern": PROVIDER_NAME}),
]
Label = Annotated[
    str,
    BeforeValidator(_matching(LABEL, "a name of letters, digits and . _ -, at most 63 of them")),
    WithJsonSchema({"type": "string", "pattern": LABEL}),
]
Variable = Annotated[
    str,
    BeforeValidator(_matching(VARIABLE, "the name of an environment variable")),
    WithJsonSchema({"type": "string", "pattern": VARIABLE}),
]
HeaderName = Annotated[
    str,
    BeforeValidator(_matching(HEADER, "the name of a header")),
    WithJsonSchema({"type": "string", "pattern": HEADER}),
]


def split_url(value: str) -> SplitResult | None:
    """Returns the parts of an http or https address with a usable host and port, None for anything else."""
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
        usable = parts.scheme in ("http", "https") and HOST.fullmatch(host) and parts.port != 0
        if ":" in host:
            ip_address(host)
    except ValueError:
        return None
    return parts if usable else None


def _url(value: object) -> str:
    address = "an http or https address such as https://api.example/v1"
    if not isinstance(value, str) or not value.isascii() or not value.isprintable() or " " in value:
        raise expected(address)
    if (parts := split_url(value)) is None:
        raise expected(address)
    if "@" in parts.netloc:
        raise expected("an address without credentials: keys are named under keys")
    if "?" in value or "#" in value:
        raise expected("an address without ? and #: use query for parameters")
    return value


Url = Annotated[
    str, BeforeValidator(_url), WithJsonSchema({"type": "string", "pattern": "^https?://[^/?#@ ]+[^?# ]*$"})
]


def _json(value: object) -> object:
    match value:
        case dict():
            for item in value.values():
                _json(item)
        case list():
            for item in value:
                _json(item)
        case float() if not math.isfinite(value):
            raise expected("JSON, which has no infinite numbers")
        case int() if not -(2**63) <= value < 2**64:
            raise expected("numbers of at most 64 bits")
    return value


Json = Annotated[Any, AfterValidator(_json)]

SCALAR, MAPPING, LIST = "<scalar>", "<mapping>", "<list>"
"""Names of alternatives: they appear in pydantic's locations, and in no policy path."""


def mapping_or_scalar(value: object) -> str:
    """Which alternative a value has the form of, where there is no list among them."""
    return MAPPING if isinstance(value, dict) else SCALAR


def list_or_scalar(value: object) -> str:
    """Which alternative a value has the form of, where there is no mapping among them."""
    return LIST if isinstance(value, list) else SCALAR
