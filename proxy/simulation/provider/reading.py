"""What a request says before its body is understood: who asks, from where, and for which page."""

from __future__ import annotations

from aiohttp import web

from proxy.simulation.provider.asks import Ask, Endpoint, decoded, read_ask
from proxy.simulation.provider.batches import check
from proxy.simulation.provider.dialect import Problem
from proxy.simulation.provider.settings import SimulatorSettings

MODELS = "/v1/models"
_ENDPOINTS = {endpoint.value: endpoint for endpoint in Endpoint}


def ask_of(request: web.Request, raw: bytes, settings: SimulatorSettings) -> Ask | None:
    """Returns what is asked of a model, None for the list of models; raises BadAsk."""
    if request.path == MODELS:
        return None
    ask = read_ask(_ENDPOINTS[request.path], decoded(raw, request.headers.get("content-encoding")))
    check(ask, settings)
    return ask


def misplaced(request: web.Request) -> Problem | None:
    """Returns what is wrong with path or method, None when both are right."""
    method = "GET" if request.path == MODELS else "POST"
    if request.path != MODELS and request.path not in _ENDPOINTS:
        message = f"Invalid URL ({request.method} {request.path})"
        return Problem(status=404, message=message, code="unknown_url")
    if request.method != method:
        return Problem(status=405, message=f"Not allowed to {request.method} on {request.path}")
    return None


def key_of(request: web.Request) -> str | None:
    """Returns the key in any of the headers that providers read."""
    headers = request.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    return headers.get("x-api-key") or headers.get("api-key")


def peer_of(request: web.Request) -> str:
    """Returns `host:port` of the caller."""
    name = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{name[0]}:{name[1]}" if name else ""
