"""Which servers give us skills? `satchel mcp add`, `list`, `remove` and `copy`."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING, Any, cast

from satchel._language import say
from satchel.cli.output import one_line, write_json
from satchel.cli.session import short_path
from satchel.errors import Conflict, InvalidInput, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.cli.session import Session
    from satchel.library.supply import Supply
    from satchel.remote.supplier import McpSupplier
    from satchel.skill.model import Skill
    from satchel.skill.problems import Problem


def add_server(
    session: Session,
    words: Sequence[str],
    *,
    token: str | None = None,
    headers: Sequence[str] = (),
    env: Sequence[str] = (),
    skills: Sequence[str] = (),
    as_json: bool = False,
) -> int:
    """Write a server into the user's configuration, then ask it.

    Args:
        session: The run of the terminal.
        words: The name, then an address, or a command and its words.
        token: The variable that has the bearer token.
        headers: Each `NAME=VARIABLE`.
        env: Variables that a command may see.
        skills: Addresses of skills that the server does not list.
        as_json: Print JSON.
    """
    from satchel.remote.config import add_server as write

    if len(words) < 2:
        raise InvalidInput(
            say("A name and an address, or a name and a command, are needed"),
            say("Run `satchel mcp add docs https://skills.example.com/mcp`"),
        )
    name, first = words[0], words[1]
    row: dict[str, Any] = {}
    if "://" in first:
        if len(words) > 2:
            raise InvalidInput(
                say("After the address comes nothing more"), say("Run `satchel mcp --help`")
            )
        row["address"] = first
    elif _is_half_an_address(first):
        raise InvalidInput(
            say("`{name}` is no address, and no such program is here", name=one_line(first)),
            say("Write `https://{name}`, or the whole path of a program", name=one_line(first)),
        )
    else:
        row["command"] = list(words[1:])
    pairs = dict(_pair(one) for one in headers)
    for key, value in (("token", token), ("headers", pairs), ("env", env), ("skills", skills)):
        if value:
            row[key] = list(value) if isinstance(value, tuple) else value
    config = session.satchel.settings.paths.config
    write(config, name, row)
    session.err.line(say("Added to {path}", path=short_path(config)))
    session.renew()
    return show_servers(session, (name,), as_json=as_json)


def _is_half_an_address(word: str) -> bool:
    """Whether somebody forgot the `https://`: it begins as a host does, and is no program."""
    host = word.partition("/")[0].partition(":")[0]
    named = "." in host.strip(".") and not word.startswith((".", "/", "~"))
    return (named or host == "localhost") and shutil.which(word) is None


def remove_server(session: Session, words: Sequence[str], *, as_json: bool = False) -> int:
    """Take a server out of the configuration, with what was kept and approved of it."""
    from satchel.remote.config import remove_server as erase
    from satchel.remote.places import drop_contents
    from satchel.remote.supplier import FAILED

    name = _one(words, say("Which server?"))
    satchel = session.satchel
    folders = [one.location.path for one in _supplies(session) if one.supplier.label == name]
    erase(satchel.settings.paths.config, name)
    satchel.library.close()  # a list that comes now would be kept
    for folder in folders:
        satchel.library.trust.revoke(folder)
        shutil.rmtree(folder, ignore_errors=True)
        for kept in (folder + ".json", folder + FAILED):
            if os.path.exists(kept):
                os.unlink(kept)
    drop_contents(satchel.settings.paths.cache)
    if as_json:
        write_json({"removed": name})
    else:
        session.err.line(
            say("`{name}` is removed, with its approvals and what was kept of it", name=name)
        )
    return 0


def show_servers(session: Session, words: Sequence[str] = (), *, as_json: bool = False) -> int:
    """Ask every server, or those that are named, and say how it stands."""
    from satchel._optional import require

    supplies = _supplies(session)
    known = {one.supplier.label for one in supplies}
    for word in words:
        if word not in known:
            from satchel.errors import NotFound

            raise NotFound(
                say("There is no server `{name}`", name=one_line(word)),
                say("Add it: `satchel mcp add {name} https://…`", name=one_line(word)),
            )
    if supplies:
        require("mcp", "mcp")
    chosen = [one for one in supplies if not words or one.supplier.label in words]
    for one in chosen:
        cast("McpSupplier", one.supplier).refresh()
    every = session.satchel.library.refresh()
    skills = [*every.skills, *every.hidden]
    records = [_record(one, skills) for one in chosen]
    problems = [*session.satchel.library.snapshot().problems]
    problems = [one for one in problems if one.code.startswith(("server-", "served-"))]
    failed = any(not record["answers"] for record in records)
    if as_json:
        write_json({
            "servers": records,
            "problems": [one.to_dict() for one in problems],
        })  # fmt: skip
        return 1 if failed else 0
    if not records:
        session.err.line(say("No server is set. Add one: `satchel mcp add docs https://…`"))
    else:
        _table(session, records)
    _tell(session, problems)
    return 1 if failed else 0


def copy_skill(
    session: Session, words: Sequence[str], *, to: str | None = None, as_json: bool = False
) -> int:
    """Fetch a whole served skill into a folder of the user's own, every file compared."""
    name = _one(words, say("Which skill?"))
    found = [skill for skill in session.find(name) if skill.origin.remote]
    if not found:
        raise Refused(
            say("`{name}` lies here already", name=one_line(name)),
            say("Run `satchel show {name}` to see where", name=one_line(name)),
        )
    skill = found[0]
    library = session.satchel.library
    supply = library.supply_of(skill)
    target = os.path.abspath(os.path.expanduser(to or skill.name))
    if os.path.lexists(target):
        raise Conflict(
            say("`{path}` is there already", path=short_path(target)),
            say("Give another folder with `--to`"),
        )
    assert supply is not None  # noqa: S101 - it is a served one
    contents = {path: supply.bring(skill, path) for path in supply.files_of(skill)}
    supply.document(skill)  # its frontmatter is the listed one, too
    from satchel._fs import write_atomic

    for path, data in contents.items():
        write_atomic(os.path.join(target, path), data)
    if as_json:
        write_json({"name": skill.name, "origin": skill.origin.remote, "folder": target,
                    "files": sorted(contents)})  # fmt: skip
        return 0
    session.out.data(target + "\n")
    session.err.line(
        say("A copy, not installed yet. Look at it, then run `satchel import {path}`",
            path=short_path(target))
    )  # fmt: skip
    return 0


def _supplies(session: Session) -> list[Supply]:
    from satchel.remote.supplier import McpSupplier

    library = session.satchel.library
    found = [library.supply_at(place.path) for place in library.locations]
    return [one for one in found if one is not None and isinstance(one.supplier, McpSupplier)]


def _record(supply: Supply, skills: Sequence[Skill]) -> dict[str, Any]:
    supplier = cast("McpSupplier", supply.supplier)
    here = [skill for skill in skills if skill.origin.root == supply.location.path]
    problems = supplier.listing().problems
    silent = [one for one in problems if one.code in ("server-unreachable", "server-stale")]
    listed = time.strftime("%Y-%m-%d %H:%M", time.localtime(supplier.at)) if supplier.at else None
    return {
        "name": supplier.label,
        "target": supplier.server.target,
        "answers": not silent,
        "reason": silent[0].values["reason"] if silent else None,
        "listed": listed,
        "skills": len(here),
        "offered": sum(skill.state == "active" for skill in here),
        "untrusted": sum(skill.state == "untrusted" for skill in here),
        "shadowed": sum(skill.state == "shadowed" for skill in here),
    }


def _table(session: Session, records: Sequence[dict[str, Any]]) -> None:
    head = ["", say("name"), say("skills"), say("offered"), say("waiting"), say("address")]
    rows = [
        [
            "●" if one["answers"] else "○",
            one_line(one["name"]),
            str(one["skills"]),
            str(one["offered"]),
            str(one["untrusted"]),
            one_line(one["target"]),
        ]
        for one in records
    ]
    styles = [["green" if one["answers"] else "red", "bold"] for one in records]
    session.out.table(head, rows, styles)


def _tell(session: Session, problems: Sequence[Problem]) -> None:
    from satchel.cli.showing import show_problems

    show_problems(session.err, problems, "")


def _pair(text: str) -> tuple[str, str]:
    name, mark, variable = text.partition("=")
    if not mark or not name or not variable:
        raise InvalidInput(
            say("`{text}` is no header", text=one_line(text)),
            say("Write NAME=VARIABLE: the variable holds the value"),
        )
    return name, variable


def _one(words: Sequence[str], question: str) -> str:
    if len(words) != 1:
        raise InvalidInput(question, say("Give one name"))
    return words[0]
