"""Callers: by what name one is known, as far as its request tells (`policy.md`, `tenants.from`).

What a caller says of itself is bounded and printable before anybody keeps it. A credential is never kept: it is known
by a keyed hash whose key does not outlive the process, so that no table tells which it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Final

from proxy.fields import Fields

NOBODY: Final = "default"
"""Who brings nothing of what would name it."""
LONGEST_NAME: Final = 128
"""Longer names are cut, and end with a hash of all that was said: what one tenant is answered is no other one's."""
CREDENTIALS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Where callers put a credential, in the order in which one is looked for."""
SECRET_HEADERS: Final = frozenset(CREDENTIALS) | {"cookie", "proxy-authorization"}
"""What nobody may be called by, whatever a policy says."""
FINGERPRINT_BYTES: Final = 8


def name_of(
    fields: Fields, headers: Sequence[str | None], salt: bytes, *, secret: Collection[str] = SECRET_HEADERS
) -> str:
    """Returns the first name that the request has: what a header says, or (None) its credential's fingerprint.

    What `secret` headers say is a credential, too.
    """
    for header in headers:
        if header is None or header in secret:
            found = fingerprint(fields, salt, CREDENTIALS if header is None else (header,))
        else:
            found = said(fields, header, salt)
        if found:
            return found
    return NOBODY


def said(fields: Fields, header: str, salt: bytes) -> str:
    """Returns what a header says of its sender: printable, of bounded length; "" for nothing.

    A name that cannot stay as it is ends with a keyed hash of it: no two are one, and nobody can guess it.
    """
    value = fields.get(header) or ""
    if len(value) <= LONGEST_NAME and value.isprintable():
        return value
    shown = value if value.isprintable() else ascii(value)[1:-1]
    mark = blake2b(value.encode("utf-8", "surrogateescape"), key=salt, digest_size=FINGERPRINT_BYTES).hexdigest()
    return f"{shown[: LONGEST_NAME - len(mark) - 1]}~{mark}"


def fingerprint(fields: Fields, salt: bytes, headers: Sequence[str] = CREDENTIALS) -> str:
    """Returns by what a caller's credential is known; "" where it brings none. The same in whichever header it is."""
    first = fields.shape.first
    for header in headers:
        if (at := first.get(header)) is None:
            continue
        value = fields.lines[at].strip()
        # A scheme stands before a credential; cookies are several.
        if secret := value if header == "cookie" else value.rpartition(b" ")[2]:
            return "key-" + blake2b(secret, key=salt, digest_size=FINGERPRINT_BYTES).hexdigest()
    return ""
