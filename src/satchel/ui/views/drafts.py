"""A skill while it is written: what is wrong with it, and what a model would be told of it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._fs import read_plain
from satchel._language import say
from satchel.errors import InvalidInput, NotFound, Refused
from satchel.presentation import counted
from satchel.skill.interpret import NAME, id_of
from satchel.skill.model import MANIFEST, Skill
from satchel.ui.views.findings import MARKS, MOODS
from satchel.ui.views.skills import scope_place, scope_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.errors import SatchelError
    from satchel.facade import Satchel
    from satchel.store.store import Store

# --- line ends ----------------------------------------------------------------------------
# A browser sends every line end as CRLF, whatever the file had. Each line that was there before
# keeps its own, so that a save changes nothing else.

_END = re.compile(rb"(\r\n|\r|\n)")
_MOST_LINES = 2_000
"""Comparing is quadratic at worst; in more lines than this, those touched get the usual end."""


def with_line_ends(text: bytes, before: bytes) -> bytes:
    """A text with the line ends that its earlier version had.

    Args:
        text: The new one, with whatever line ends.
        before: The file as it was.
    """
    new = _END.split(text)[::2]
    parts = _END.split(before)
    old, ends = parts[::2], parts[1::2]
    kinds = set(ends)
    usual = max((b"\n", b"\r\n", b"\r"), key=ends.count)
    if len(kinds) <= 1:
        return usual.join(new)
    found = [usual] * len(new)
    for one, other in _pairs(old, new):
        if one < len(ends):  # the last line has none
            found[other] = ends[one]
    found[-1] = b""
    for at in range(len(new) - 2, -1, -1):
        if found[at] == b"\r" and not new[at + 1] and found[at + 1][:1] == b"\n":
            found[at] = b"\n"  # the two would become one
    return b"".join(line + end for line, end in zip(new, found, strict=True))


def _pairs(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int]]:
    """Which line of the old text became which of the new one."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    room = shorter - start
    end = next((at for at in range(room) if old[-1 - at] != new[-1 - at]), room)
    pairs = [(at, at) for at in range(start)]
    pairs += [(len(old) - 1 - at, len(new) - 1 - at) for at in range(end)]
    was, now = old[start : len(old) - end], new[start : len(new) - end]
    if max(len(was), len(now)) > _MOST_LINES:
        return pairs
    from difflib import SequenceMatcher

    for _, i, i_end, j, j_end in SequenceMatcher(None, was, now, autojunk=False).get_opcodes():
        # Lines that replace others take their ends, as far as there are as many.
        pairs += [(start + i + at, start + j + at) for at in range(min(i_end - i, j_end - j))]
    return pairs


LARGEST = 1 << 20
"""Bytes of a file that can be edited in a page."""
SHOWN = 20_000
"""Characters of a preview."""
LONGEST = 1_024
"""Characters of a description that reach everybody."""


class Remark(NamedTuple):
    """One thing about a draft."""

    tone: str
    mark: str
    severity: str
    line: int
    """0 when it is about the whole file."""
    message: str
    fix: str


class NewShown(NamedTuple):
    """A new skill while its form is filled in."""

    id: str
    taken: str
    """Where a skill of that id is already; empty when there is none."""
    length: int
    most: int
    remarks: tuple[Remark, ...]
    good: bool
    """The description has a length, and nothing is to be said about it."""
    asks: bool
    """No id can be made of the name: its author must give one."""
    own: str
    """The id that was given."""


class Draft(NamedTuple):
    """A skill's file, opened for editing."""

    text: str
    digest: str
    """Of what is on the disk: nothing else may be overwritten."""
    file: str
    path: str
    """As people write it."""
    place: str
    locked: bool
    """It came from somewhere: an edit shows as such."""


class Checked(NamedTuple):
    """What is to be said about a draft, and what a model would be told of it."""

    remarks: tuple[Remark, ...]
    verdict: str
    tone: str
    entry: str
    """As it stands in the catalogue."""
    entry_words: str
    frame: str
    """As it is loaded."""
    frame_more: int
    """Characters that are not shown."""


def show_new(store: Store | None, name: str, description: str, own: str = "") -> NewShown:
    """How a new skill would be called, and what its description lacks.

    Args:
        store: Where it would go; None when it can go nowhere now.
        name: As its author calls it.
        description: What it says of itself.
        own: The id that its author gave it.
    """
    from satchel.authoring.check_skill import check_description

    asks, own = bool(name.strip()) and not id_of(name), own.strip()
    skill_id = id_of(name) if not asks else own if NAME.fullmatch(own) else ""
    taken = ""
    if store is not None and skill_id and os.path.lexists(store.scope.target(skill_id)):
        taken = f"{scope_place(store)}/{skill_id}"
    text = " ".join(description.split())
    remarks: tuple[Remark, ...] = ()
    if text:
        remarks = tuple(
            _remark(one.severity, 0, one.message, one.fix) for one in check_description(text)
        )
    return NewShown(skill_id, taken, len(text), LONGEST, remarks, bool(text) and not remarks,
        asks, own,
    )  # fmt: skip


def id_for(name: str, own: str) -> str:
    """The id for a name of which none can be made; empty where one can.

    Raises:
        InvalidInput: nobody gave one.
    """
    if not name.strip() or id_of(name):
        return ""
    if not own.strip():
        raise InvalidInput(
            say("No id can be made of `{name}`", name=name.strip()),
            say("Give it an id of its own: a-z, 0-9 and hyphens"),
        )
    return own.strip()


def there(store: Store, ids: Sequence[str]) -> frozenset[str]:
    """Those of some ids under which there is something already."""
    return frozenset(one for one in ids if os.path.lexists(store.scope.target(one)))


def open_draft(store: Store, skill: Skill) -> Draft:
    """A skill's own file, for editing.

    Raises:
        Refused: its folder is a link, or the file is too large, or no text.
        NotFound: it is gone.
    """
    if os.path.islink(store.scope.target(skill.head.id)):
        raise Refused(
            say("`{path}` is a link", path=f"{scope_place(store)}/{skill.head.id}"),
            say("Edit the file that it leads to"),
        )
    data = read_file(skill)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise Refused(
            say("`{path}` is not UTF-8, so a page cannot show it", path=skill.head.file),
            say("Edit it in another program"),
        ) from exc
    locked = skill.head.id in store.lock()
    path = f"{scope_place(store)}/{skill.head.id}/{skill.head.file}"
    place = scope_words(store.scope.name)
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return Draft(lines, digest_of(data), skill.head.file, path, place, locked)


def read_file(skill: Skill) -> bytes:
    """The file as it is on the disk now.

    Raises:
        Refused: it cannot be read, or is too large to be edited.
        NotFound: it is gone.
    """
    try:
        return read_plain(skill.path, LARGEST)
    except FileNotFoundError as exc:
        raise NotFound(
            say("`{name}` is gone", name=skill.name), say("Go back to the list of skills")
        ) from exc
    except OSError as exc:
        raise Refused(
            say("`{path}` cannot be edited here: {reason}",
                path=skill.head.file, reason=exc.strerror or exc),
            say("Edit it in another program"),
        ) from exc  # fmt: skip


def digest_of(data: bytes) -> str:
    """What a form carries, so that it overwrites nothing it has not seen."""
    from hashlib import sha256

    return sha256(data).hexdigest()


def as_written(text: str, before: bytes) -> bytes:
    """The text of a form as bytes: with the line ends and the mark that the file had.

    Raises:
        InvalidInput: it is too large.
    """
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    data = mark + with_line_ends(text.encode("utf-8", "replace"), before.removeprefix(mark))
    if len(data) > LARGEST:
        raise InvalidInput(
            say("The text is larger than {size} KiB", size=LARGEST >> 10),
            say("Move detail into files under `references/`"),
        )
    return data


def check_draft(satchel: Satchel, skill: Skill, text: str) -> Checked:
    """Check a draft as an author wants it, and show what a model would see."""
    from satchel.authoring.check_skill import check_skill_md
    from satchel.skill.validate import validate_draft

    data = text.replace("\r\n", "\n").encode("utf-8", "replace")
    folder, file = skill.base_dir, skill.head.file
    document, problems = validate_draft(data, folder, file)
    if file == MANIFEST:
        remarks = [_remark(one.severity, one.line, one.message, one.fix) for one in problems]
    else:
        report = check_skill_md(folder, data=data).report(skill.id, folder)
        remarks = [
            _remark(one.severity, one.line, one.message, one.fix)
            for one in report.verdicts
            if one.state == "fail"
        ]
    remarks.sort(key=lambda one: (_ORDER.index(one.tone), one.line))
    verdict, tone = _verdict(remarks)
    if document.head is None:
        words = say("A model would not see it: the file is not a skill")
        return Checked(tuple(remarks), verdict, tone, "", words, "", 0)
    entry, entry_words, frame = _seen(satchel, Skill(document.head, skill.origin), document.body)
    return Checked(
        tuple(remarks), verdict, tone, entry, entry_words, frame[:SHOWN], max(0, len(frame) - SHOWN)
    )


def _seen(satchel: Satchel, skill: Skill, body: str) -> tuple[str, str, str]:
    """The entry in the catalogue, how it stands there, and the frame in which it is loaded."""
    from satchel.catalogue.build import entry_of
    from satchel.tools.skill_tool import preview

    settings = satchel.settings
    if not skill.for_model:
        words = say("Only people can load it: `disable-model-invocation` is set")
        return "", words, preview(skill, body)
    entry, how = entry_of(skill, budget=settings.budget, form=settings.form)
    words = {
        "full": say(
            "In full, if there is room for it: {count} characters", count=f"{len(entry):,}"
        ),
        "shortened": say("Shortened: its description is too long for the budget"),
        "named": say("By its name alone: the budget is too small for its description"),
    }.get(how, say("Not listed: the budget is too small"))
    return entry, words, "" if skill.is_tool else preview(skill, body)


_ORDER = ("bad", "warn", "info")


def _remark(severity: str, line: int, message: str, fix: str) -> Remark:
    tone = MOODS[severity]
    return Remark(tone, MARKS[tone], say(severity), line, message, fix)


def _verdict(remarks: Sequence[Remark]) -> tuple[str, str]:
    errors = sum(one.tone == "bad" for one in remarks)
    warnings = sum(one.tone == "warn" for one in remarks)
    if errors:
        return counted(errors, 0, 0), "bad"
    if warnings:
        return counted(0, warnings, 0), "warn"
    return say("Nothing to object to"), "good"


def trouble_of(exc: SatchelError) -> Remark:
    """An error of ours beside a form, so that what was typed is not lost."""
    return Remark("bad", MARKS["bad"], say("error"), 0, exc.message, exc.hint)
