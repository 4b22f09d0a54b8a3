"""Where a provider is: its addresses (`base_url`), and the hosts that belong to it, perhaps with a port (`hosts`)."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema

from proxy.decisions.destinations import read_authority, read_host
from proxy.policy.schema.types import LIST, SCALAR, Url, expected, list_or_scalar

_WHAT: Final = "a host such as api.example, 10.0.0.1:8000 or [::1]:8000, without a path; no patterns, IDN as xn--"


def split_host(text: str) -> tuple[str, int | None]:
    """Returns host and port (None: none is written). Raises ValueError for what is neither name nor address."""
    bare = ":" in text and not text.startswith("[")
    if not bare and (host := read_host(text)) is not None:
        return host, None
    found = read_authority(text)
    if found is None:
        raise ValueError(text)
    return found.host, found.port


def _host(value: object) -> str:
    if not isinstance(value, str):
        raise expected(_WHAT)
    try:
        split_host(value)
    except ValueError as error:
        raise expected(_WHAT) from error
    return value


HostPort = Annotated[
    str,
    BeforeValidator(_host),
    WithJsonSchema({"type": "string", "pattern": "^(\\[[0-9A-Fa-f:.]+\\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?$"}),
]

Addresses = Annotated[
    Annotated[Url, Tag(SCALAR)] | Annotated[Annotated[list[Url], Field(min_length=1)], Tag(LIST)],
    Discriminator(list_or_scalar),
]
