"""What is printed while the demo runs: a line for each event, and on a terminal a line that moves."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.text import Text


class Narrator:
    """Prints to a console; times are seconds since `began`, itself in seconds since the epoch."""

    def __init__(self, console: Console, began: float) -> None:
        self._console = console
        self._began = began
        moves = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if moves else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str, *, at: float, style: str = "") -> None:
        """Prints a line for something that happened `at` these seconds since the epoch."""
        self._console.print(Text(f"{at - self._began:5.1f} s  {text}", style=style), soft_wrap=True)

    def show(self, text: str) -> None:
        """Replaces the line that moves."""
        if self._live is not None:
            self._live.update(Text(f"         {text}", style="dim", no_wrap=True, overflow="ellipsis"), refresh=True)
