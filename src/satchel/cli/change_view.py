"""Shows the changes that a tool proposes on a terminal, and reads the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.cli.console import cut, one_line
from satchel.i18n import say
from satchel.presentation.proposals import format_sizes, kind_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.cli.console import Screen
    from satchel.session.permissions import ApprovalRequest
    from satchel.tools.proposed_changes import ProposedChange

MAX_FILES_SHOWN = 40
"""Rows of the table at first."""
MAX_DIFF_LINES = 100
"""Lines of all diffs together at first."""
MAX_LINE_CHARS = 400
_YES_WORDS = frozenset(("y", "yes", "是"))
_NO_WORDS = frozenset(("", "n", "no", "否"))
_DIFF_WORDS = frozenset(("d", "diff", "全部"))
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def show_changes(screen: Screen, changes: Sequence[ProposedChange], *, full: bool = False) -> bool:
    """Write a table of the changes, then their diffs; False when something was left out.

    Args:
        screen: Where to write.
        changes: The changes.
        full: Whether nothing is left out.
    """
    rows = changes if full else changes[:MAX_FILES_SHOWN]
    titles = (say("change"), say("size"), say("path"))
    cells = [(kind_label(change), format_sizes(change), _path_text(change)) for change in rows]
    styles = [("red" if change.kind == "deleted" else "green", "dim") for change in rows]
    screen.table(titles, cells, styles)
    is_complete = len(rows) == len(changes)
    if not is_complete:
        hidden_count = len(changes) - len(rows)
        screen.line(say("… and {count} more", count=hidden_count), "dim")
    lines = [line for change in changes for line in _diff_lines(change)]
    printed = lines if full else lines[:MAX_DIFF_LINES]
    for text, style in printed:
        short = text if full else cut(text, MAX_LINE_CHARS)
        is_complete = is_complete and short == text
        screen.write(f"{screen.paint(short, style)}\n")
    if len(printed) < len(lines):
        is_complete = False
        hidden_count = len(lines) - len(printed)
        screen.line(say("… {count} more lines", count=hidden_count), "dim")
    return is_complete


def _path_text(change: ProposedChange) -> str:
    path = one_line(change.path)
    if change.link:
        return f"{path} → {one_line(change.link)}"
    return f"{path} ({change.mode_words})" if change.mode_words else path


def _diff_lines(change: ProposedChange) -> Iterator[tuple[str, str]]:
    """Yield the lines of a diff with their styles; the texts are printable already."""
    if not change.diff:
        if not change.link and change.kind != "deleted":
            text = say("{path}: no diff, since it is empty, binary or too long",
                       path=one_line(change.path))  # fmt: skip
            if change.executable != change.was_executable and change.old_size == change.new_size:
                text = say(
                    "{path}: no diff, since only its mode changes, or it is empty, binary or too "
                    "long",
                    path=one_line(change.path),
                )
            yield text, "dim"
        return
    for index, line in enumerate(change.diff.split("\n")):
        if line == "…":
            text = say("{path}: the rest is too long to be shown", path=one_line(change.path))
            yield text, "bold"
        else:
            yield line, "bold" if index < 2 else _DIFF_STYLES.get(line[:1], "")


def may_repeat(request: ApprovalRequest) -> bool:
    """Whether an approval may cover later calls of the tool: there is nothing to look at."""
    return not request.changes and not request.reasons


class ApprovalPrompt:
    """One request for approval on a terminal."""

    def __init__(self, screen: Screen, request: ApprovalRequest, *, always: bool = False) -> None:
        """Show the request.

        Args:
            screen: Where it is shown.
            request: The request.
            always: Whether the answer may cover later requests.
        """
        self._screen, self._request = screen, request
        self.may_repeat = always and may_repeat(request)
        """Whether `a` is an answer."""
        self.always = False
        """Whether the answer was `a`."""
        screen.line(one_line(request.question), indent="  ", lead=[("? ", "bold yellow")])
        self._is_complete = not request.changes or show_changes(screen, request.changes)

    @property
    def keys(self) -> str:
        """The question for a key."""
        if self.may_repeat:
            return say("  y yes, n no, a always in this chat: ")
        if self._is_complete:
            return say("  y yes, n no: ")
        return say("  y yes, n no, d everything: ")

    def answer(self, text: str) -> bool | None:
        """The decision; None after everything was shown, or when the answer is unclear."""
        word = text.strip().lower()
        self.always = self.may_repeat and word in {"a", "always", "总是"}
        if word in _DIFF_WORDS and self._request.changes:
            self._is_complete = show_changes(self._screen, self._request.changes, full=True)
            return None
        if self.always or word in _YES_WORDS:
            return True
        return False if word in _NO_WORDS else None
