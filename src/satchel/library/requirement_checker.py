"""Finds the skills whose requirements (`requires` in the frontmatter) are not met here.

Nothing is started here, so that it is cheap enough for every refresh.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from satchel.i18n import Message
from satchel.library.location_state import LocatedHeader
from satchel.library.readiness import (
    RUNTIME_PACKAGES,
    find_program,
    find_runtime,
    list_path_folders,
)
from satchel.library.skill_code import is_in_code
from satchel.skill.problems import Problem
from satchel.skill.requirements import SkillRequirements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.library.location_state import LocationState, SkillKey

_PROGRAM_ALIASES = {"pip": "pip3", "pip3": "pip", "nodejs": "node"}
_PYTHON_PROGRAMS = ("python", "python3")
"""Satchel runs on Python, and runs the scripts of skills with it."""
_PLATFORMS = {"linux": "linux", "darwin": "macos", "win32": "windows", "cygwin": "windows"}
"""`sys.platform` -> the name of the operating system in requirements."""
_SYSTEM_FOLDERS = ("/usr/", "/bin/", "/sbin/", "/nix/store/")
"""Where a program lies, links resolved, that a sandbox shows."""


class SecretNames(Protocol):
    """Finds out which secrets have a value."""

    file: str
    """The file that the user may put them into."""

    def having_values(self, names: Iterable[str]) -> set[str]:
        """Those of the names that have a value, in the environment or elsewhere."""
        ...


class RequiringSkill(NamedTuple):
    """A skill with requirements."""

    key: SkillKey
    name: str
    requirements: SkillRequirements


class MissingRequirement(NamedTuple):
    """One thing that a skill requires and that is missing."""

    name: Message
    fix: Message
    """The step that adds it."""


class _ProgramStatus(NamedTuple):
    """Where a required program was found."""

    is_installed: bool
    hidden_path: str = ""
    """Its path, when scripts in a sandbox cannot see it."""


class RequirementChecker:
    """Finds the skills whose requirements are not met on this machine and in this library.

    A program that a file of the skill names must be where the sandbox shows it to scripts; another
    is for the shell of an agent, and must be on PATH. Programs are looked up once, and again when
    PATH or one of its folders has changed.
    """

    def __init__(self, secrets: SecretNames | None = None, script_path: str = "") -> None:
        self._secrets = secrets
        self._script_folders = list(filter(None, script_path.split(os.pathsep)))
        self._skills: list[RequiringSkill] = []
        self._candidates: dict[str, list[LocatedHeader]] = {}
        """Name that a skill requires -> the skills with that name or id."""
        self._programs: dict[str, _ProgramStatus] = {}
        self._folder_stamps: list[tuple[str, int]] = []
        """Folders with programs, and when each was changed."""
        self._last_input: tuple[object, ...] = ()
        self._last_problems: dict[SkillKey, Problem] = {}

    def set_skills(
        self, requiring: Iterable[LocatedHeader], states: Iterable[LocationState]
    ) -> None:
        """Set the skills of the library.

        Args:
            requiring: The skills with requirements.
            states: The locations with all skills.
        """
        # A folder with tools alone is not read here, so that a requirement on it is met.
        tool_names = {folder.rpartition("/")[2] for state in states for folder in state.manifests}
        self._skills = []
        for skill in requiring:
            requirements = SkillRequirements(**(skill.header.extra or {})["requires"])
            names = tuple(name for name in requirements.skills if name not in tool_names)
            requirements = requirements._replace(skills=names)
            self._skills.append(RequiringSkill(skill.key, skill.header.name, requirements))
        self._candidates = {
            name: [] for skill in self._skills for name in skill.requirements.skills
        }
        if self._candidates:
            _add_candidates(self._candidates, states)

    def find_unmet(self, is_usable: Callable[[LocatedHeader], bool]) -> dict[SkillKey, Problem]:
        """Find the skills that need setup, each with its problem.

        Skills that require each other are usable as long as nothing else is missing.

        Args:
            is_usable: Whether a skill would be offered if it required nothing.
        """
        skills = self._skills
        if not skills:
            return {}
        self._update_folder_stamps()
        set_names = self._find_set_variables()
        usable = {
            name: [skill.key for skill in candidates if is_usable(skill)]
            for name, candidates in self._candidates.items()
        }
        checker_input = (skills, usable, set_names, self._folder_stamps)
        if checker_input == self._last_input:
            return self._last_problems
        missing = {skill.key: self._find_missing(skill, set_names) for skill in skills}
        _add_missing_skills(missing, skills, usable)
        problems = {
            skill.key: _setup_problem(skill, missing[skill.key])
            for skill in skills
            if missing[skill.key]
        }
        self._last_input, self._last_problems = checker_input, problems
        return problems

    def _find_set_variables(self) -> set[str]:
        """Find the required environment variables that have a value."""
        required = {name for skill in self._skills for name in skill.requirements.env}
        set_names = {name for name in required if os.environ.get(name)}
        if required - set_names and self._secrets is not None:
            set_names |= self._secrets.having_values(required - set_names)
        return set_names

    def _update_folder_stamps(self) -> None:
        stamps: list[tuple[str, int]] = []
        for folder in dict.fromkeys((*list_path_folders(), *self._script_folders)):
            with suppress(OSError):
                stamps.append((folder, os.stat(folder).st_mtime_ns))
        if stamps != self._folder_stamps:
            self._folder_stamps = stamps
            self._programs.clear()

    def _find_missing(self, skill: RequiringSkill, set_names: set[str]) -> list[MissingRequirement]:
        """Find what is missing beside skills."""
        requirements = skill.requirements
        missing: list[MissingRequirement] = []
        platform = _PLATFORMS.get(sys.platform)
        if requirements.platforms and platform and platform not in requirements.platforms:
            names = list(requirements.platforms)
            missing.append(
                MissingRequirement(
                    Message("one of the operating systems {names}", names=names),
                    Message("Use it on {names}", names=names),
                )
            )
        alternatives = [*zip(requirements.bins), requirements.any_bins]
        programs = [self._find_missing_program(skill, names) for names in alternatives]
        missing += filter(None, programs)
        missing += [
            MissingRequirement(Message("the variable `{name}`", name=name), self._set_step(name))
            for name in requirements.env
            if name not in set_names
        ]
        return missing

    def _find_missing_program(
        self, skill: RequiringSkill, names: Sequence[str]
    ) -> MissingRequirement | None:
        """The requirement of one of some programs; None when it is met."""
        statuses = [self._find_program(name) for name in names]
        hidden_paths = [status.hidden_path for status in statuses if status.is_installed]
        if not names or "" in hidden_paths:
            return None
        if hidden_paths and not is_in_code(skill.key.folder, names):
            return None
        if len(names) == 1:
            requirement = Message("the program `{name}`", name=names[0])
            fix = Message("Install `{name}`, so that it is on PATH", name=names[0])
        else:
            quoted_names = [f"`{name}`" for name in names]
            requirement = Message("one of the programs {names}", names=quoted_names)
            fix = Message("Install one of {names}, so that it is on PATH", names=quoted_names)
        if hidden_paths:
            fix = Message(
                "Its scripts run in a sandbox that hides `{path}`: install it below `/usr`, "
                "such as in `/usr/local/bin`",
                path=hidden_paths[0],
            )
        return MissingRequirement(requirement, fix)

    def _find_program(self, name: str) -> _ProgramStatus:
        if name not in self._programs:
            self._programs[name] = self._look_up_program(name)
        return self._programs[name]

    def _look_up_program(self, name: str) -> _ProgramStatus:
        lower_name = name.lower()  # `Docker` for `docker`
        alias = _PROGRAM_ALIASES.get(lower_name, lower_name)
        if lower_name in _PYTHON_PROGRAMS or (alias in RUNTIME_PACKAGES and find_runtime(alias)):
            return _ProgramStatus(is_installed=True)
        spellings = list(dict.fromkeys((name, lower_name, alias)))
        script_paths = [find_program(spelling, self._script_folders) for spelling in spellings]
        if any(os.path.realpath(path).startswith(_SYSTEM_FOLDERS) for path in script_paths if path):
            return _ProgramStatus(is_installed=True)
        folders = list_path_folders()
        paths = filter(None, (find_program(spelling, folders) for spelling in spellings))
        path = next(paths, "")
        return _ProgramStatus(bool(path), path if self._script_folders else "")

    def _set_step(self, name: str) -> Message:
        """The step that sets a variable."""
        if self._secrets is None or not self._secrets.file:
            return Message("Set `{name}` in the environment", name=name)
        return Message(
            "Put `{name}=…` into `{path}`, or set `{name}` in the environment",
            name=name,
            path=self._secrets.file,
        )


def _add_candidates(
    candidates: dict[str, list[LocatedHeader]], states: Iterable[LocationState]
) -> None:
    """Add the skills that have one of the names, or a folder of that name."""
    for state in states:
        for header in state.headers.values():
            folder = header.id[header.id.rfind("/") + 1 :]
            if header.name in candidates:
                candidates[header.name].append(LocatedHeader(state, header))
            if folder in candidates and folder != header.name:
                candidates[folder].append(LocatedHeader(state, header))


def _add_missing_skills(
    missing: dict[SkillKey, list[MissingRequirement]],
    skills: Sequence[RequiringSkill],
    usable: Mapping[str, Sequence[SkillKey]],
) -> None:
    """Add required skills that do not exist or miss something themselves."""
    for skill in skills:
        names = skill.requirements.skills
        missing[skill.key] += [_missing_skill(name) for name in names if not usable[name]]
    changed = True
    while changed:
        changed = False
        for skill in skills:
            names = skill.requirements.skills
            unusable_names = [name for name in names if all(map(missing.get, usable[name]))]
            if unusable_names and not missing[skill.key]:
                missing[skill.key] = list(map(_missing_skill, unusable_names))
                changed = True


def _missing_skill(name: str) -> MissingRequirement:
    return MissingRequirement(
        Message("the skill `{name}`", name=name),
        Message("Install the skill `{name}`; if it is there, see `satchel why {name}`", name=name),
    )


def _setup_problem(skill: RequiringSkill, missing: Sequence[MissingRequirement]) -> Problem:
    what = Message("{names}", names=[requirement.name for requirement in missing])
    fix, *other_fixes = dict.fromkeys(requirement.fix for requirement in missing)
    for other_fix in other_fixes:
        fix = Message("{first}. {rest}", first=fix, rest=other_fix)
    values = {"name": skill.name, "what": what, "fix": fix}
    return Problem("needs-setup", skill.key.folder, values=values)
