"""Which agents are there, and where does each look for skills? The table is `agents.toml`."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Literal, NamedTuple

from satchel._language import listed, say
from satchel.errors import NotFound


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
