"""How is an answer drawn while it comes? Finished blocks are printed, only the last is redrawn.

A block that stands is never touched again, so an answer of any length can be scrolled back, and
what is redrawn always fits the screen.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console
from rich.live import Live
from rich.markdown import Heading, Markdown
from rich.segment import Segment, Segments
from rich.spinner import Spinner
from rich.text import Text
from rich.theme import Theme

from satchel._language import say
from satchel.cli.output import clean, cut

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, JustifyMethod, RenderableType, RenderResult
    from rich.markdown import MarkdownElement

    from satchel.cli.output import Screen

_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.code_block": "none",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
        "markdown.link_url": "cyan",
        "markdown.link": "cyan",
        "markdown.block_quote": "dim",
        "markdown.hr": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
"""Colours of the terminal's own palette: they can be read on light and on dark."""
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])\s")
_PATIENCE = 0.4
"""Seconds before somebody is told that there is something to wait for."""
_BELOW = 3
"""Lines of the screen that the last block leaves free."""


class _Left(Heading):
    """A heading where the text begins."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class Answer(Markdown):
    """Markdown as it reads best in a terminal."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Left,
    }

    def __init__(self, text: str) -> None:
        # Links are written out: nothing on the screen leads where it does not say.
        super().__init__(text, code_theme="ansi_dark", hyperlinks=False)


def split_blocks(text: str) -> tuple[list[str], str]:
    """The blocks that are finished, and the beginning of the next one.

    A block ends at an empty line that is followed by a line which does not belong to it: not in
    the middle of code, and not before something indented, which may be part of a list.
    """
    lines = text.split("\n")
    blocks: list[str] = []
    start = 0
    fence = ""
    for at, line in enumerate(lines):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif found:
            fence = found[1]
        follows = lines[at + 1] if at + 1 < len(lines) else ""
        if fence or line.strip() or not follows.strip() or follows[0] in " \t":
            continue
        block = "\n".join(lines[start:at]).strip("\n")
        if block:
            blocks.append(block)
        start = at + 1
    return blocks, "\n".join(lines[start:])


class MarkdownBoard:
    """A board that draws Markdown; on a terminal the last block grows before one's eyes."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._console = Console(
            file=screen.stream,
            force_terminal=True,
            color_system="standard",
            width=screen.width or None,
            theme=_THEME,
            highlight=False,
            emoji=False,
            markup=False,
            legacy_windows=False,
        )
        self._live: Live | None = None
        self._rest = ""
        self._before = ""
        self._busy = ""
        self._since = 0.0
        self._spinner = Spinner("dots", style="cyan")

    @property
    def width(self) -> int:
        """Columns of the screen."""
        return self._console.width

    def paint(self, text: str, style: str) -> str:
        """`text` in a style."""
        return self._screen.paint(text, style)

    def text(self, delta: str) -> None:
        """Some more of the answer."""
        blocks, self._rest = split_blocks(self._rest + clean(delta))
        for block in blocks:
            self._block(block)
        self._moved()

    def line(self, text: str) -> None:
        """A line of its own."""
        self._flush()
        if self._before == "text":
            self._print("")
        self._print(Text.from_ansi(text))
        self._before = "line"
        self._moved()

    def aside(self, text: str) -> None:
        """Something by the way, for people."""
        self.line(self.paint(text, "dim"))

    def busy(self, words: str) -> None:
        """What is being waited for."""
        self._busy = words
        self._moved()

    def tick(self) -> None:
        """Draw anew; whoever waits calls it some times a second."""
        if self._live is not None:
            self._live.refresh()

    def open(self) -> None:
        """Begin to draw, where there is a terminal."""
        self._before = self._busy = ""
        self._moved()
        if self._screen.is_terminal and self._live is None:
            self._live = Live(
                self,
                console=self._console,
                auto_refresh=False,  # a thread of its own would draw between two lines of ours
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def close(self) -> None:
        """Write what was held back, and stop drawing."""
        self._flush()
        if self._live is not None:
            self._busy = ""
            self._live.stop()
            self._live = None

    def _flush(self) -> None:
        rest, self._rest = self._rest, ""
        if rest.strip():
            self._block(rest.strip("\n"))

    def _block(self, block: str) -> None:
        """Print a block that stands; items of one list stand close together."""
        item = bool(_ITEM.match(block))
        if self._before in {"line", "text"} or (self._before == "item" and not item):
            self._print("")
        self._before = "item" if item else "text"
        rows = self._rows(block, self._console.options)
        self._print(Segments([part for row in rows for part in (*row, Segment.line())]))

    def _rows(self, block: str, options: ConsoleOptions) -> list[list[Segment]]:
        """A block as lines of the screen, without the empty ones around it."""
        rows = self._console.render_lines(Answer(block), options, pad=False)
        full = [at for at, row in enumerate(rows) if "".join(part.text for part in row).strip()]
        return rows[full[0] : full[-1] + 1] if full else []

    def _print(self, what: RenderableType) -> None:
        self._console.print(what, soft_wrap=isinstance(what, Text))

    def _moved(self) -> None:
        self._since = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What is redrawn: the end of the last block, and what is waited for."""
        if self._rest.strip():
            room = max(console.height - _BELOW, 1)
            if self._before:
                yield Text("")
            for row in self._rows(self._rest, options)[-room:]:
                yield from row
                yield Segment.line()
            return
        waited = time.monotonic() - self._since
        if waited > _PATIENCE:
            words = cut(f"{self._busy or say('thinking')}  {waited:.0f} s", console.width - 4)
            self._spinner.update(text=Text(words, style="dim"))
            yield self._spinner
