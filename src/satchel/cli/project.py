"""Opens the project of a command and reports ignored settings, without importing click."""

from __future__ import annotations

import os
import sys

from satchel.cli import COMPLETE
from satchel.cli.console import Screen, one_line
from satchel.i18n import say
from satchel.project import library_for, setting_problems
from satchel.satchel import Satchel
from satchel.settings import COMMAND_DEFAULTS, load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from satchel.settings import Settings


def open_project(folder: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Satchel:
    """Open a project.

    Args:
        folder: Its root.
        given: Settings that override all others.
        defaults: Settings that apply where nothing is set.

    Raises:
        SettingsError: a setting cannot be used.
        NotFound: there is no such folder.
    """
    settings = load_settings(folder, defaults={**COMMAND_DEFAULTS, **defaults}, **given)
    return Satchel(library_for(settings), settings)


def warn_of_settings(settings: Settings) -> None:
    """Print ignored settings on stderr."""
    if not settings.remarks or COMPLETE in os.environ:
        return
    for problem in setting_problems(settings):
        if problem.severity == "error":
            screen = Screen(sys.stderr)
            text = f"{one_line(problem.path)}{say(': ')}{one_line(problem.message)}"
            screen.line(text, lead=[(say("warning: "), "yellow")])
            screen.line(one_line(problem.fix), lead=[(say("hint: "), "cyan")])
