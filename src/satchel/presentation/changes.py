"""Records of a plan, its file diffs, its result, and the history of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import NotFound, Refused
from satchel.i18n import render, say
from satchel.presentation.findings import TONES, show_finding
from satchel.presentation.skills import scope_place, scope_words
from satchel.presentation.wording import (
    about_step,
    change_word,
    difference_rows,
    file_difference_rows,
    history_words,
    names_of,
)
from satchel.skill.file_tree import FolderTree
from satchel.store.plan import verdict_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.presentation.findings import FindingShown
    from satchel.presentation.skills import ScopeShown
    from satchel.skill.file_tree import Tree
    from satchel.store.history import HistoryEntry
    from satchel.store.plan import ChangePlan, ChangeStep, Kind
    from satchel.store.store import Receipt, Store

MAX_DIFF_LINES = 2_000


class DiffLine(NamedTuple):
    """One line of a diff."""

    kind: Literal["same", "add", "del", "hunk", "note"]
    old: str
    new: str
    text: str


class Diff(NamedTuple):
    """The diff of one file."""

    path: str
    lines: tuple[DiffLine, ...]
    more: int


def diff_of_texts(path: str, before: str, after: str) -> Diff:
    """Return the diff of two versions of a text."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    return diff_lines(path, "\n".join(lines))


def diff_lines(path: str, patch: str) -> Diff:
    """Parse a unified diff and number its lines."""
    import re

    rows: list[DiffLine] = []
    old = new = 0
    lines = patch.split("\n")
    for line in lines[2:] if patch.startswith("--- ") else lines:
        if found := re.match(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@", line):
            old, new = int(found[1]), int(found[2])
            rows.append(DiffLine("hunk", "", "", line))
        elif line.startswith("+"):
            rows.append(DiffLine("add", "", str(new), line[1:]))
            new += 1
        elif line.startswith("-"):
            rows.append(DiffLine("del", str(old), "", line[1:]))
            old += 1
        elif line.startswith(" "):
            rows.append(DiffLine("same", str(old), str(new), line[1:]))
            old, new = old + 1, new + 1
        elif line:
            rows.append(DiffLine("note", "", "", _note_words(line.lstrip("#\\ "))))
    return Diff(path, tuple(rows[:MAX_DIFF_LINES]), max(0, len(rows) - MAX_DIFF_LINES))


def _note_words(text: str) -> str:
    import re

    if found := re.fullmatch(r"binary: (\d+) -> (\d+) bytes", text):
        return say("no text: {before} → {after} bytes", before=found[1], after=found[2])
    if text in ("No newline at end of file", "only the permission to execute changes"):
        return say(text)
    return text


MIN_STEPS_SHOWN = 60
"""More are shown only if they need attention, up to `MAX_STEPS_SHOWN`."""
MAX_STEPS_SHOWN = 400
MAX_FILES_SHOWN = 200
MAX_ITEMS_SHOWN = 12
MAX_FINDINGS_SHOWN = 60
MAX_OVERWRITE_BOXES = 8
"""More overwritten skills than this are confirmed by one checkbox."""
EVERY = "*"
"""The value of the checkbox that confirms all overwrites."""
_TONES = {"add": "good", "replace": "warn", "remove": "bad", "same": "", "refused": "bad"}
_PAST_TONES = {"done": "good", "undone": "warn", "past": "", "damaged": "bad"}


class DifferenceRow(NamedTuple):
    """One kind of difference between two versions of a skill."""

    title: str
    items: tuple[str, ...]
    more: int
    tone: str


class FileChangeRow(NamedTuple):
    """One added, removed or changed file."""

    path: str
    kind: Literal["added", "removed", "changed"]
    words: str
    sign: str


class StepShown(NamedTuple):
    """The change to one skill."""

    at: int
    kind: Kind
    words: str
    tone: str
    id: str
    description: str
    about: str
    error: str
    hint: str
    notes: tuple[str, ...]
    file_rows: tuple[DifferenceRow, ...]
    """Changed files of an update, by kind."""
    rows: tuple[DifferenceRow, ...]
    """Other differences of an update."""
    inventory: tuple[DifferenceRow, ...]
    fields: tuple[tuple[str, str, str], ...]
    files: tuple[FileChangeRow, ...]
    more_files: int
    verdict: str
    verdict_words: str
    verdict_tone: str
    findings: tuple[FindingShown, ...]
    more_findings: int
    unscanned: tuple[tuple[str, str], ...]
    warning: str
    """What would be lost; empty when nothing is."""


class PlanShown(NamedTuple):
    """A plan before it is applied."""

    op: str
    title: str
    place: str
    yes: str
    counts: tuple[tuple[str, int, str], ...]
    steps: tuple[StepShown, ...]
    more: int
    overwrites: tuple[str, ...]
    """Ids that need their own checkbox; `EVERY` alone when they are many."""
    overwritten: int
    blocked: tuple[str, ...]
    doable: bool
    """Whether there is anything to confirm."""
    yara: bool
    """Whether YARA rules were used; True when nothing was scanned."""


class PastChange(NamedTuple):
    """One entry of the history."""

    number: int
    when: str
    """In local time."""
    exact: str
    """In UTC."""
    what: str
    ids: tuple[str, ...]
    state: str
    tone: str
    can: Literal["", "undo", "redo"]
    turn: int
    """The history entry that `can` applies to."""


class History(NamedTuple):
    """The changes of one scope, newest first."""

    scope: str
    title: str
    place: str
    rows: tuple[PastChange, ...]
    trouble: str
    hint: str


# --- a plan ---------------------------------------------------------------------------------


def show_plan(plan: ChangePlan, store: Store) -> PlanShown:
    """Return everything a person should see before confirming a plan."""
    weights = [_weight(step) for step in plan.steps]
    order = sorted(range(len(plan.steps)), key=lambda at: (weights[at], at))
    # Every step that needs attention is shown, up to a page size that can still be read.
    room = min(max(MIN_STEPS_SHOWN, sum(weight < 3 for weight in weights)), MAX_STEPS_SHOWN)
    ids = replaced_by(plan)
    return PlanShown(
        plan.op,
        _title(plan),
        f"{scope_words(plan.scope.name)}: {scope_place(store)}",
        _confirm_label(plan),
        _counts(plan),
        tuple(show_step(plan, at, MAX_FINDINGS_SHOWN) for at in order[:room]),
        max(0, len(order) - room),
        ids if len(ids) <= MAX_OVERWRITE_BOXES else (EVERY,),
        len(ids),
        _blocked(plan),
        bool(plan.changes),
        used_yara(plan),
    )


def used_yara(plan: ChangePlan) -> bool:
    """Whether the scans of a plan used YARA rules; True when nothing was scanned."""
    reports = [step.report for step in plan.changes if step.report is not None]
    return not reports or any("yara" in report.engines for report in reports)


def has_findings(step: ChangeStep) -> bool:
    """Whether the scan of a step needs attention."""
    return step.report is not None and step.report.verdict != "no findings"


def has_new_powers(step: ChangeStep) -> bool:
    """Whether an update brings new programs, hosts, secrets or permissions, or merges edits."""
    one = step.difference
    new = one.programs or one.hosts or one.secrets or one.kept or one.powers
    return step.kind == "replace" and bool(new)


def loses_edits(step: ChangeStep) -> bool:
    """Whether a step overwrites edits of an installed skill."""
    return step.before is not None and step.was != step.before.tree


def reason_to_confirm(plan: ChangePlan, accept_risk: str = "") -> str:
    """Return why a plan needs a confirmation; empty when it does not."""
    changes = [step for step in plan.changes if accept_risk or not step.blocked]
    if plan.op == "rename" or not changes:
        return ""
    if plan.op == "lock":
        return say("{names} will be locked as on the disk now", names=_names(changes))
    if plan.blocked and accept_risk:
        return say("The scan blocks {names}", names=_names(plan.blocked))
    lost = [step for step in changes if step.kind == "replace"]
    gone = [step for step in changes if step.kind == "remove"]
    if gone and plan.op == "remove":
        return say("{names} will be removed", names=_names(gone))
    if edited := [step for step in lost if loses_edits(step) and not step.difference.kept]:
        return say("Edits in {names} will be replaced", names=_names(edited))
    if lost:
        names = _names(lost)
        return (
            say("{names} will be updated", names=names)
            if plan.op == "update"
            else say("{names} will be overwritten", names=names)
        )
    if odd := [step for step in changes if has_findings(step)]:
        return say("The scan wants a person to look at {names}", names=_names(odd))
    return ""


def _names(steps: Iterable[ChangeStep]) -> str:
    return names_of([step.id for step in steps])


def replaced_by(plan: ChangePlan) -> tuple[str, ...]:
    """Return the ids that the plan would overwrite and that need a confirmation each.

    An edit or a lock of one skill names it already, so it needs none.
    """
    if plan.op != "import":
        return ()
    return tuple(step.id for step in plan.of_kind("replace"))


def unconfirmed_ids(plan: ChangePlan, ticked: Sequence[str]) -> tuple[str, ...]:
    """Return the ids that stay unchanged because their overwrite was not confirmed."""
    ids = replaced_by(plan)
    if len(ids) > MAX_OVERWRITE_BOXES:
        return () if EVERY in ticked else ids
    return tuple(one for one in ids if one not in ticked)


def is_idle(plan: ChangePlan, leave: Sequence[str]) -> bool:
    """Whether a plan would change nothing because no overwrite was confirmed."""
    return bool(leave) and all(step.id in leave for step in plan.changes)


def _weight(step: ChangeStep) -> int:
    """Sort key: steps that need attention first."""
    if step.kind in ("refused", "same"):
        return 4 if step.kind == "same" else 1
    if step.blocked:
        return 0
    return 2 if has_findings(step) or step.kind in ("replace", "remove") else 3


def _title(plan: ChangePlan) -> str:
    """Refused and unchanged skills are not counted."""
    count = len(plan.changes)
    name = plan.steps[0].id if len(plan.steps) == 1 else ""
    if plan.op == "remove":
        return (
            say("Delete `{name}`?", name=name)
            if name
            else say("Delete {count} skills?", count=count)
        )
    if not count:
        return say("Nothing to install") if plan.op == "import" else say("Nothing to do")
    if plan.op == "lock":
        return say("Keep your change to `{name}`?", name=plan.changes[0].id)
    if plan.op == "install":
        return say("Bring back `{name}` as it was imported?", name=plan.changes[0].id)
    new = [step.id for step in plan.of_kind("add") if not step.blocked]
    old = [step.id for step in plan.of_kind("replace") if not step.blocked]
    if not new and not old:
        words = say("Install {names} in spite of the scan?", names=names_of(_blocked(plan)))
    elif new and old:
        skills = say("1 skill") if len(new) == 1 else say("{count} skills", count=len(new))
        words = say("Install {skills}, replace {count}?", skills=skills, count=len(old))
    elif len(new) == 1:
        words = say("Install `{name}`?", name=new[0])
    elif len(old) == 1:
        words = say("Replace `{name}`?", name=old[0])
    elif new:
        words = say("Install {count} skills?", count=len(new))
    else:
        words = say("Replace {count} skills?", count=len(old))
    return words


def _blocked(plan: ChangePlan) -> tuple[str, ...]:
    return tuple(step.id for step in plan.blocked)


def _confirm_label(plan: ChangePlan) -> str:
    count = len(plan.changes)
    if plan.op == "remove":
        return say("Delete") if count == 1 else say("Delete {count}", count=count)
    if plan.op == "lock":
        return say("Keep it")
    if plan.op == "install":
        return say("Bring it back")
    # The number depends on the checkboxes and on whether a reason is given.
    if count == 1 or plan.blocked or plan.of_kind("replace"):
        return say("Install") if plan.of_kind("add") or plan.blocked else say("Replace")
    return say("Install {count}", count=count)


def _counts(plan: ChangePlan) -> tuple[tuple[str, int, str], ...]:
    words = {
        "add": say("new"),
        "replace": say("there already"),
        "remove": say("deleted"),
        "same": say("as they are"),
        "refused": say("refused"),
    }
    every = ((kind, sum(step.kind == kind for step in plan.steps)) for kind in words)
    return tuple((words[kind], count, _TONES[kind]) for kind, count in every if count)


def show_step(plan: ChangePlan, at: int, most_findings: int | None = None) -> StepShown:
    """Return the record of one step.

    Args:
        plan: The plan.
        at: The index of the step.
        most_findings: The number of findings to include; None for all.
    """
    step = plan.steps[at]
    report = step.report if step.kind != "same" else None
    findings = [one for one in report.findings if one.severity != "note"] if report else []
    shown = findings[:most_findings]
    files = tuple(_files(plan, step))
    return StepShown(
        at,
        step.kind,
        _kind_words(step),
        _TONES[step.kind],
        step.id,
        step.description,
        about_step(step),
        step.error.message if step.error is not None else "",
        step.error.hint if step.error is not None else "",
        step.notes,
        tuple(_rows(file_difference_rows(step.difference))),
        tuple(_rows(difference_rows(step.difference))),
        tuple(_rows(_inventory(step))),
        step.difference.fields,
        files[:MAX_FILES_SHOWN],
        max(0, len(files) - MAX_FILES_SHOWN),
        report.verdict if report else "",
        verdict_words(report.verdict) if report else "",
        TONES[report.verdict] if report else "",
        tuple(map(show_finding, shown)),
        len(findings) - len(shown),
        tuple((path, render(why)) for path, why in report.unscanned) if report else (),
        _warning(plan, step),
    )


def _kind_words(step: ChangeStep) -> str:
    return {
        "add": say("new"),
        "replace": say("there already"),
        "remove": say("will be deleted"),
        "same": say("nothing new"),
        "refused": say("refused"),
    }[step.kind]


def _warning(plan: ChangePlan, step: ChangeStep) -> str:
    if step.kind != "replace" or plan.op in ("edit", "lock"):
        return ""
    if plan.op == "install":
        return say("What you changed in `{name}` is overwritten", name=step.id)
    if loses_edits(step):
        return say("`{name}` is there already, with edits of yours that would be overwritten",
                   name=step.id)  # fmt: skip
    if step.before is None:
        return say("`{name}` is there already, written here, and would be overwritten",
                   name=step.id)  # fmt: skip
    return say("`{name}` is there already and would be overwritten", name=step.id)


def _rows(rows: Iterable[tuple[str, Sequence[str], str]]) -> Iterable[DifferenceRow]:
    for title, items, tone in rows:
        if items:
            more = max(0, len(items) - MAX_ITEMS_SHOWN)
            yield DifferenceRow(title, tuple(items[:MAX_ITEMS_SHOWN]), more, tone)


def _inventory(step: ChangeStep) -> Iterable[tuple[str, Sequence[str], str]]:
    if step.kind == "add" and step.report is not None:
        found = step.report.inventory
        yield say("programs"), found.programs, "warn"
        yield say("hosts it names"), found.hosts, "warn"
        yield say("secrets it reads"), found.secrets, "warn"


def _files(plan: ChangePlan, step: ChangeStep) -> Iterable[FileChangeRow]:
    difference = step.difference
    added, removed = difference.added, difference.removed
    if step.kind == "add" and step.tree_digest is not None:
        added = tuple(step.tree_digest.files)
    elif step.kind == "remove":
        removed = tuple(_present(plan, step))
    elif step.kind in ("same", "refused"):
        return
    yield from (FileChangeRow(path, "changed", say("changed"), "~") for path in difference.changed)
    yield from (FileChangeRow(path, "added", say("new"), "+") for path in added)
    yield from (FileChangeRow(path, "removed", say("removed"), "−") for path in removed)


def _present(plan: ChangePlan, step: ChangeStep) -> list[str]:
    try:
        return [file.path for file in FolderTree(plan.scope.target(step.id)).files]
    except (OSError, Refused):
        return []


# --- line by line ---------------------------------------------------------------------------


def show_diff(plan: ChangePlan, at: int, path: str) -> Diff:
    """Return the diff of one file of one skill.

    Raises:
        NotFound: the plan has no such skill or file.
    """
    from satchel.store.plan import patch_one

    step = plan.steps[at] if 0 <= at < len(plan.steps) else None
    if step is None or not any(file.path == path for file in _files(plan, step)):
        raise NotFound(say("There is no such file in this change"), say("Look at the change again"))
    return diff_lines(path, patch_one(*step_trees(plan, step), path))


def step_trees(plan: ChangePlan, step: ChangeStep) -> tuple[Tree | None, Tree | None]:
    """Return the files of a skill before and after a step; None where there are none."""
    old: Tree | None = None
    if step.kind in ("replace", "remove"):
        old = step.old or FolderTree(plan.scope.target(step.id))
    new = FolderTree(step.staged) if step.staged and step.kind != "remove" else None
    return old, new


# --- what was done --------------------------------------------------------------------------


def done_words(plan: ChangePlan, receipt: Receipt) -> tuple[str, tuple[str, ...]]:
    """Return one sentence about what was done, and further lines."""
    replaced = [step.id for step in receipt.done if step.kind == "replace"]
    came = [step.id for step in receipt.done if plan.op != "import" or step.kind != "replace"]
    names = names_of(came)
    words = {
        "add": say("Added: {names}", names=names),
        "import": say("Imported: {names}", names=names),
        "remove": say("Deleted: {names}", names=names),
        "edit": say("Saved: {names}", names=names),
        "lock": say("Kept, with your change: {names}", names=names),
        "install": say("Brought back: {names}", names=names),
    }.get(plan.op, names)
    if not receipt.done:
        words = say("Nothing was changed") if receipt.kept else say("Nothing to do")
    more: list[str] = []
    if plan.op == "import" and replaced:
        over = say("Replaced: {names}", names=names_of(replaced))
        if came:
            more.append(over)
        else:
            words = over
    if receipt.kept:
        names = names_of([step.id for step in receipt.kept])
        more.append(say("Left as it is: {names}", names=names))
    if receipt.left:
        left = names_of([step.id for step in receipt.left])
        more.append(say("Left out, because the scan blocked it: {names}", names=left))
    more += [line for line in (*receipt.trouble, *receipt.notes, *receipt.repaired) if line]
    return words, tuple(more)


def show_history(scope: ScopeShown) -> History:
    """Return the history of one scope."""
    trouble, hint = scope.trouble, scope.hint
    entries: list[HistoryEntry] = []
    try:
        entries = scope.store.history() if scope.store is not None else []
    except Refused as exc:
        trouble, hint = exc.message, exc.hint
    undo = next((one.number for one in entries if one.state == "done"), 0)
    redo = next((one.number for one in entries if one.state == "undone"), 0)
    # An undo is part of the row of the change it reverts, not a row of its own.
    latest: dict[int, HistoryEntry] = {}
    known = {one.number: one for one in entries}
    for one in reversed(entries):
        latest[_original_number(one, known)] = one
    rows = tuple(
        _past(one, latest[one.number], undo, redo)
        for one in entries
        if _original_number(one, known) == one.number
    )
    return History(scope.name, scope.title, scope.place, rows, trouble, hint)


def _original_number(entry: HistoryEntry, known: dict[int, HistoryEntry]) -> int:
    """The number of the change that a chain of undo and redo entries is about."""
    while entry.of in known:
        entry = known[entry.of]
    return entry.number


def _past(entry: HistoryEntry, latest: HistoryEntry, undo: int, redo: int) -> PastChange:
    if latest.op == "undo":
        words, tone = say("taken back {when}", when=_clock(latest.time)), "warn"
    elif latest.op == "redo":
        words, tone = say("done again {when}", when=_clock(latest.time)), "good"
    else:
        words, tone = history_words()[entry.state], _PAST_TONES[entry.state]
    can: Literal["", "undo", "redo"] = ""
    if latest.number == undo and entry.op != "rebuild":
        can = "undo"
    elif latest.number == redo:
        can = "redo"
    what = change_word(entry.op) if entry.op else entry.summary
    exact = entry.time.replace("T", " ").replace("Z", " UTC")
    return PastChange(
        entry.number, _clock(entry.time), exact, what, entry.ids, words, tone, can, latest.number
    )


def _clock(time: str) -> str:
    """Format a time in local time; without the date when it is today."""
    from datetime import datetime

    try:
        then = datetime.fromisoformat(time).astimezone()
    except ValueError:
        return time
    today = then.date() == datetime.now().astimezone().date()
    return then.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")
