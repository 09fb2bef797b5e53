"""Other agents (`agents.toml`): their skill folders, which skills they find, and links for them.

No agent is started. A link is recognised by its target, so no record is kept. Anything that is not
a link to the skill is never replaced or removed. Only a skill that is offered here may be linked:
another agent would load it without asking.
"""

from __future__ import annotations

import os
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._fs import is_really_inside
from satchel.errors import AccessDenied, Conflict, NotFound, Refused
from satchel.i18n import did_you_mean, say, similar_names
from satchel.library import Library, Location
from satchel.library.locations import local_folder
from satchel.library.lockfile import check_id
from satchel.skill.metadata import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.settings import Settings
    from satchel.skill.model import Skill


class SkillAgent(NamedTuple):
    """An agent that reads skills from folders."""

    id: str
    name: str
    project: tuple[str, ...]
    """Folders in a project; links are made in the first."""
    user: tuple[str, ...]
    """Folders below the user's home; links are made in the first."""
    signs: tuple[str, ...] = ()
    """Folders that show that the agent is in use."""
    aliases: tuple[str, ...] = ()
    """Other ids, such as those of `npx skills`."""

    def places(self, project: str, home: str) -> list[AgentFolder]:
        """Its skill folders, the project's first."""
        folders = [
            AgentFolder(folder, os.path.join(project, folder), user=False)
            for folder in self.project
        ]
        if home:
            folders += [
                AgentFolder(f"~/{folder}", below_home(folder, home), user=True)
                for folder in self.user
            ]
        return folders

    def is_here(self, project: str, home: str) -> bool:
        """Whether it is in use in this project or by this user."""
        paths = [
            below_home(sign[2:], home) if sign.startswith("~/") else os.path.join(project, sign)
            for sign in self.signs
            if home or not sign.startswith("~/")
        ]
        return any(map(os.path.exists, paths))


class AgentFolder(NamedTuple):
    """A folder in which an agent finds skills."""

    label: str
    path: str
    user: bool


@cache
def all_agents() -> tuple[SkillAgent, ...]:
    """The agents of `agents.toml`, in that order."""
    with open(os.path.join(os.path.dirname(__file__), "agents.toml"), "rb") as stream:
        table: dict[str, dict[str, Any]] = tomllib.load(stream)
    agents: list[SkillAgent] = []
    for key, row in table.items():
        lists = {field: tuple(row[field]) for field in ("project", "user", "signs")}
        lists["aliases"] = tuple(row.get("aliases", ()))
        agents.append(SkillAgent(key, row["name"], **lists))
    return tuple(agents)


def agent_named(name: str) -> SkillAgent:
    """The agent of that id.

    Raises:
        NotFound: there is none.
    """
    for agent in all_agents():
        if name in (agent.id, *agent.aliases):
            return agent
    ids = [agent.id for agent in all_agents()]
    similar = similar_names(name, ids) or [key for key in ids if name in key][:1] or ids
    raise NotFound(say("There is no agent `{name}`", name=name), did_you_mean(similar))


def user_home() -> str:
    """The user's home folder; empty when it is not known."""
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else ""


def below_home(path: str, home: str) -> str:
    """A path below the user's home, with XDG_CONFIG_HOME for `.config`."""
    config = os.environ.get("XDG_CONFIG_HOME") or ""
    if path.startswith(".config/") and os.path.isabs(config):
        return os.path.join(config, path.removeprefix(".config/"))
    return os.path.join(home, path)


# --- visibility ---------------------------------------------------------------------------


class AgentVisibility(NamedTuple):
    """Whether an agent finds a skill."""

    kind: Literal["itself", "link", "other", ""] = ""
    """The skill's own folder, a link to it, another skill of the same name, or nothing."""
    place: str = ""
    """The agent's folder in which it is."""
    path: str = ""


def visibility_of(
    agent: SkillAgent, project: str, home: str, skill: Skill, *, user: bool | None = None
) -> AgentVisibility:
    """Whether an agent finds a skill. The cost does not depend on the number of other skills.

    Args:
        agent: The agent.
        project: The project's folder.
        home: The user's home folder; empty when there is none.
        skill: The skill.
        user: Only the folders of the user (True) or of the project (False); both when None.
    """
    skill_folder = os.path.realpath(skill.base_dir)
    other_skill = AgentVisibility()
    for folder in agent.places(project, home):
        if user is not None and folder.user is not user:
            continue
        real_folder = os.path.realpath(folder.path)
        if skill_folder.startswith(real_folder + os.sep):
            path = os.path.join(folder.path, os.path.relpath(skill_folder, real_folder))
            return AgentVisibility("itself", folder.label, path)
        for name in {skill.name, os.path.basename(skill.base_dir)}:
            path = os.path.join(folder.path, name)
            if os.path.dirname(os.path.normpath(path)) != folder.path or not os.path.isdir(path):
                continue
            if os.path.realpath(path) == skill_folder:
                return AgentVisibility("link", folder.label, path)
            if name == skill.name and os.path.isfile(os.path.join(path, "SKILL.md")):
                other_skill = AgentVisibility("other", folder.label, path)
    return other_skill


def skills_of(
    agent: SkillAgent, project: str, home: str, known: dict[str, dict[str, str]] | None = None
) -> dict[str, str]:
    """The skills in the folders of an agent: name -> folder.

    Args:
        agent: The agent.
        project: The project's folder.
        home: The user's home folder; empty when there is none.
        known: The skills of folders that other agents read too; extended by those of this one.
    """
    known = {} if known is None else known
    skill_folders: dict[str, str] = {}
    for folder in agent.places(project, home):
        if folder.path not in known:
            snapshot = Library([Location(folder.path, trusted=True)]).snapshot()
            skills = (*snapshot.skills, *snapshot.hidden)
            known[folder.path] = {skill.name: skill.base_dir for skill in reversed(skills)}
        skill_folders = known[folder.path] | skill_folders
    return skill_folders


class LinkResult(NamedTuple):
    """The result for one skill and one agent."""

    skill: str
    agent: str
    path: str
    action: Literal["made", "kept", "seen", "removed", "refused"]
    note: str = ""
    """The reason why nothing was done."""


class Links:
    """The links of a project, or of a user."""

    def __init__(
        self,
        settings: Settings,
        *,
        user: bool = False,
        check: Callable[[Skill], object] | None = None,
    ) -> None:
        """Manage links in the folders of a project, or with `user` of the user's home.

        Args:
            settings: Of the project.
            user: Use the folders of the user's home.
            check: Raises when a skill may not be used, as `Library.integrity.check` does.

        Raises:
            Refused: the user has no home.
        """
        self.user = user
        self.project = os.path.abspath(settings.project)
        self.home = user_home()
        if user and not self.home:
            raise Refused(say("There is no home folder"), say("Set `HOME` or `SATCHEL_HOME`"))
        self._check = check

    def place(self, agent: SkillAgent) -> str:
        """The folder in which links for an agent are made."""
        if self.user and not agent.user:
            raise Refused(
                say("{agent} has no folder for the skills of all projects", agent=agent.name),
                say("Link it in a project: leave out `--scope user`"),
            )
        if self.user:
            return below_home(agent.user[0], self.home)
        return os.path.join(self.project, agent.project[0])

    def target(self, skill: Skill, agent: SkillAgent) -> str:
        """The path of the link for a skill."""
        fits = NAME.fullmatch(skill.name)
        name = skill.name if fits else os.path.basename(skill.base_dir)
        return os.path.join(self.place(agent), check_id(name))

    def link(self, skill: Skill, agent: SkillAgent) -> LinkResult:
        """Link a skill into an agent's folder.

        Raises:
            Refused: the skill is not offered here, may not be used, or cannot be linked.
            Conflict: the path is taken.
            AccessDenied: the agent's folder leads out of the project.
        """
        if skill.state != "active":
            raise Refused(
                say("`{name}` is not offered here, so no other agent gets it", name=skill.name),
                say("Run `{command}`", command=f"satchel why {skill.reference}"),
            )
        local_folder(skill)  # raises when there is none
        if self._check is not None:
            self._check(skill)
        visibility = visibility_of(agent, self.project, self.home, skill, user=self.user)
        if visibility.kind == "itself":
            return LinkResult(skill.name, agent.id, visibility.path, "seen")
        target = self.target(skill, agent)
        link_target = self._link_target(skill, target)
        if os.path.islink(target):
            if os.path.realpath(target) == os.path.realpath(skill.base_dir):
                return LinkResult(skill.name, agent.id, target, "kept")
            if not os.path.exists(target):
                self._write(target, os.unlink, target)
        if os.path.lexists(target):
            raise self._conflict_error(target)
        self._write(target, os.symlink, link_target, target)
        return LinkResult(skill.name, agent.id, target, "made")

    def unlink(self, name: str, agent: SkillAgent, source: str = "") -> LinkResult:
        """Remove the link to a skill, or a broken link.

        Args:
            name: The skill's name, or that of the link.
            agent: The agent.
            source: The skill's own folder, where it is known.

        Raises:
            NotFound: there is nothing of that name.
            Conflict: it is not a link to the skill.
        """
        target = os.path.join(self.place(agent), check_id(name))
        if not os.path.lexists(target):
            raise NotFound(
                say("`{name}` is not linked for {agent}", name=name, agent=agent.name),
                say("Run `{command}`", command="satchel link --list"),
            )
        is_same_skill = source and os.path.realpath(target) == os.path.realpath(source)
        if not os.path.islink(target) or (os.path.exists(target) and not is_same_skill):
            raise self._conflict_error(target)
        self._write(target, os.unlink, target)
        return LinkResult(name, agent.id, target, "removed")

    def _link_target(self, skill: Skill, target: str) -> str:
        """The target of the link: relative in a project, so that it works on other machines."""
        if not skill.head.id:
            raise Refused(
                say("The folder of `{name}` is the whole project", name=skill.name),
                say("Move it elsewhere"),
            )
        if self.user:
            return skill.base_dir
        if not is_really_inside(skill.base_dir, self.project):
            raise Refused(
                say("`{name}` lies outside the project", name=skill.name),
                say("Run `{command}`", command=f"satchel link {skill.reference} --scope user"),
            )
        link_folder = os.path.realpath(os.path.dirname(target))
        return os.path.relpath(os.path.realpath(skill.base_dir), link_folder)

    def _write(self, target: str, change: Callable[..., None], *arguments: str) -> None:
        folder = os.path.dirname(target)
        if not self.user and not is_really_inside(folder, self.project):
            raise AccessDenied(
                say("`{path}` leads outside the project", path=folder),
                say("Replace the link by a copy"),
            )
        try:
            os.makedirs(folder, exist_ok=True)
            change(*arguments)
        except OSError as exc:
            raise Refused(
                say(
                    "`{path}` cannot be written: {reason}", path=folder, reason=exc.strerror or exc
                ),
                say("Check the permissions"),
            ) from exc

    def _conflict_error(self, target: str) -> Conflict:
        base = self.home if self.user else self.project
        path = os.path.relpath(target, base)
        return Conflict(
            say("`{path}` is not what Satchel puts there", path=f"~/{path}" if self.user else path),
            say("Move it elsewhere"),
        )
