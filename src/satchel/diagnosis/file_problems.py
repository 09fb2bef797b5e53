"""Problems of a skill's files: the same for every command, every page and the editor.

find_problems       of a skill of the library, which may lie on a server
find_file_problems  of a folder
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from satchel.errors import SatchelError
from satchel.i18n import language
from satchel.library.skill_files import not_a_file_problem
from satchel.runners.build import stamp
from satchel.runners.scripts import script_problems
from satchel.skill.document import MANIFEST
from satchel.skill.eval_file import load_cases
from satchel.skill.file_references import parent_folders
from satchel.skill.file_tree import skill_md_name
from satchel.skill.problems import Problem
from satchel.skill.reader import load_document
from satchel.skill.validate import validate_document, validate_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from satchel.library.integrity import IntegrityChecker
    from satchel.security import ScanReport
    from satchel.skill.document import SkillDocument
    from satchel.skill.model import Skill


def setup_problems(skill: Skill) -> list[Problem]:
    """Return what a skill needs of this machine."""
    return [
        problem for problem in skill.problems if problem.code in ("tool-not-ready", "needs-setup")
    ]


def find_problems(
    skill: Skill,
    document: SkillDocument | None = None,
    cache: ProblemCache | None = None,
) -> list[Problem]:
    """Return the problems of a skill's files, and what it needs of this machine.

    Args:
        skill: The skill.
        document: Its document, if it was read already.
        cache: Keeps the problems by the digest of the content.
    """
    if skill.origin.remote:  # nothing is fetched for a check
        return list(skill.problems)
    folder, file = os.path.split(skill.path)
    needs = setup_problems(skill)

    def find() -> list[Problem]:
        if skill.is_tool:
            return [*validate_folder(skill.path), *script_problems(skill.path)]
        loaded = document or load_document(folder, file, skill.head.id)
        return find_file_problems(folder, file, loaded)

    try:
        return [*needs, *(cache.problems(skill, find) if cache else find())]
    except SatchelError as exc:
        return [*needs, unreadable_problem(skill.path, exc)]


class ProblemCache:
    """Keeps the problems of skills by the digests of their contents; for one diagnosis.

    Problems also depend on what is outside a skill's folder: the installed programs, and the
    folders above it in which its commands may find files. The stamps of these folders count too.
    """

    def __init__(self, integrity: IntegrityChecker) -> None:
        """Create a cache in the one of the scan."""
        self._integrity = integrity
        programs = tuple(map(stamp, os.get_exec_path()))
        self._surroundings = (programs, sys.version, language())
        self._stamps_above: dict[str, tuple[tuple[int, ...], ...]] = {}

    def problems(self, skill: Skill, find: Callable[[], list[Problem]]) -> list[Problem]:
        """The problems of a skill, which `find` finds when they are not cached.

        Raises:
            SatchelError: the skill cannot be read.
        """
        folder = skill.base_dir
        # The folder above a link is that of its target.
        parent = folder if os.path.islink(folder) else os.path.dirname(folder)
        if parent not in self._stamps_above:
            self._stamps_above[parent] = tuple(
                stamp(os.path.join(above, name))
                for above in parent_folders(folder)
                for name in ("scripts", "references")
            )
        digest = self._integrity.digest(skill)
        key = (digest, skill.path, skill.head.id, self._surroundings, self._stamps_above[parent])
        return self._integrity.scans.problems(key, find)


def unreadable_problem(path: str, exc: SatchelError) -> Problem:
    """The problem of a skill's file that cannot be read, as the library reports it."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            return not_a_file_problem(path, os.path.basename(path), mode)
    return Problem("unreadable", path, values={"reason": exc.why})


def find_folder_problems(folder: str) -> list[Problem]:
    """Return the problems of a folder with a SKILL.md, a skill.yaml or both."""
    names = os.listdir(folder)
    file = skill_md_name(names)
    problems: list[Problem] = []
    try:
        if file:
            problems += find_file_problems(folder, file, load_document(folder, file))
        if MANIFEST in names:
            path = os.path.join(folder, MANIFEST)
            problems += [*validate_folder(path), *script_problems(path)]
    except SatchelError as exc:
        problems.append(unreadable_problem(os.path.join(folder, file or MANIFEST), exc))
    return problems


def find_file_problems(folder: str, file: str, document: SkillDocument) -> list[Problem]:
    """Return the problems of a folder with a SKILL.md.

    Args:
        folder: The folder, absolute.
        file: The name of the SKILL.md.
        document: The SKILL.md, which has been read.
    """
    problems = validate_document(document, folder, file)
    if document.head is None:
        return problems
    problems += load_cases(folder).problems
    return problems + script_problems(os.path.join(folder, file), document.body)


def unique_problems(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Drop duplicates: the scan and the deep check may both find a problem."""
    yielded: set[tuple[object, ...]] = set()
    for problem in problems:
        key = (*problem[:3], tuple(sorted(problem.values.items())))
        if key not in yielded:
            yielded.add(key)
            yield problem


def unscanned_report(exc: SatchelError | OSError) -> ScanReport:
    """Return the report of a skill that could not be scanned."""
    from satchel.security import ScanReport

    reason = exc.message if isinstance(exc, SatchelError) else exc.strerror or str(exc)
    return ScanReport("incomplete", unscanned=((".", reason),))
