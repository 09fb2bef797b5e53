"""Records of a skill that is being written: its problems and its catalogue entry."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from satchel.catalogue.catalogue import entry_of
from satchel.errors import InvalidInput, Refused
from satchel.i18n import say
from satchel.presentation.change_words import counted
from satchel.presentation.files import read_bytes
from satchel.presentation.findings import MARKS, TONES
from satchel.presentation.skills import listing_words, scope_place, state_words
from satchel.skill.document import MANIFEST
from satchel.skill.metadata import NAME, id_of
from satchel.skill.model import Skill
from satchel.tools.framing import size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.errors import SatchelError
    from satchel.satchel import Satchel
    from satchel.store.store import Store

_END = re.compile(rb"(\r\n|\r|\n)")
MAX_EDIT_BYTES = 1 << 20
MAX_DESCRIPTION_CHARS = 1_024


class Remark(NamedTuple):
    """One problem of a draft."""

    tone: str
    mark: str
    severity: str
    line: int
    """0 for the whole file."""
    message: str
    fix: str


class NewShown(NamedTuple):
    """A new skill while its form is filled in."""

    id: str
    taken: str
    """The folder of an existing skill with that id; empty when there is none."""
    length: int
    most: int
    remarks: tuple[Remark, ...]
    good: bool
    """The description is not empty and has no problems."""
    asks: bool
    """The name yields no id, so the author must give one."""
    own: str


class EditedFile(NamedTuple):
    """A skill's file, opened for editing."""

    text: str
    digest: str
    """Of the file on disk: a save must not overwrite any other content."""
    file: str
    path: str


class DraftCheck(NamedTuple):
    """The problems of a draft, and its entry in the catalogue."""

    remarks: tuple[Remark, ...]
    verdict: str
    tone: str
    entry: str
    """Its entry in the catalogue."""
    entry_words: str


def show_new(store: Store | None, name: str, description: str, own: str = "") -> NewShown:
    """Return the id of a new skill and the problems of its description.

    Args:
        store: Its target; None when no store can be opened.
        name: The name given by the author.
        description: The description given by the author.
        own: The id given by the author.
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
    good = bool(text) and not remarks
    return NewShown(skill_id, taken, len(text), MAX_DESCRIPTION_CHARS, remarks, good, asks, own)


def id_for(name: str, own: str) -> str:
    """Return the author's id when the name yields none, else an empty text.

    Raises:
        InvalidInput: an id is needed and not given.
    """
    if not name.strip() or id_of(name):
        return ""
    if not own.strip():
        raise InvalidInput(
            say("No id can be made of `{name}`", name=name.strip()),
            say("a-z, 0-9 and single hyphens"),
        )
    return own.strip()


def open_draft(satchel: Satchel, skill: Skill, ref: str, path: str = "") -> EditedFile:
    """Return a file of a skill for editing.

    Args:
        satchel: The project's skills.
        skill: The skill.
        ref: Its ref, or the path of a broken file.
        path: The file; empty for the skill's own file.

    Raises:
        Refused: its folder is a link, or the file is too large or not UTF-8.
        NotFound: the file does not exist.
    """
    store, path = satchel.store_of(skill), path or skill.head.file
    place = f"{scope_place(store)}/{skill.head.id}"
    if os.path.islink(store.scope.target(skill.head.id)):
        raise Refused(say("`{path}` is a link", path=place), say("Edit the file that it leads to"))
    data = read_bytes(satchel, ref, path, MAX_EDIT_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=path, reason=say("Not valid UTF-8")),
            say("Edit it in another program"),
        ) from exc
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return EditedFile(lines, digest_of(data), path, f"{place}/{path}")


def digest_of(data: bytes) -> str:
    """Return the digest that a form carries to detect concurrent changes."""
    return sha256(data).hexdigest()


def encode_text(text: str, before: bytes) -> bytes:
    """Encode the text of a form with the byte order mark and the usual line end of the file.

    A browser sends every line end as CRLF.

    Raises:
        InvalidInput: it is too large.
    """
    mark = b"\xef\xbb\xbf" if before.startswith(b"\xef\xbb\xbf") else b""
    lines, old = _END.split(text.encode("utf-8", "replace")), _END.split(before.removeprefix(mark))
    usual = max((b"\n", b"\r\n", b"\r"), key=old[1::2].count)
    data = before if lines[::2] == old[::2] else mark + usual.join(lines[::2])
    if len(data) > MAX_EDIT_BYTES:
        raise InvalidInput(
            say("larger than {size}", size=size_of(MAX_EDIT_BYTES)),
            say("Move detail into files under `references/`"),
        )
    return data


def check_draft(satchel: Satchel, skill: Skill, text: str) -> DraftCheck:
    """Check a draft, and show its entry in the catalogue."""
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
        return DraftCheck(tuple(remarks), verdict, tone, "", say("It is not a valid skill"))
    entry, words = _catalogue_entry(satchel, Skill(document.head, skill.origin))
    return DraftCheck(tuple(remarks), verdict, tone, entry, words)


def _catalogue_entry(satchel: Satchel, skill: Skill) -> tuple[str, str]:
    """The entry in the catalogue, and how much of the description it contains."""
    settings = satchel.settings
    if not skill.for_model:
        return "", state_words("withheld")[1]
    entry, how = entry_of(skill, budget=settings.budget, form=settings.form)
    return entry, listing_words(how if how in ("full", "shortened", "named") else "unlisted")


_ORDER = ("bad", "warn", "info")


def _remark(severity: str, line: int, message: str, fix: str) -> Remark:
    tone = TONES[severity]
    return Remark(tone, MARKS[tone], say(severity), line, message, fix)


def _verdict(remarks: Sequence[Remark]) -> tuple[str, str]:
    errors = sum(one.tone == "bad" for one in remarks)
    warnings = sum(one.tone == "warn" for one in remarks)
    if errors:
        return counted(errors, 0, 0), "bad"
    if warnings:
        return counted(0, warnings, 0), "warn"
    return say("No issues"), "good"


def remark_of(exc: SatchelError) -> Remark:
    """Convert an error into a problem shown beside a form, so that the typed text is kept."""
    return Remark("bad", MARKS["bad"], say("error"), 0, exc.message, exc.hint)
