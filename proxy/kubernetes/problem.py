"""What is wrong with a document, in words that say the cure."""

from __future__ import annotations


class Unfit(Exception):
    """Why a document cannot get the sidecar; one or more reasons."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class ManifestError(Exception):
    """All that is wrong with a manifest, a line each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
