"""Symbolic links that put a skill where another agent looks.

A link is recognised by where it leads, so no record is kept. What is there and is not a link to the
skill is never replaced or removed.

Only a skill that is offered here may be linked: another agent's model would read it unasked.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_really_inside
from satchel._language import say
from satchel.errors import AccessDenied, Conflict, NotFound, Refused
from satchel.library.supplier import folder_of
from satchel.skill.interpret import NAME
from satchel.store.agents import below_home, sight_of, user_home
from satchel.store.scope import check_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.settings import Settings
    from satchel.skill.model import Skill
    from satchel.store.agents import Agent


class Done(NamedTuple):
    """The outcome for one skill and one agent."""

    skill: str
    agent: str
    path: str
    action: Literal["made", "kept", "seen", "removed", "refused"]
    note: str = ""
    """Why nothing was done."""


class Links:
    """The links of a project, or of a user."""

    def __init__(
        self,
        settings: Settings,
        *,
        user: bool = False,
        check: Callable[[Skill], object] | None = None,
    ) -> None:
        """Links in the folders of a project, or with `user` in those of the user's home.

        Args:
            settings: Of the project.
            user: In the folders of the user's home.
            check: Raises when a skill may not be used as it is, as `Library.seals.check` does.

        Raises:
            Refused: the user has no home.
        """
        self.user = user
        self.project = os.path.abspath(settings.project)
        self.home = user_home()
        if user and not self.home:
            raise Refused(say("There is no home folder"), say("Set `HOME`"))
        self._check = check

    def place(self, agent: Agent) -> str:
        """The folder that skills for an agent are put into."""
        if self.user:
            return below_home(agent.user[0], self.home)
        return os.path.join(self.project, agent.project[0])

    def target(self, skill: Skill, agent: Agent) -> str:
        """The path of the link for a skill: its name is the skill's."""
        fits = NAME.fullmatch(skill.name)
        name = skill.name if fits else os.path.basename(skill.base_dir)
        return os.path.join(self.place(agent), check_id(name))

    def link(self, skill: Skill, agent: Agent) -> Done:
        """Put a skill where an agent looks.

        Raises:
            Refused: the skill is not offered here, may not be used as it is, or cannot be linked.
            Conflict: something else is in the way.
            AccessDenied: the agent's folder leads out of the project.
        """
        if skill.state != "active":
            raise Refused(
                say("`{name}` is not offered here, so no other agent gets it", name=skill.name),
                say("See why with `satchel why {name}`", name=skill.typed),
            )
        folder_of(skill)  # there must be one
        if self._check is not None:
            self._check(skill)
        found = sight_of(agent, self.project, self.home, skill, user=self.user)
        if found.kind == "itself" and found.view == "sees":
            return Done(skill.name, agent.id, found.path, "seen")
        target = self.target(skill, agent)
        leads = self._leads(skill, target)
        if os.path.islink(target):
            if os.path.realpath(target) == os.path.realpath(skill.base_dir):
                return Done(skill.name, agent.id, target, "kept")
            if not os.path.exists(target):
                self._write(target, os.unlink, target)
        if os.path.lexists(target):
            raise self._in_the_way(target)
        self._write(target, os.symlink, leads, target)
        return Done(skill.name, agent.id, target, "made")

    def unlink(self, name: str, agent: Agent, source: str = "") -> Done:
        """Remove the link to a skill, or a link that leads nowhere.

        Args:
            name: The skill's name, or that of its folder there.
            agent: From whom.
            source: The skill's own folder, where it is known.

        Raises:
            NotFound: nothing of that name is there.
            Conflict: it is not a link to the skill.
        """
        target = os.path.join(self.place(agent), check_id(name))
        if not os.path.lexists(target):
            raise NotFound(
                say("`{name}` is not linked for {agent}", name=name, agent=agent.name),
                say("Run `satchel agents` to see what is"),
            )
        same = source and os.path.realpath(target) == os.path.realpath(source)
        if not os.path.islink(target) or (os.path.exists(target) and not same):
            raise self._in_the_way(target)
        self._write(target, os.unlink, target)
        return Done(name, agent.id, target, "removed")

    def _leads(self, skill: Skill, target: str) -> str:
        """The text of the link: relative in a project, so that it works on other machines."""
        if not skill.head.id:
            raise Refused(
                say("The folder of `{name}` is the whole project", name=skill.name),
                say("Move the skill into a folder of its own"),
            )
        if self.user:
            return skill.base_dir
        if not is_really_inside(skill.base_dir, self.project):
            raise Refused(
                say("`{name}` lies outside the project", name=skill.name),
                say("Link it for all your projects with `--user`"),
            )
        place = os.path.realpath(os.path.dirname(target))
        return os.path.relpath(os.path.realpath(skill.base_dir), place)

    def _write(self, target: str, change: Callable[..., None], *words: str) -> None:
        place = os.path.dirname(target)
        if not self.user and not is_really_inside(place, self.project):
            raise AccessDenied(
                say("`{path}` leads outside the project", path=place),
                say("Replace the link by a folder"),
            )
        try:
            os.makedirs(place, exist_ok=True)
            change(*words)
        except OSError as exc:
            raise Refused(
                say("`{path}` cannot be written: {reason}", path=place, reason=exc.strerror or exc),
                say("Check the permissions"),
            ) from exc

    def _in_the_way(self, target: str) -> Conflict:
        base = self.home if self.user else self.project
        path = os.path.relpath(target, base)
        return Conflict(
            say("`{path}` is not a link to the skill", path=f"~/{path}" if self.user else path),
            say("Move it elsewhere, or remove it yourself"),
        )
