"""Opens the project of a command and reports ignored settings, without importing click."""

from __future__ import annotations

import os
import sys

from satchel.cli import COMPLETION_VARIABLE
from satchel.cli.console import Screen, one_line
from satchel.i18n import render, say
from satchel.project import library_for, setting_problems
from satchel.satchel import Satchel
from satchel.settings import COMMAND_DEFAULTS, load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from satchel.settings import Settings


def open_project(
    folder: str, overrides: Mapping[str, Any], defaults: Mapping[str, Any], *, start: str = ""
) -> Satchel:
    """Open a project.

    Args:
        folder: Its root.
        overrides: Settings that override all others.
        defaults: Settings that apply where nothing is set.
        start: The working folder, whose levels are searched too; the root when empty.

    Raises:
        SettingsError: a setting cannot be used.
        NotFound: there is no such folder.
    """
    settings = load_settings(
        folder, defaults={**COMMAND_DEFAULTS, **defaults}, start=start, **overrides
    )
    if COMPLETION_VARIABLE not in os.environ:
        _finish_changes(settings.paths.state)
    return Satchel(library_for(settings), settings)


def _finish_changes(state: str) -> None:
    """Finish applying changes where a process was killed meanwhile, and print what was done."""
    folder = os.path.join(state, "overlays")  # as in `runners.overlay`, which is not imported here
    try:
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
    except OSError:
        return
    if any(os.path.exists(os.path.join(folder, name, "journal")) for name in names):
        from satchel.runners.proposal import finish_interrupted

        screen = Screen(sys.stderr)
        for message in finish_interrupted(state):
            screen.line(one_line(render(message)), lead=[(say("repaired: "), "yellow")])


def warn_of_settings(settings: Settings) -> None:
    """Print ignored settings on stderr."""
    if not settings.remarks or COMPLETION_VARIABLE in os.environ:
        return
    for problem in setting_problems(settings):
        if problem.severity == "error":
            screen = Screen(sys.stderr)
            text = f"{one_line(problem.path)}{say(': ')}{one_line(problem.message)}"
            screen.line(text, lead=[(say("warning: "), "yellow")])
            screen.line(one_line(problem.fix), lead=[(say("hint: "), "cyan")])
