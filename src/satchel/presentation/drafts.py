"""Records of a skill that is being written: its problems and its catalogue entry."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from satchel.catalogue.catalogue import entry_of
from satchel.errors import InvalidInput, Refused
from satchel.i18n import say
from satchel.presentation.change_words import problem_counts
from satchel.presentation.files import read_bytes
from satchel.presentation.findings import SYMBOLS, TONES
from satchel.presentation.skill_lookup import scope_folder
from satchel.presentation.skills import listing_words, state_words
from satchel.skill.document import MANIFEST
from satchel.skill.metadata import NAME, id_of
from satchel.skill.model import Skill
from satchel.tools.framing import size_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.errors import SatchelError
    from satchel.satchel import Satchel
    from satchel.store.store import Store

_LINE_END = re.compile(rb"(\r\n|\r|\n)")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TONE_ORDER = ("bad", "warn", "info")
MAX_EDIT_BYTES = 1 << 20
MAX_DESCRIPTION_CHARS = 1_024


class Remark(NamedTuple):
    """One problem of a draft."""

    tone: str
    symbol: str
    severity: str
    line: int
    """0 for the whole file."""
    message: str
    fix: str


class NewShown(NamedTuple):
    """A new skill while its form is filled in."""

    id: str
    existing_folder: str
    """The folder of an existing skill with that id; empty when there is none."""
    length: int
    max_length: int
    remarks: tuple[Remark, ...]
    is_good: bool
    """The description is not empty and has no problems."""
    needs_id: bool
    """The name yields no id, so the author must give one."""
    custom_id: str


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
    listing_label: str
    """How much of the description the entry contains."""


def show_new(store: Store | None, name: str, description: str, custom_id: str = "") -> NewShown:
    """Return the id of a new skill and the problems of its description.

    Args:
        store: Its target; None when no store can be opened.
        name: The name given by the author.
        description: The description given by the author.
        custom_id: The id given by the author.
    """
    from satchel.authoring.check_skill import check_description

    custom_id = custom_id.strip()
    skill_id = id_of(name)
    needs_id = bool(name.strip()) and not skill_id
    if needs_id and NAME.fullmatch(custom_id):
        skill_id = custom_id
    existing_folder = ""
    if store is not None and skill_id and os.path.lexists(store.scope.target(skill_id)):
        existing_folder = f"{scope_folder(store)}/{skill_id}"
    text = " ".join(description.split())
    remarks = tuple(
        _make_remark(failure.severity, 0, failure.message, failure.fix)
        for failure in (check_description(text) if text else ())
    )
    return NewShown(
        id=skill_id,
        existing_folder=existing_folder,
        length=len(text),
        max_length=MAX_DESCRIPTION_CHARS,
        remarks=remarks,
        is_good=bool(text) and not remarks,
        needs_id=needs_id,
        custom_id=custom_id,
    )


def custom_id_for(name: str, custom_id: str) -> str:
    """Return the author's id when the name yields none, else an empty text.

    Raises:
        InvalidInput: an id is needed and not given.
    """
    if not name.strip() or id_of(name):
        return ""
    if not custom_id.strip():
        raise InvalidInput(
            say("No id can be made of `{name}`", name=name.strip()),
            say("a-z, 0-9 and single hyphens"),
        )
    return custom_id.strip()


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
    folder = f"{scope_folder(store)}/{skill.head.id}"
    if os.path.islink(store.scope.target(skill.head.id)):
        raise Refused(say("`{path}` is a link", path=folder), say("Edit the file that it leads to"))
    data = read_bytes(satchel, ref, path, MAX_EDIT_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise Refused(
            say("`{path}` cannot be read: {reason}", path=path, reason=say("Not valid UTF-8")),
            say("Edit it in another program"),
        ) from exc
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return EditedFile(text, digest_of(data), path, f"{folder}/{path}")


def digest_of(data: bytes) -> str:
    """Return the digest that a form carries to detect concurrent changes."""
    return sha256(data).hexdigest()


def encode_text(text: str, old_data: bytes) -> bytes:
    """Encode the text of a form with the byte order mark and the usual line end of the file.

    A browser sends every line end as CRLF.

    Raises:
        InvalidInput: it is too large.
    """
    prefix = _BYTE_ORDER_MARK if old_data.startswith(_BYTE_ORDER_MARK) else b""
    # Lines and line ends alternate.
    lines = _LINE_END.split(text.encode("utf-8", "replace"))[::2]
    old_pieces = _LINE_END.split(old_data.removeprefix(prefix))
    old_lines, old_line_ends = old_pieces[::2], old_pieces[1::2]
    if lines == old_lines:
        data = old_data
    else:
        usual_line_end = max((b"\n", b"\r\n", b"\r"), key=old_line_ends.count)
        data = prefix + usual_line_end.join(lines)
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
        remarks = [
            _make_remark(problem.severity, problem.line, problem.message, problem.fix)
            for problem in problems
        ]
    else:
        report = check_skill_md(folder, data=data).report(skill.id, folder)
        remarks = [
            _make_remark(
                rule_verdict.severity, rule_verdict.line, rule_verdict.message, rule_verdict.fix
            )
            for rule_verdict in report.verdicts
            if rule_verdict.state == "fail"
        ]
    remarks.sort(key=lambda remark: (_TONE_ORDER.index(remark.tone), remark.line))
    verdict, tone = _summarise(remarks)
    entry, listing_label = "", say("It is not a valid skill")
    if document.head is not None:
        entry, listing_label = _catalogue_entry(satchel, Skill(document.head, skill.origin))
    return DraftCheck(tuple(remarks), verdict, tone, entry, listing_label)


def _catalogue_entry(satchel: Satchel, skill: Skill) -> tuple[str, str]:
    """Return the entry in the catalogue, and how much of the description it contains."""
    settings = satchel.settings
    if not skill.for_model:
        return "", state_words("withheld")[1]
    entry, listing = entry_of(skill, budget=settings.budget, form=settings.form)
    if listing not in ("full", "shortened", "named"):
        listing = "unlisted"
    return entry, listing_words(listing)


def _make_remark(severity: str, line: int, message: str, fix: str) -> Remark:
    tone = TONES[severity]
    return Remark(tone, SYMBOLS[tone], say(severity), line, message, fix)


def _summarise(remarks: Sequence[Remark]) -> tuple[str, str]:
    """Return the number of errors or warnings in words, and its tone."""
    errors = sum(remark.tone == "bad" for remark in remarks)
    warnings = sum(remark.tone == "warn" for remark in remarks)
    if errors:
        return problem_counts(errors, 0, 0), "bad"
    if warnings:
        return problem_counts(0, warnings, 0), "warn"
    return say("No issues"), "good"


def error_remark(exc: SatchelError) -> Remark:
    """Convert an error into a problem shown beside a form, so that the typed text is kept."""
    return Remark("bad", SYMBOLS["bad"], say("error"), 0, exc.message, exc.hint)
