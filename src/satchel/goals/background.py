"""How does a goal go on that nobody waits for? In a process of its own, which outlives us."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from satchel.goals.engines.opening import goals_folder, local_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.settings import Settings

_TAIL = 4_096
"""Bytes at the end of a log that say why a process ended."""


class Background(NamedTuple):
    """A process that goes on with a goal."""

    process: subprocess.Popen[bytes]
    log: str
    """The path of what it says."""
    begun: int
    """Where in the log it begins: others wrote before it."""

    def last_words(self) -> str:
        """What it said last, as far as it said anything."""
        try:
            with open(self.log, "rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(self.begun, size - _TAIL))
                return stream.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""


def go_on(
    settings: Settings, goal_id: str, options: Sequence[str] = (), *, project: str = ""
) -> Background:
    """Start a process that resumes a goal and outlives us.

    Args:
        settings: Where goals are kept.
        goal_id: Which, as its engine knows it.
        options: Of `satchel goal resume`: `--engine`, `--model`, `--yes`.
        project: The folder of the project; as the settings say when empty.
    """
    engine = options[options.index("--engine") + 1] if "--engine" in options else settings.engine
    if engine == "local":
        log = os.path.join(local_folder(settings), "goals", goal_id, "log.txt")
    else:
        folder = os.path.join(goals_folder(settings), "goal-logs")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        log = os.path.join(folder, f"{goal_id}.txt")
    words = ["--project", os.path.abspath(os.path.expanduser(project or settings.project))]
    words += ["goal", "resume", goal_id, *options]
    with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as stream:
        begun = stream.seek(0, os.SEEK_END)
        process = subprocess.Popen(  # noqa: S603 - our own program, with words of ours
            [sys.executable, "-m", "satchel", *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    return Background(process, log, begun)
