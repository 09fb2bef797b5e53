"""What is to know about one skill at a glance? The facts below its row, and what may be done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from satchel._diagnosis import content_problem
from satchel._language import say
from satchel.errors import SatchelError
from satchel.skill.interpret import as_words
from satchel.skill.problems import PROBLEMS
from satchel.tools.frame import encodable, printable
from satchel.ui.views.files import list_files, read_file
from satchel.ui.views.skills import (
    broken_at,
    broken_row,
    find_file,
    find_skill,
    own_scope,
    row_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.facade import Satchel
    from satchel.skill.model import Document, Skill
    from satchel.skill.problems import Problem
    from satchel.ui.views.files import Files
    from satchel.ui.views.skills import Row

_TOLD_BY_FIELDS = frozenset(("inert-field", "unknown-field"))
"""What the table of fields says already."""
_MOST_PROBLEMS = 30
_MOST_LINES = 200
_LONGEST_LINE = 500


class Wrong(NamedTuple):
    """A problem in words, and what to do."""

    severity: str
    words: str
    fix: str
    line: int


class Line(NamedTuple):
    """A line of a file as it was written."""

    number: int
    text: str
    bad: bool
    """The problem is here."""


class Detail(NamedTuple):
    """One skill, opened."""

    row: Row
    description: str
    path: str
    tags: tuple[str, ...]
    allowed: tuple[str, ...]
    """Tools that it wants to use without asking."""
    tools: tuple[str, ...]
    """Tools that it brings."""
    wants: tuple[str, ...]
    """What their program may touch."""
    changed: str
    """When its file was last changed; empty when nobody knows."""
    problems: tuple[Wrong, ...]
    files: Files
    own: str
    """The path of its own file, which is shown first."""
    scope: str
    """Where it may be changed; empty when it may not."""
    raw: tuple[Line, ...] = ()
    """The lines of a file that is no skill: what is wrong is in them."""


def detail_of(satchel: Satchel, ref: str) -> Detail:
    """Everything below the row of one skill, or of a file that should be one.

    Raises:
        NotFound: there is none, or no more.
    """
    item = broken_at(satchel, ref)
    if item is not None:
        problem = item.problem
        files = list_files(satchel, ref)
        own = next((one.path for one in files.entries if one.kind != "odd"), "")
        return Detail(
            broken_row(item), "", printable(problem.path), (), (), (), (), "",
            tuple(_told([problem])), files, own, own_scope(satchel, find_file(satchel, ref)),
            tuple(_lines(satchel, ref, problem.line)),
        )  # fmt: skip
    skill = find_skill(satchel, ref)
    document, found = _read(satchel, skill)
    source = satchel.library.tools().of(skill)
    fields = document.fields if document is not None else {}
    return Detail(
        row_of(satchel, skill),
        encodable(skill.description),
        printable(skill.path),
        tuple(printable(tag) for tag in skill.tags),
        tuple(printable(word) for word in as_words(fields.get("allowed-tools"))),
        tuple(printable(name) for name in source.tools) if source is not None else (),
        source.wants if source is not None else (),
        "" if skill.origin.remote else _when(skill.mtime),
        tuple(_told(found)),
        list_files(satchel, skill.ref),
        skill.head.file if encodable(skill.head.file) == skill.head.file else "",
        own_scope(satchel, skill),
    )


def _lines(satchel: Satchel, ref: str, bad: int) -> Iterable[Line]:
    """The beginning of a file line by line, or what is around the bad one."""
    try:
        content = read_file(satchel, ref, "")
    except SatchelError:
        return  # said where the file is shown
    lines = content.text.replace("\r\n", "\n").split("\n") if content.kind == "text" else []
    if lines and not lines[-1]:
        lines.pop()  # the file's last line end begins no line
    first = max(0, min(bad, len(lines)) - _MOST_LINES // 2) if bad > _MOST_LINES else 0
    for number, text in enumerate(lines[first : first + _MOST_LINES], first + 1):
        cut = text if len(text) <= _LONGEST_LINE else f"{text[:_LONGEST_LINE]}…"
        yield Line(number, printable(cut.expandtabs(4)), number == bad)


def _read(satchel: Satchel, skill: Skill) -> tuple[Document | None, list[Problem]]:
    """Its document, where it lies here, and what is wrong with it."""
    from satchel.skill.validate import check

    problems: list[Problem] = []
    changed = content_problem(satchel.library, skill)
    if changed is not None:
        problems.append(changed)
    if skill.origin.remote:  # fetched when somebody opens it
        return None, [*problems, *skill.problems]
    try:
        document = skill.read()
    except SatchelError:
        return None, [*problems, *skill.problems]  # said where the file is shown
    if skill.is_tool:
        return document, [*problems, *document.problems]
    return document, [*problems, *check(document)]


def _told(problems: Iterable[Problem]) -> Iterable[Wrong]:
    """Errors first; what the table of fields says is left out."""
    order = ("error", "warning", "note")
    kept = [one for one in problems if one.code not in _TOLD_BY_FIELDS]
    kept.sort(key=lambda one: order.index(PROBLEMS[one.code].severity))
    for one in kept[:_MOST_PROBLEMS]:
        yield Wrong(one.severity, encodable(one.message), encodable(one.fix), one.line)
    if len(kept) > _MOST_PROBLEMS:
        yield Wrong("note", say("… and {count} more", count=len(kept) - _MOST_PROBLEMS), "", 0)


def _when(stamp: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))
    except (OverflowError, OSError, ValueError):
        return ""  # a file may claim any time
