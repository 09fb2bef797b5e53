"""May a file of a skill that lives on a server be read, and what is in it?

Only while the skill is offered and loaded, only what was listed, and only the very bytes that were
listed. A folder is answered from the list: what a server puts there later is no part of the skill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel._language import Message
from satchel.errors import Refused, SatchelError
from satchel.tools.frame import one_line, printable
from satchel.tools.naming import not_offered, refuse_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.skill import Skill
    from satchel.tools.base import Call

_ENTRIES = 100


def served_bytes(
    call: Call,
    library: Library,
    loaded: Sequence[str],
    found: tuple[Skill, str],
    allowed: Callable[[str], bool],
) -> bytes | Envelope:
    """The file, or the answer that says why not.

    Args:
        call: Who asks.
        library: Where the skill is from.
        loaded: The folders of the skills that this conversation loaded.
        found: The skill and the path below its folder.
        allowed: Whether files of this name may be read at all.
    """
    skill, path = found
    supply = library.supply_of(skill)
    if skill.state != "active" or supply is None:
        return not_offered(call, library.snapshot(), skill)
    if skill.base_dir not in loaded:
        return call.fail(
            "PERMISSION_DENIED",
            Message(
                "The skill `{name}` comes from a server: its files are read while it is loaded",
                name=one_line(skill.name, 100),
            ),
            "Load it first, with Skill and its name",
        )
    try:
        library.seals.check(skill)
        files = supply.files_of(skill)
        if path not in files:
            inside = f"{path}/" if path else ""
            if any(one.startswith(inside) for one in files):
                return _folder(call, skill, inside, files)
        elif not allowed(path):
            return call.fail(
                "ACCESS_DENIED",
                Message("`{path}` is not of a kind that may be read", path=one_line(path, 300)),
                "Only text files may: see the setting `read_extensions`",
            )
        data = supply.bring(skill, path)
        library.seals.check_served(skill, path, data)
        return data
    except Refused as exc:
        return refuse_use(call, exc)
    except SatchelError as exc:
        return call.fail("EXECUTION_ERROR", one_line(exc.message, 600), one_line(exc.hint, 300))


def _folder(call: Call, skill: Skill, inside: str, files: Iterable[str]) -> Envelope:
    """What is in a folder, by the list."""
    below = [path[len(inside) :] for path in files if path.startswith(inside)]
    names = sorted({name.partition("/")[0] + ("/" if "/" in name else "") for name in below})
    entries: list[dict[str, Any]] = [
        {"path": printable(name.rstrip("/")), "type": "dir" if name[-1] == "/" else "file"}
        for name in names[:_ENTRIES]
    ]
    more = f" and {len(names) - _ENTRIES} more" if len(names) > _ENTRIES else ""
    listed = ", ".join(printable(name) for name in names[:_ENTRIES])
    return call.fail(
        "IS_DIRECTORY",
        Message("`{path}` is a folder", path=one_line(inside or skill.name, 300)),
        Message("Read a file in it: {names}", names=listed + more),
        {"entries": entries, "entries_total": len(names)},
    )
