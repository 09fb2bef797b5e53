"""Tool skills: folders with a `skill.yaml`.

Imported only where a scan found one. Tool definitions are sent with every request, so a skill is
verified as a whole before its tools are offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._unicode import replace_unprintable
from satchel.errors import Blocked, BuildFailed, SatchelError
from satchel.i18n import join_names, say
from satchel.library.fingerprint import changed_error
from satchel.library.location_state import parent_folders
from satchel.library.readiness import find_program_error
from satchel.skill.document import MANIFEST
from satchel.skill.manifest_parser import check_entry
from satchel.skill.model import Skill
from satchel.skill.problems import NO_PROBLEMS, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.library.integrity import IntegrityChecker
    from satchel.library.location_state import LocationState
    from satchel.skill.document import SkillHeader
    from satchel.skill.manifest import ToolManifest
    from satchel.skill.model import State


_MAX_REASON_CHARS = 300


class ToolSkill(NamedTuple):
    """A skill with tools."""

    skill: Skill
    """The skill of the SKILL.md, if the folder has one too."""
    manifest: ToolManifest
    description: str
    """Description of the skill in its skill.yaml."""
    digest: str
    """Hexadecimal SHA-256 of the skill.yaml."""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(tool.name for tool in self.manifest.tools)

    @property
    def wants(self) -> tuple[str, ...]:
        """The permissions of its program, for review."""
        manifest = self.manifest
        permissions: list[str] = []
        if manifest.network:
            permissions.append(say("use the network"))
        if manifest.secrets:
            names = join_names(f"`{name}`" for name in manifest.secrets)
            permissions.append(say("get secrets ({names})", names=names))
        if manifest.files.access == "read":
            permissions.append(say("read the project's files"))
        elif manifest.files.access == "write":
            permissions.append(say("read and change the project's files"))
        elif manifest.files.access == "named" and manifest.has_texts:
            permissions.append(say("read files of the project that its arguments name"))
        return tuple(permissions)

    def to_dict(self) -> dict[str, Any]:
        """The form for `--json`."""
        manifest = self.manifest
        return {
            "tools": list(self.tools),
            "runtime": manifest.runtime,
            "entry": manifest.entry,
            "wants": {
                "network": manifest.network,
                "secrets": list(manifest.secrets),
                "files": manifest.files.access,
            },
        }


class CheckedManifest(NamedTuple):
    """A skill.yaml after its checks."""

    source: ToolSkill | None
    """None when it cannot be used; `problems` has the reason."""
    state: State = "active"
    """The state of the skill, before names are compared."""
    problems: tuple[Problem, ...] = NO_PROBLEMS
    error: SatchelError | None = None
    """Why the tools may not be used."""

    @property
    def visible(self) -> tuple[Any, ...]:
        """What users see of it, to be compared."""
        why = str(self.error and self.error.message)
        return self.source and self.source.digest, self.state, self.problems, why


def check_manifest(
    state: LocationState,
    folder: str,
    determine_state: Callable[[SkillHeader], State],
    integrity: IntegrityChecker,
    cache: str,
) -> CheckedManifest:
    """Check a skill.yaml and, if its skill is offered, the whole skill.

    Args:
        state: The location.
        folder: The skill's folder in it.
        determine_state: Determines the state of a skill that was not verified.
        integrity: Verifies skills.
        cache: The cache folder, with the results of builds.
    """
    path = state.path_of(folder)
    file = f"{path}/{MANIFEST}"
    for parent in parent_folders(folder):
        if parent in state.manifests and not state.manifests[parent].is_misnamed:
            values = {"outer": f"{state.location.name}/{parent}"}
            return _unusable(Problem("tool-nested", file, values=values))
    manifest_file = state.manifests[folder]
    if manifest_file.reading is None:
        return _unusable(*manifest_file.problems)
    reading = check_entry(manifest_file.reading, path)
    problems = tuple(problem.at(file) for problem in reading.problems)
    if reading.manifest is None or manifest_file.header is None:
        return _unusable(*problems)
    # A folder with both files is one skill, with the name of its SKILL.md.
    header = state.headers.get(folder)
    skill = Skill(header or manifest_file.header, state.location.origin)
    source = ToolSkill(skill, reading.manifest, reading.description, manifest_file.digest)
    checked = CheckedManifest(
        source, determine_state(skill.head), problems if header else NO_PROBLEMS
    )
    return _verify(checked, source, integrity, cache) if checked.state == "active" else checked


def _unusable(*problems: Problem) -> CheckedManifest:
    return CheckedManifest(None, problems=problems)


def _verify(
    checked: CheckedManifest, source: ToolSkill, integrity: IntegrityChecker, cache: str
) -> CheckedManifest:
    """Verify a skill, including the skill.yaml that was read, and that its program can run."""
    skill = source.skill
    try:
        verified = integrity.check(skill, clean=False)  # a tool call cleans
        if not verified.has(MANIFEST, source.digest):
            raise changed_error(skill)
    except SatchelError as exc:
        values = {"name": skill.reference, "reason": exc.message}
        problem = Problem("tool-not-offered", skill.path, values=values)
        state: State = "blocked" if isinstance(exc, Blocked) else "active"
        if skill.is_tool and state == "active":
            state = "untrusted"
        return checked._replace(state=state, problems=(*checked.problems, problem), error=exc)
    error = find_program_error(source.manifest, skill.base_dir, verified.tree.digest, cache)
    if error is None:
        return checked
    reason = error.message
    if isinstance(error, BuildFailed) and "\n" in reason:  # it quotes the build tool
        text = replace_unprintable(" ".join(reason.split()), "\N{REPLACEMENT CHARACTER}")
        reason = text[:_MAX_REASON_CHARS]
    values = {"name": skill.reference, "reason": reason, "hint": error.hint}
    problem = Problem("tool-not-ready", skill.path, values=values)
    head = skill.head._replace(problems=(*skill.head.problems, problem))
    return checked._replace(source=source._replace(skill=skill._replace(head=head)), error=error)
