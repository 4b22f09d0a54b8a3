"""The marks: one for each place, found by their common stem whatever they were made of on their way out."""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final

from tests.integration.caller import Headers

_STEM: Final = "m4rk3d"
"""Three bytes to a group of base64: `encoded` finds it at any offset."""


def mark(place: str) -> str:
    """Returns the secret that stands in this place."""
    return f"sk-{_STEM}{_STEM}-{place}"


ENVIRONMENT: Final = {
    "KEY": mark("key"),
    "KEY_TWO": mark("second-key"),
    "POLICY_SECRET": mark("policy-header"),
    "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer {mark('collector')},x-late={mark('collector')}",
}
QUERY: Final = "?" + "&".join(f"{name}={mark(name)}" for name in ("key", "api_key", "access_token", "sig"))
HEADERS: Final[Headers] = [
    ("authorization", f"Bearer {mark('bearer')}"),
    *((name, mark(name)) for name in ("x-api-key", "api-key", "x-goog-api-key", "x-account", "openai-organization")),
    ("proxy-authorization", f"Basic {mark('proxy')}"),
    ("cookie", f"session={mark('cookie')}; other={mark('cookie')}"),
    *((name, mark(name)) for name in ("referer", "user-agent", "baggage", "x-sponson-class", "x-unknown")),
    ("x-sponson-trail", "1"),
]
TRACED: Final[Headers] = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
PROMPT: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": f"my key is {mark('prompt')}"}],
    "user": mark("user"),
    "metadata": {"token": mark("metadata")},
}
OFFER: Final = f"realtime, openai-insecure-api-key.{mark('offer')}"
"""Subprotocols, as browsers send a key."""


CALLERS: Final = (
    *("bearer", "x-api-key", "api-key", "x-goog-api-key", "x-account", "openai-organization", "cookie", "proxy"),
    *("key=", "api_key=", "access_token=", "offer"),
)
"""What of these is a credential of the caller: the places of marks, or how a parameter begins."""
OURS: Final = ("key", "second-key", "key-file")


def credentials(head: bytes) -> set[str]:
    """Returns the caller's credentials, and ours, in a head that reached a provider; ours begin with `our`."""
    text = head.decode("latin-1")
    callers = {place for place in CALLERS if (place if place.endswith("=") else mark(place)) in text}
    ours = {
        f"our {place}" for place in OURS if any(end in text for end in (f"Bearer {mark(place)}\r", mark(place) + "\n"))
    }
    return callers | ours


def _needles() -> tuple[bytes, ...]:
    plain = _STEM.encode()
    shifted = (base64.b64encode(b"\0" * pad + plain * 2)[4:12] for pad in range(3))
    secrets = [*map(mark, (*OURS, *CALLERS)), f"Bearer {mark('bearer')}"]
    hashes = (hashlib.sha256(secret.encode()).hexdigest()[:12].encode() for secret in secrets)
    return (plain, plain.hex().encode(), *(piece.lower() for piece in shifted), *hashes)


NEEDLES: Final = _needles()


def found(text: bytes) -> list[str]:
    """Returns what stands around each mark in a text: plain, in other case, in hexadecimal, in base64 or hashed."""
    low = text.lower()
    places = [low.find(needle) for needle in NEEDLES]
    return [text[max(0, at - 80) : at + 80].decode("latin-1") for at in places if at >= 0]
