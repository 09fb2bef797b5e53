"""Records of a skill's scripts: how each is started, and what they may use.

Everything follows from the files and the user's grants; nothing runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel.diagnosis.skill_report import secret_step
from satchel.errors import SatchelError
from satchel.i18n import join_names, render, say
from satchel.library.skill_code import hosts_contacted, variables_read
from satchel.library.trust_store import ScriptGrant
from satchel.presentation.files import walk_files
from satchel.runners.script_packages import unread_file_note
from satchel.runners.scripts import list_scripts, plan_script
from satchel.tools.framing import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from satchel.library import Library
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill

MAX_SCRIPTS_SHOWN = 30
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of a variable that can be granted."""


class ScriptRow(NamedTuple):
    """One script."""

    path: str
    interpreter: str
    """Empty when it cannot be run."""
    packages: tuple[str, ...] = ()
    """What is installed before it runs first."""
    reason: str = ""
    """Why it cannot be run."""
    hint: str = ""
    notes: tuple[str, ...] = ()
    """Sentences about packages that are not installed."""


class ScriptRights(NamedTuple):
    """What the scripts of a skill name, and what the user granted them."""

    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    grant: ScriptGrant = ScriptGrant()

    def steps(self, skill: Skill) -> tuple[str, ...]:
        """A sentence with a command for each thing that can still be granted."""
        granted = {*self.grant.secrets, *self.grant.variables}
        passed = [secret_step(skill, name) for name in self.variables if name not in granted]
        if not self.hosts or self.grant.network:
            return tuple(passed)
        network = f"satchel trust {printable(skill.reference)} --network"
        return (say("`{command}` lets its scripts use the network", command=network), *passed)


class ScriptsShown(NamedTuple):
    """The scripts of a skill."""

    rows: tuple[ScriptRow, ...]
    more: int
    hosts: tuple[str, ...]
    variables: tuple[str, ...]
    granted: str
    """A list in words; empty when nothing is granted."""
    steps: tuple[str, ...]
    """Sentences about what can be granted."""

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {**self._asdict(), "rows": [row._asdict() for row in self.rows]}


def script_rights(library: Library, skill: Skill) -> ScriptRights:
    """Return what the scripts of a skill name, and what the user granted them.

    Raises:
        SatchelError: its files cannot be read.
    """
    inventory = library.integrity.scan(skill).inventory
    secrets = {name for name in inventory.secrets if VARIABLE.fullmatch(name)}
    variables = tuple(sorted(secrets | variables_read(skill.base_dir)))
    digest = library.integrity.digest(skill)
    grant = library.trust.script_grant(skill.base_dir, digest, skill.name)
    return ScriptRights(hosts_contacted(skill.base_dir), variables, grant)


def grant_words(grant: ScriptGrant) -> str:
    """Return what is granted as a list; empty when nothing is."""
    network = [say("the network")] if grant.network else []
    names = (*grant.secrets, *grant.variables)
    return join_names((*network, *(f"`{printable(name)}`" for name in names)))


def show_scripts(satchel: Satchel, skill: Skill) -> ScriptsShown | None:
    """Return the scripts of a skill; None when it has none."""
    if skill.is_tool or skill.origin.remote:
        return None
    try:
        files = [(path, mode) for path, _, mode, _ in walk_files(satchel, skill.ref)]
        paths = list_scripts(files, skill.read().body)
        if not paths:
            return None
        rights = script_rights(satchel.library, skill)
    except (SatchelError, OSError):  # shown where the files are
        return None
    return ScriptsShown(
        tuple(_rows(skill.base_dir, paths[:MAX_SCRIPTS_SHOWN])),
        max(0, len(paths) - MAX_SCRIPTS_SHOWN),
        tuple(map(printable, rights.hosts)),
        rights.variables,
        grant_words(rights.grant),
        rights.steps(skill),
    )


def _rows(folder: str, paths: tuple[str, ...]) -> Iterator[ScriptRow]:
    for path in paths:
        display_path = printable(path)
        try:
            plan = plan_script(folder, path)
        except SatchelError as exc:
            yield ScriptRow(display_path, "", reason=render(exc.message), hint=render(exc.hint))
            continue
        notes = [unread_file_note(plan.ignored)] if plan.ignored else []
        if plan.missing:
            names = join_names(f"`{printable(name)}`" for name in plan.missing)
            notes.append(say("Not installed, because no package is known: {names}", names=names))
        packages = tuple(map(printable, plan.packages))
        yield ScriptRow(display_path, plan.interpreter, packages, notes=tuple(notes))
