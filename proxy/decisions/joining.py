"""Joining: which path a provider is asked for (`policy.md` rule 4). Bytes after the join stay the caller's."""

from __future__ import annotations

CALLER_ROOT = "/v1"


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
