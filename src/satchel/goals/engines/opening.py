"""The engine that the settings name, and processes that go on with a goal on their own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple, cast

from satchel._language import say
from satchel._optional import require
from satchel.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.goals.engines.base import Engine
    from satchel.goals.model import StepRunner
    from satchel.settings import Settings

ENGINES = ("local", "dbos", "temporal")
QUEUE = "satchel"
"""Where workers and goals of `temporal` find each other, unless the setting says otherwise."""
_PORT = "7233"
_NOTE = "project"
"""The file that says whose goals a folder has."""


def open_engine(
    settings: Settings,
    name: str | None = None,
    runner: StepRunner | None = None,
    *,
    only: str = "",
) -> Engine:
    """The engine by its name, else by the setting; to be entered with `async with`.

    Args:
        settings: Where it keeps goals.
        name: Which; the setting `engine` when None.
        runner: Who does steps here; None looks and leaves work, and does none.
        only: The one goal whose steps it does; those of all goals when empty, as workers do. What
            somebody allows for one goal is allowed for no other.

    Raises:
        MissingExtra: its extra is not installed.
        SettingsError: its settings cannot be used.
    """
    chosen = name or settings.engine
    if chosen == "dbos":
        require("dbos", "dbos")
        from satchel.goals.engines.dbos import DbosEngine

        return DbosEngine(runner, database_of(settings), only=(only,) if only else None)
    if chosen == "temporal":
        require("temporalio", "temporal")
        from satchel.goals.engines.temporal import TemporalEngine

        address, namespace, queue = temporal_of(settings)
        folder = os.path.join(goals_folder(settings), "artefacts")
        made = TemporalEngine(runner, folder, address=address, namespace=namespace, queue=queue)
        return cast("Engine", made)
    from satchel.goals.engines.local import LocalEngine

    return LocalEngine(runner, folder=local_folder(settings))


def goals_folder(settings: Settings) -> str:
    """Where this machine keeps goals: `local` in `goals` below it, `dbos` in a file of its own.

    Raises:
        SettingsError: there is no state folder.
    """
    if not settings.paths.state:
        raise SettingsError(
            say("There is no folder to keep goals in: `HOME` is not set"),
            say("Set the variable: `export {variable}=…`", variable="SATCHEL_HOME"),
        )
    os.makedirs(settings.paths.state, mode=0o700, exist_ok=True)
    return settings.paths.state


def local_folder(settings: Settings) -> str:
    """Where the goals of this project are, and a line that says which project it is.

    One for each project: the skills, tools and approvals of a goal are those of the project that
    it was begun in.
    """
    folder = os.path.join(goals_folder(settings), f"goals-{_project_name(settings)}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    note = os.path.join(folder, _NOTE)
    if not os.path.exists(note):
        from satchel._fs import write_atomic

        write_atomic(note, os.path.realpath(settings.project).encode())
    return folder


def other_projects(settings: Settings) -> dict[str, str]:
    """Path of each other project that has goals of `local` -> the folder of those."""
    found: dict[str, str] = {}
    with os.scandir(goals_folder(settings)) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            try:
                with open(os.path.join(entry.path, _NOTE), "rb") as stream:
                    project = stream.read(4096).decode("utf-8", "replace")
            except OSError:  # something else
                continue
            if project != os.path.realpath(settings.project):
                found[project] = entry.path
    return found


def _project_name(settings: Settings) -> str:
    from hashlib import sha256

    return sha256(os.path.realpath(settings.project).encode()).hexdigest()[:12]


def database_of(settings: Settings) -> str:
    """The address of the database of `dbos`.

    Raises:
        SettingsError: it is none that DBOS knows.
    """
    url = settings.database
    if not url:
        # One for each project: whoever opens it does the steps that wait in it, with the skills
        # of the project that it is in.
        name = f"goals-{_project_name(settings)}.sqlite"
        return f"sqlite:///{os.path.join(goals_folder(settings), name)}"
    if not url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:", "postgres:")):
        raise SettingsError(
            say("`database` is no address of a SQLite file or of PostgreSQL"),
            say("Write `sqlite:///FILE` or `postgresql://USER@HOST/NAME`"),
        )
    return url


def is_shared(settings: Settings, engine: str | None) -> bool:
    """Whether workers of other machines, with skills of their own, do the steps.

    There a command only submits and looks: it would else take the steps of other people's goals,
    and do them with the skills and the approvals of whoever typed it.
    """
    chosen = engine or settings.engine
    return chosen == "temporal" or (chosen == "dbos" and settings.database.startswith("postgres"))


def temporal_of(settings: Settings) -> tuple[str, str, str]:
    """Address, namespace and queue of the Temporal server; the first two empty where unsaid.

    Raises:
        SettingsError: the setting has more or less than these.
    """
    if not settings.temporal:
        return "", "", QUEUE
    address, *rest = settings.temporal.split("/")
    if not address or len(rest) > 2 or not all(rest):
        raise SettingsError(
            say("`temporal` is `{value}`", value=settings.temporal),
            say("Write `HOST:PORT/NAMESPACE/QUEUE`; the last two may be left out"),
        )
    namespace, queue = (*rest, *("default", QUEUE)[len(rest) :])
    return address if ":" in address else f"{address}:{_PORT}", namespace, queue


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
        options: Of `satchel goal resume`: `--engine`, `--model`, `--allow-tools`.
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
