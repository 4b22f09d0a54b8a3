"""Requests that may be equal, and a scope that names them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from proxy.decisions.likeness import Likeness, LikenessScope
from proxy.exchange import Exchange
from proxy.fields import fields_of
from tests.fakes import Ask, make_exchange

SCOPE = LikenessScope(route=b"chat", target=b"alpha")
BODY: dict[str, Any] = {"model": "m1", "messages": [{"role": "user", "content": "q"}]}
Lines = Sequence[tuple[str, str]]


def asked(
    body: Any = BODY,
    headers: Lines = (),
    *,
    method: str = "POST",
    target: str = "/v1/chat/completions",
    tenant: str = "t1",
) -> Exchange:
    """A request that may be repeated; a body that is no bytes is spelled as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    exchange = make_exchange(Ask(method=method, target=target, body=raw))
    exchange.request.fields = fields_of(
        (key.encode(), value.encode("utf-8", "surrogateescape")) for key, value in headers
    )
    exchange.facts.tenant = tenant
    exchange.repeatable = True
    return exchange


def name(exchange: Exchange, scope: LikenessScope = SCOPE) -> bytes:
    """Its name in a scope."""
    return Likeness(scope).name(exchange)
