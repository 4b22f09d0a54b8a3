"""The handshake of a WebSocket (RFC 6455 §4): what asks for one, what agrees to it, and the secrets in an offer.

Browsers cannot set headers, so that OpenAI's realtime interface takes a key as a subprotocol.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final
from urllib.parse import quote, unquote_plus

from proxy.fields import Fields

SWITCH: Final = b"connection: Upgrade\r\nupgrade: websocket\r\n"
OFFER: Final = b"sec-websocket-protocol"
_ACCEPT: Final = "sec-websocket-accept"
_KEY: Final = "sec-websocket-key"
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SECRET_OFFERS: Final = ("openai-insecure-api-key.", "openai-organization.", "openai-project.")


def asks(method: str, version: tuple[int, int], fields: Fields) -> bool:
    """Returns whether a request that offers to switch protocols offers WebSocket, and could be taken at its word."""
    first = fields.shape.first
    return (
        method == "GET"
        and version == (1, 1)
        and fields.get("upgrade", "").lower() == "websocket"
        and "upgrade" not in fields.repeated
        and _KEY in first
        and _KEY not in fields.repeated
        and fields.get("content-length", "0") == "0"
        and "content-length" not in fields.repeated
        and "transfer-encoding" not in first
    )


def agrees(asked: Fields, answer: Fields) -> bool:
    """Returns whether a 101 answers the request that was asked (RFC 6455 §4.1)."""
    digest = hashlib.sha1(asked.get(_KEY, "").encode("utf-8", "surrogateescape") + _GUID, usedforsecurity=False)
    accept = base64.b64encode(digest.digest()).decode("ascii")
    return answer.get("upgrade", "").lower() == "websocket" and answer.get(_ACCEPT, "") == accept


def offer_line(asked: Fields, *, secrets: bool) -> bytes:
    """Returns the line that offers subprotocols, or nothing: an empty offer is malformed.

    Without `secrets` those that carry a caller's credential or account are left out.
    """
    offers = [word.strip() for value in asked.getall(OFFER.decode()) for word in value.split(",")]
    kept = [word for word in offers if word and (secrets or not word.lower().startswith(_SECRET_OFFERS))]
    return b"%b: %b\r\n" % (OFFER, ", ".join(kept).encode("utf-8", "surrogateescape")) if kept else b""


def model_of(query: str) -> str | None:
    """Returns the model that a target's query names, as realtime interfaces have it.

    Raises ValueError for several: of those some readers take the first, and others the last.
    """
    models = [value for part in query.removeprefix("?").split("&") if (value := _model_in(part)) is not None]
    if len(models) > 1:
        raise ValueError("several models")
    return models[0] or None if models else None


def with_model(query: str, model: str) -> str:
    """Returns the query with another model in the place of the one that it names; the rest as it came."""
    parts = query.removeprefix("?").split("&")
    named = f"model={quote(model, safe='')}"
    return f"?{'&'.join(named if _model_in(part) else part for part in parts)}"


def _model_in(part: str) -> str | None:
    """Returns the model that a parameter names; None when it is another one."""
    name, _, value = part.partition("=")
    return unquote_plus(value) if unquote_plus(name) == "model" else None
