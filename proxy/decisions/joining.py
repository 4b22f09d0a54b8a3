"""Joining: which path and query a provider is asked for (`policy.md` rule 4).

Bytes after the join stay the caller's, but for a credential in the query of who is not to have it.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote_plus

CALLER_ROOT = "/v1"
QUERY_CREDENTIALS: Final = frozenset({"key", "api_key", "api-key", "apikey", "access_token", "subscription-key"})
"""Parameters by which providers take a credential instead of a header, in lower case."""


def starts_with_path(path: str, root: str) -> bool:
    """Whether `path` begins with `root`, by whole segments."""
    return path.startswith(root) and (len(path) == len(root) or path[len(root)] == "/")


def join(path: str, root: str) -> str:
    """Returns the path to ask for: `root` is the path of `base_url` without its trailing slash.

    An empty root, or a caller's path that begins with it: the path as it is. Else a leading `/v1` is replaced by the
    root; else the root is put in front.
    """
    if not root or starts_with_path(path, root):
        return path
    if starts_with_path(path, CALLER_ROOT):
        return root + path[len(CALLER_ROOT) :]
    return root + path


def without_credentials(query: str) -> str:
    """Returns a query ("" or beginning with "?") without the caller's credentials; every other byte stays."""
    parts = query[1:].split("&")
    kept = [part for part in parts if unquote_plus(part.partition("=")[0]).lower() not in QUERY_CREDENTIALS]
    if len(kept) == len(parts):
        return query
    return f"?{'&'.join(kept)}" if kept else ""
