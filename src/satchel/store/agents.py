"""Other agents (`agents.toml`): where each looks for skills, what it sees, and links that it finds.

No agent is started. A link is recognised by where it leads, so no record is kept. What is there and
is not a link to the skill is never replaced or removed. Only a skill that is offered here may be
linked: another agent's model would read it unasked.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from satchel._fs import is_really_inside
from satchel._language import listed, say
from satchel.errors import AccessDenied, Conflict, NotFound, Refused
from satchel.library.locations import folder_of
from satchel.skill.interpret import NAME
from satchel.store.scope import check_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from satchel.settings import Settings
    from satchel.skill.model import Skill


class Agent(NamedTuple):
    """An agent that reads skills from folders."""

    id: str
    name: str
    project: tuple[str, ...]
    """Folders in a project; the first is where we put a skill."""
    user: tuple[str, ...]
    """Folders below the user's home; the first is where we put a skill."""
    links: Literal["yes", "partly", "unknown"] = "unknown"
    """Whether a skill's folder may be a symbolic link."""
    nested: bool = False
    """Finds skills in folders within folders."""
    same_name: bool = False
    """Wants the folder to be called as the skill is."""
    limit: int = 0
    """Characters that a description may have; 0 when no limit is known."""
    long: Literal["", "cut", "refused"] = ""
    """What happens to a longer one."""
    signs: tuple[str, ...] = ()
    """Folders that show that it is used here."""
    seen: tuple[str, ...] = ()
    """Where all this was read, and when."""

    def places(self, project: str, home: str) -> list[Place]:
        """Every folder it looks into, the project's first."""
        found = [Place(item, os.path.join(project, item), user=False) for item in self.project]
        if home:
            found += [Place(f"~/{item}", below_home(item, home), user=True) for item in self.user]
        return found

    def is_here(self, project: str, home: str) -> bool:
        """Whether it seems to be used in this project or by this user."""
        return any(
            os.path.exists(below_home(sign[2:], home)) if home else False
            for sign in self.signs
            if sign.startswith("~/")
        ) or any(
            os.path.exists(os.path.join(project, sign))
            for sign in self.signs
            if not sign.startswith("~/")
        )


class Place(NamedTuple):
    """A folder that an agent looks into."""

    label: str
    path: str
    user: bool


@cache
def all_agents() -> tuple[Agent, ...]:
    """The table, in its own order: the widely used ones first."""
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "agents.toml"), "rb") as stream:
        table: dict[str, dict[str, Any]] = tomllib.load(stream)
    return tuple(
        Agent(
            key,
            row["name"],
            tuple(row["project"]),
            tuple(row["user"]),
            row["links"],
            row.get("nested", False),
            row.get("same_name", False),
            row.get("limit", 0),
            row.get("long", ""),
            tuple(row["signs"]),
            tuple(row["seen"]),
        )
        for key, row in table.items()
    )


def agent_named(name: str) -> Agent:
    """The agent of that id.

    Raises:
        NotFound: there is none.
    """
    for agent in all_agents():
        if name == agent.id:
            return agent
    import difflib

    ids = [agent.id for agent in all_agents()]
    near = difflib.get_close_matches(name, ids, 1) or [key for key in ids if name in key]
    raise NotFound(
        say("There is no agent `{name}` on the list", name=name),
        say("Did you mean {names}?", names=f"`{near[0]}`")
        if near
        else say("It is one of {names}", names=listed(f"`{key}`" for key in ids)),
    )


def user_home() -> str:
    """The user's home; empty when nobody's, which would be a folder of the project."""
    home = os.path.expanduser("~")
    return home if os.path.isabs(home) else ""


def below_home(item: str, home: str) -> str:
    """A path below the user's home; `.config` may be elsewhere."""
    config = os.environ.get("XDG_CONFIG_HOME") or ""
    if item.startswith(".config/") and os.path.isabs(config):
        return os.path.join(config, item.removeprefix(".config/"))
    return os.path.join(home, item)


# --- what an agent sees -------------------------------------------------------------------

View = Literal["sees", "perhaps", "hidden", "absent"]
_BEST: tuple[View, ...] = ("sees", "perhaps", "hidden", "absent")


class Sight(NamedTuple):
    """One skill, as one agent has it."""

    view: View
    place: str = ""
    """The folder of the agent's that it is in."""
    path: str = ""
    kind: Literal["itself", "link", "other", ""] = ""
    """The skill's own folder, a link to it, or something else of the same name."""
    why: str = ""
    """What keeps the agent from it, or from a part of it."""


def sight_of(
    agent: Agent, project: str, home: str, skill: Skill, *, user: bool | None = None
) -> Sight:
    """How an agent has one skill. The number of other skills costs nothing.

    Args:
        agent: Which agent.
        project: The project's folder.
        home: The user's; empty when there is none.
        skill: Which skill.
        user: Only the folders of the user, or only those of the project; both when None.
    """
    best = Sight("absent")
    for place in agent.places(project, home):
        if user is not None and place.user is not user:
            continue
        for sight in _sights_in(agent, place, skill):
            rank = (_BEST.index(sight.view), sight.kind == "other")
            if rank < (_BEST.index(best.view), best.kind == "other"):
                best = sight
    return best


def _sights_in(agent: Agent, place: Place, skill: Skill) -> Iterator[Sight]:
    real, own = os.path.realpath(place.path), os.path.realpath(skill.base_dir)
    if own.startswith(real + os.sep):
        folder = os.path.relpath(own, real).replace(os.sep, "/")
        view, why = _hindrance(agent, folder, skill, link=False)
        yield Sight(view, place.label, os.path.join(place.path, folder), "itself", why)
    for name in {skill.name, os.path.basename(skill.base_dir)}:
        path = os.path.join(place.path, name)
        if os.path.dirname(os.path.normpath(path)) != place.path or not os.path.isdir(path):
            continue
        if os.path.realpath(path) == own:
            if os.path.islink(path):
                view, why = _hindrance(agent, name, skill, link=True)
                yield Sight(view, place.label, path, "link", why)
        elif name == skill.name and os.path.isfile(os.path.join(path, "SKILL.md")):
            yield Sight("sees", place.label, path, "other")


def skills_of(agent: Agent, project: str, home: str) -> dict[str, Sight]:
    """Every skill in the folders of an agent, by name, and whether it is seen."""
    from satchel.library import Library, Location

    found: dict[str, Sight] = {}
    for place in agent.places(project, home):
        if not os.path.isdir(place.path):
            continue
        snapshot = Library([Location(place.path, trusted=True)]).snapshot()
        for skill in (*snapshot.skills, *snapshot.hidden):
            first = os.path.join(place.path, skill.head.id.partition("/")[0])
            link = os.path.islink(first) or os.path.islink(skill.base_dir)
            view, why = _hindrance(agent, skill.head.id, skill, link=link)
            before = found.get(skill.name)
            if before is None or _BEST.index(view) < _BEST.index(before.view):
                found[skill.name] = Sight(view, place.label, skill.base_dir, why=why)
    return found


def _hindrance(agent: Agent, folder: str, skill: Skill, *, link: bool) -> tuple[View, str]:
    """What keeps an agent from a skill in `folder`, relative to where the agent looks."""
    if "/" in folder and not agent.nested:
        return "hidden", say("it lies in a folder within a folder")
    if agent.same_name and os.path.basename(folder) != skill.name:
        return "hidden", say("its folder is not called `{name}`", name=skill.name)
    if agent.limit and len(skill.description) > agent.limit:
        if agent.long == "refused":
            return "hidden", say(
                "its description is longer than {count} characters", count=agent.limit
            )
        return "sees", say("its description is cut after {count} characters", count=agent.limit)
    if link and agent.links != "yes":
        return "perhaps", say("it is a link, which may not be followed")
    return "sees", ""


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
