"""A call of a tool failed: what can the person at the terminal do about it?

A tool's next step is for a model, which can ask for less or tell the user. Here the user is the
one who reads, and often the one who wrote the program.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from satchel._language import say
from satchel.cli.session import short_path
from satchel.retelling import retell

if TYPE_CHECKING:
    from satchel.envelope import Envelope
    from satchel.facade import Satchel
    from satchel.library.tool_snapshot import ToolSkill

_UNREADABLE = frozenset(("not-json", "not-an-object", "wrong-fields", "bad-utf8", "two-replies"))


def next_step(satchel: Satchel, tool: str, reply: Envelope) -> str:
    """What to do next; empty where the message says it all."""
    if reply.error is None:
        return ""
    data = reply.data
    if "fix" in data:
        return retell(str(data["fix"]))
    found = satchel.library.tools().find(tool)
    source = found[0] if found else None
    if source is not None and "fault" in data:
        return _after_fault(source, data)
    if source is not None and source.skill.state == "untrusted" and "tier" not in data:
        return say(
            "Read it with `satchel show {name}`, then run `satchel trust {name}`",
            name=source.skill.typed,
        )
    told = reply.text.removeprefix(reply.error.message).lstrip(". ").rstrip(".")
    if told.startswith("<"):  # a frame around the program's own words: they say what to do
        return ""
    return retell(told)


def _after_fault(source: ToolSkill, data: dict[str, Any]) -> str:
    fault, limits = data["fault"], data["limits"]
    entry = short_path(os.path.join(source.skill.base_dir, source.manifest.entry))
    seconds, size = f"{limits['timeout']:g}", limits["memory"] >> 20
    known = {
        "timeout": say("It had 1 second; make it faster, or raise `timeout:` in `skill.yaml`")
        if seconds == "1"
        else say(
            "It had {seconds} seconds; make it faster, or raise `timeout:` in `skill.yaml`",
            seconds=seconds,
        ),
        "memory": say(
            "It may hold {size} MB; hold less at once, or raise the setting `tool_memory`",
            size=size,
        ),
        "processes": say("Start fewer processes at once in `{path}`", path=entry),
        "cannot-start": say(
            "Check that `{path}` can be run, and run `satchel sandbox check`", path=entry
        ),
        "too-long": say("Answer with less at once: mend `{path}`", path=entry),
    }
    if fault in known:
        return known[fault]
    if fault in _UNREADABLE:
        return say(
            "Write one line to stdout, a JSON object with `output` and `error`, and all else to "
            "stderr: mend `{path}`",
            path=entry,
        )
    if data.get("stderr"):
        return say("Read stderr above, then mend `{path}`", path=entry)
    return say(
        "Read one line from stdin, answer with one line on stdout: mend `{path}`", path=entry
    )
