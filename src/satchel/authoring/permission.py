"""May a skill's program be run here, and if not, why? Asked before anything of it is built or run.

Only what is offered is run. A skill may be left out for several reasons at once, and the first one
found hides the others: an excluded skill may be untrusted too. So no reason is taken for harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel._language import say
from satchel.errors import Refused

if TYPE_CHECKING:
    from satchel.library.tool_snapshot import ToolSkill, ToolSnapshot


def check_runnable(look: ToolSnapshot, source: ToolSkill) -> None:
    """Let pass what an agent could call too.

    Args:
        look: What the skill was found in.
        source: The skill, offered or hidden.

    Raises:
        Refused: it is not offered; the message says why its program is not run.
        SatchelError: it is not what was locked or approved.
    """
    skill = source.skill
    if skill.state == "active":
        return
    name = skill.typed
    exc, problem = look.refused.get(skill.ref), look.asking.get(skill.ref)
    if exc is not None:
        raise exc
    if problem is not None:
        raise Refused(problem.message, problem.fix)
    if skill.state == "shadowed":
        raise Refused(
            say("`{name}` is shadowed by `{winner}`, so its program is not run",
                name=name, winner=skill.winner),
            say("Rename it, or remove `{winner}`", winner=skill.winner),
        )  # fmt: skip
    if skill.state == "excluded":
        raise Refused(
            say("`{name}` is left out by a filter, so its program is not run", name=name),
            say("Change `include`, `exclude` or `tags` in `satchel.toml`"),
        )
    raise Refused(
        say("`{name}` is not trusted, so its program is not run", name=name),
        say("Read it with `satchel show {name}`, then run `satchel trust {name}`", name=name),
    )
