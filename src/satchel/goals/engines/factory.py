"""Opens the engine that the settings name, and starts background processes that resume a goal."""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, cast

from satchel._optional import require
from satchel.errors import SettingsError
from satchel.i18n import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.goals.engines.base import Engine
    from satchel.goals.model import StepRunner
    from satchel.settings import Settings

ENGINES = ("local", "dbos", "temporal")
QUEUE = "satchel"
_TEMPORAL_PORT = "7233"


def open_engine(
    settings: Settings,
    name: str | None = None,
    runner: StepRunner | None = None,
    *,
    only: str = "",
    at_once: int = 100,
) -> Engine:
    """Create the engine of this name, or that of the settings; use it with `async with`.

    Args:
        settings: Storage locations.
        name: The engine; the setting `engine` when None.
        runner: Runs steps; None for an engine that only submits and reports.
        only: The only goal whose steps it runs; all goals when empty, as for workers. The
            approvals of one goal do not apply to others.
        at_once: Maximum number of goals (`dbos`) or steps (`temporal`) of this process.

    Raises:
        MissingExtra: its extra is not installed.
        SettingsError: its settings cannot be used.
        InvalidInput: DBOS does not support the database.
    """
    engine, address = chosen_engine(settings, name)
    if engine == "dbos":
        require("dbos", "dbos")
        from satchel.goals.engines.dbos import DbosEngine

        return DbosEngine(runner, database_url(settings, address), only=only, at_once=at_once)
    if engine == "temporal":
        require("temporalio", "temporal")
        from satchel.goals.engines.temporal import TemporalEngine

        host, namespace, queue = temporal_address(address)
        folder = os.path.join(goals_folder(settings), "artefacts")
        temporal_engine = TemporalEngine(
            runner, folder, address=host, namespace=namespace, queue=queue, at_once=at_once
        )
        return cast("Engine", temporal_engine)
    from satchel.goals.engines.local import LocalEngine

    return LocalEngine(runner, folder=local_folder(settings))


def chosen_engine(settings: Settings, engine: str | None = None) -> tuple[str, str]:
    """Name and address of `NAME` or `NAME:ADDRESS`; what is missing, of the setting `engine`."""
    name, _, address = (engine or settings.engine).partition(":")
    usual, _, usual_address = settings.engine.partition(":")
    return name, address or (usual_address if name == usual else "")


def goals_folder(settings: Settings) -> str:
    """The state folder, which contains the goals of this machine.

    Raises:
        SettingsError: there is no state folder.
    """
    if not settings.paths.state:
        raise SettingsError(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
    os.makedirs(settings.paths.state, mode=0o700, exist_ok=True)
    return settings.paths.state


def local_folder(settings: Settings) -> str:
    """The folder of this project's goals.

    One per project: the skills, tools and approvals of a goal are those of the project that
    it was started in.
    """
    folder = os.path.join(goals_folder(settings), f"goals-{_project_name(settings)}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def approvals_folder(settings: Settings, goal_id: str = "") -> str:
    """The folder of a goal's requests for approval; without a goal, that of all such folders."""
    name = f"goals-{_project_name(settings)}-approvals"
    return os.path.join(goals_folder(settings), name, goal_id)


def _project_name(settings: Settings) -> str:
    return sha256(os.path.realpath(settings.project).encode()).hexdigest()[:12]


def database_url(settings: Settings, url: str = "") -> str:
    """The address of the database of `dbos`; a file of the project when none is given.

    One per project: a process that opens it runs the waiting steps with the skills of its own
    project.

    Raises:
        SettingsError: it is no address.
    """
    if url and "://" not in url:
        raise SettingsError(
            say("`{value}` is not valid", value=url.rpartition("@")[2]),
            say("Write `dbos:sqlite:///FILE` or `dbos:postgresql://USER@HOST/NAME`"),
        )
    name = f"goals-{_project_name(settings)}.sqlite"
    return url or f"sqlite:///{os.path.join(goals_folder(settings), name)}"


def is_shared(settings: Settings, engine: str | None) -> bool:
    """Whether workers of other machines, with skills of their own, run the steps.

    Then a command only submits and reports: otherwise it would run steps of other users' goals with
    the skills and approvals of the current user.
    """
    name, address = chosen_engine(settings, engine)
    return name == "temporal" or (name == "dbos" and address.startswith("postgres"))


def temporal_address(text: str) -> tuple[str, str, str]:
    """Address, namespace and queue of the Temporal server; the first two may be empty.

    Raises:
        SettingsError: the text is malformed.
    """
    if not text:
        return "", "", QUEUE
    address, *parts = text.split("/")
    if not address or len(parts) > 2 or not all(parts):
        raise SettingsError(
            say("`{value}` is not valid", value=text),
            say("Write `temporal:HOST:PORT/NAMESPACE/QUEUE`; the last two may be left out"),
        )
    namespace, queue = (*parts, *("default", QUEUE)[len(parts) :])
    return address if ":" in address else f"{address}:{_TEMPORAL_PORT}", namespace, queue


_LOG_TAIL_BYTES = 4_096


class Background(NamedTuple):
    """A background process that resumes a goal."""

    process: subprocess.Popen[bytes]
    log: str
    begun: int
    """Offset of its output in the log, which earlier processes wrote to."""

    def log_tail(self) -> str:
        """The end of its output; empty when there is none."""
        try:
            with open(self.log, "rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(self.begun, size - _LOG_TAIL_BYTES))
                return stream.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""


def resume_in_background(
    settings: Settings, goal_id: str, options: Sequence[str] = (), *, project: str = ""
) -> Background:
    """Start a process that resumes a goal and outlives this one.

    Args:
        settings: Storage locations.
        goal_id: The goal.
        options: Options of `satchel goal resume`: `--engine`, `--model`, `--allow-tools`,
            `--ask-in-browser`.
        project: The folder of the project; the one of the settings when empty.
    """
    engine = options[options.index("--engine") + 1] if "--engine" in options else None
    if chosen_engine(settings, engine)[0] == "local":
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
