"""Which call does a model mean? Its arguments, the skill that it names, the program behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.envelope import failure
from satchel.errors import SatchelError
from satchel.tools.naming import find_skill
from satchel.tools.parameters import echo, read_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from satchel.envelope import Envelope
    from satchel.library import Library, Snapshot
    from satchel.skill.model import Skill

_WHICH = ("name", "skill")
"""The parameter of Skill that says which one, and its other name."""


def named_skill(
    table: Mapping[str, Any], looks: Iterable[Callable[[], Snapshot]], project: str
) -> Skill | None:
    """The skill that a call of Skill will load; None when it is none, or it cannot be told.

    Args:
        table: The arguments of the call.
        looks: Ways to look at the library, the cheapest first; the next only where needed.
        project: The folder that paths are relative to.
    """
    given = {table[key] for key in _WHICH if isinstance(table.get(key), str)}
    if len(given) != 1:
        return None
    wanted = str(given.pop())
    found: Skill | None = None
    for look in looks:
        snapshot = look()
        found = snapshot.get(wanted) or find_skill(snapshot, wanted, project)
        if found is not None and found.state == "active":
            break
    return found


def with_name(table: dict[str, Any], skill: Skill | None) -> dict[str, Any]:
    """The arguments of a call of Skill with the skill named as the library does.

    So `/deploy`, or a path to it, is judged as `deploy` is.
    """
    if skill is None or skill.state != "active":
        return table
    rest = {key: value for key, value in table.items() if key not in _WHICH}
    return {"name": skill.name, **rest}


def revision_of(library: Library, tool: str) -> str:
    """Of the skill whose program a tool is, so that a person's yes is for that one."""
    found = library.tools().tools.get(tool)
    if found is None:
        return ""
    from satchel.tools.folder import list_folder

    source = found[0]
    return f"{source.digest}/{list_folder(source.skill.base_dir, '').revision}"


def failed_call(exc: SatchelError, arguments: Any) -> Envelope:
    """What a call says that could not be made."""
    try:
        given: dict[str, Any] = echo(read_arguments(arguments))
    except SatchelError:
        given = {}
    code: Any = exc.code
    return failure(code, exc.message, exc.hint, params=given, time_ms=0)
