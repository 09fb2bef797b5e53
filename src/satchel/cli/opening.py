"""Opens the project that a command works on; ignored settings are reported on stderr.

Without click, since `satchel list` starts before it is imported.
"""

from __future__ import annotations

import os
import sys

from satchel._language import say
from satchel._project import library_for, setting_problems
from satchel.cli import COMPLETE
from satchel.cli.output import Screen, one_line
from satchel.facade import Satchel
from satchel.settings import COMMAND_DEFAULTS, load_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from satchel.settings import Settings


def open_project(folder: str, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> Satchel:
    """The skills of a project's root folder.

    Args:
        folder: The root.
        given: Settings that win over all others.
        defaults: Settings that hold where nothing is set.

    Raises:
        SettingsError: a setting cannot be used.
        NotFound: there is no such folder.
    """
    settings = load_settings(folder, defaults={**COMMAND_DEFAULTS, **defaults}, **given)
    return Satchel(library_for(settings), settings)


def warn_of_settings(settings: Settings, colour: bool | None) -> None:
    """Report settings that were ignored, on stderr."""
    if not settings.remarks or COMPLETE in os.environ:
        return
    for problem in setting_problems(settings):
        if problem.severity == "error":
            screen = Screen(sys.stderr, colour)
            text = f"{one_line(problem.path)}{say(': ')}{one_line(problem.message)}"
            screen.line(text, lead=[(say("warning: "), "yellow")])
            screen.line(one_line(problem.fix), lead=[(say("hint: "), "cyan")])
