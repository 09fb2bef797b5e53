"""Records of a plan, its file diffs, its result, and the history of changes."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import NotFound, Refused
from satchel.i18n import render, say
from satchel.presentation.change_words import (
    about_step,
    change_word,
    difference_rows,
    file_difference_rows,
    history_words,
    names_of,
)
from satchel.presentation.findings import TONES, show_finding
from satchel.presentation.skills import scope_place, scope_words
from satchel.skill.file_tree import FolderTree
from satchel.store.plan import patch_one, verdict_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from satchel.presentation.findings import FindingShown
    from satchel.presentation.skills import ScopeShown
    from satchel.skill.file_tree import Tree
    from satchel.store.plan import ChangePlan, ChangeStep, Kind
    from satchel.store.store import Receipt, Store
    from satchel.store.undo import HistoryEntry

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
    if found := re.fullmatch(r"binary: (\d+) -> (\d+) bytes", text):
        return f"{found[1]} → {found[2]} bytes"
    if text in ("No newline at end of file", "only the permission to execute changes"):
        return say(text)
    return text


MAX_STEPS_SHOWN = 400
MAX_FILES_SHOWN = 200
MAX_ITEMS_SHOWN = 12
MAX_FINDINGS_SHOWN = 60
REST = "*"
"""The value of the checkbox that selects the skills that are not shown."""
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
    """The label of the button."""
    steps: tuple[StepShown, ...]
    """Without skills whose content is installed already."""
    more: int
    ticked: frozenset[str]
    """Ids that are selected at first: new skills that the scan does not block."""
    notes: tuple[str, ...]
    """Notes of several skills."""
    installed: tuple[str, ...]
    """Ids whose content is installed already."""
    blocked: tuple[str, ...]
    several: bool
    """Whether each skill has a checkbox."""
    doable: bool
    """Whether there is anything to confirm."""


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
    new = [step for step in plan.steps if not is_installed(step)]
    changes = [step for step in plan.changes if not is_installed(step)]
    several = plan.op == "import" and len(changes) > 1
    ticked = [
        step.id for step in changes if not several or (step.kind == "add" and not step.blocked)
    ]
    counts = Counter(note for step in new for note in dict.fromkeys(step.notes))
    common = tuple(note for note, count in counts.items() if count > 1)
    shown = [plan.steps.index(step) for step in show_order(plan)]
    steps = (show_step(plan, at, MAX_FINDINGS_SHOWN) for at in shown)
    return PlanShown(
        plan.op, _title(plan), scope_words(plan.scope.name) + say(": ") + scope_place(store),
        _confirm_label(plan, len(ticked)),
        tuple(step._replace(notes=tuple(one for one in step.notes if one not in common))
              for step in steps),
        len(new) - len(shown), frozenset(ticked), common,
        tuple(step.id for step in plan.steps if is_installed(step)),
        tuple(step.id for step in plan.blocked), several, bool(changes),
    )  # fmt: skip


def is_installed(step: ChangeStep) -> bool:
    """Whether the content of a skill is installed already."""
    if step.kind == "same":
        return True
    new = step.tree_digest
    return step.kind == "replace" and new is not None and new.digest == step.was


def ids_to_leave(plan: ChangePlan, ticked: Collection[str]) -> tuple[str, ...]:
    """Return the ids of an import that were not selected; a single skill has no checkbox."""
    if plan.op != "import":
        return ()
    new = [step.id for step in plan.changes if not is_installed(step)]
    shown = {step.id for step in show_order(plan)}
    if len(new) > 1:
        new = [one for one in new if (one if one in shown else REST) in ticked]
    return tuple(step.id for step in plan.changes if step.id not in new)


def show_order(plan: ChangePlan) -> list[ChangeStep]:
    """Return the steps that a page shows, those that need attention first."""
    new = [step for step in plan.steps if not is_installed(step)]
    return sorted(new, key=_weight)[:MAX_STEPS_SHOWN]


def has_findings(step: ChangeStep) -> bool:
    """Whether the scan of a step needs attention."""
    return step.report is not None and step.report.verdict != "no findings"


def has_new_powers(step: ChangeStep) -> bool:
    """Whether an update brings new programs, hosts, secrets or permissions."""
    one = step.difference
    new = one.programs or one.hosts or one.secrets or one.powers
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
    if edited := [step for step in lost if loses_edits(step)]:
        return say("Edits in {names} will be replaced", names=_names(edited))
    if lost:
        names = _names(lost)
        return (
            say("{names} will be updated", names=names)
            if plan.op == "update"
            else say("{names} will be overwritten", names=names)
        )
    if odd := [step for step in changes if has_findings(step)]:
        return say("The scan flagged {names} for review", names=_names(odd))
    return ""


def _names(steps: Iterable[ChangeStep]) -> str:
    return names_of([step.id for step in steps])


def _weight(step: ChangeStep) -> int:
    """Sort key: steps that need attention first."""
    if step.kind in ("refused", "same"):
        return 4 if step.kind == "same" else 1
    if step.blocked:
        return 0
    return 2 if has_findings(step) or step.kind in ("replace", "remove") else 3


def _title(plan: ChangePlan) -> str:
    names = _names(plan.changes or plan.steps)
    if plan.op == "remove":
        return say("Remove {names}?", names=names)
    if plan.op == "lock":
        return say("Keep your changes to {names}?", names=names)
    if plan.op == "install":
        return say("Restore {names}?", names=names)
    return say("Preview import")


def _confirm_label(plan: ChangePlan, ticked: int) -> str:
    if plan.op != "import":
        words = {"remove": say("Remove"), "lock": say("Keep changes"), "install": say("Restore")}
        return words.get(plan.op, say("Save"))
    return install_words(ticked)


def install_words(count: int | str) -> str:
    """Return the label of the button that installs some skills."""
    return say("Install 1 skill") if count == 1 else say("Install {count} skills", count=count)


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
        "replace": say("changed"),
        "remove": say("removed"),
        "same": say("nothing new"),
        "refused": say("refused"),
    }[step.kind]


def _warning(plan: ChangePlan, step: ChangeStep) -> str:
    if step.kind != "replace" or plan.op in ("edit", "lock") or is_installed(step):
        return ""
    if plan.op == "install" or loses_edits(step) or step.before is None:
        return say("Your edits will be overwritten")
    return say("The installed version will be overwritten")


def _rows(rows: Iterable[tuple[str, Sequence[str], str]]) -> Iterable[DifferenceRow]:
    for title, items, tone in rows:
        if items:
            more = max(0, len(items) - MAX_ITEMS_SHOWN)
            yield DifferenceRow(title, tuple(items[:MAX_ITEMS_SHOWN]), more, tone)


def _inventory(step: ChangeStep) -> Iterable[tuple[str, Sequence[str], str]]:
    if step.kind == "add" and step.report is not None:
        found = step.report.inventory
        yield say("programs"), found.programs, "warn"
        yield say("hosts"), found.hosts, "warn"
        yield say("secrets"), found.secrets, "warn"


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
    step = plan.steps[at] if 0 <= at < len(plan.steps) else None
    if step is None or not any(file.path == path for file in _files(plan, step)):
        raise NotFound(say("There is no such file in this change"))
    return diff_lines(path, patch_one(*step_trees(plan, step), path))


def step_trees(plan: ChangePlan, step: ChangeStep) -> tuple[Tree | None, Tree | None]:
    """Return the files of a skill before and after a step; None where there are none."""
    old: Tree | None = None
    if step.kind in ("replace", "remove"):
        old = step.old or FolderTree(plan.scope.target(step.id))
    new = FolderTree(step.staged) if step.staged and step.kind != "remove" else None
    return old, new


# --- what was done --------------------------------------------------------------------------


def result_words(plan: ChangePlan, receipt: Receipt) -> list[str]:
    """Return what was done, one sentence for each kind of change; empty when nothing was."""

    def names(*kinds: Kind) -> str:
        return names_of([step.id for step in receipt.done if step.kind in kinds])

    every = names("add", "replace", "remove", "same")
    found = {
        "add": say("Added: {names}", names=every),
        "remove": say("Removed: {names}", names=every),
        "update": say("Updated: {names}", names=every),
        "edit": say("Saved: {names}", names=every),
        "lock": say("Locked: {names}", names=every),
        "install": say("Installed: {names}", names=every),
        "rename": say("Renamed: {old} to {names}", names=names("add"), old=names("remove")),
    }
    if plan.op != "import":
        return [found.get(plan.op, every)] if receipt.done else []
    new, old = names("add", "remove", "same"), names("replace")
    words = [say("Installed: {names}", names=new)] if new else []
    return words + ([say("Replaced: {names}", names=old)] if old else [])


def done_words(plan: ChangePlan, receipt: Receipt) -> tuple[str, tuple[str, ...]]:
    """Return one sentence about what was done, and further lines."""
    words, *more = result_words(plan, receipt) or [say("Nothing was changed")]
    if receipt.left:
        left = names_of([step.id for step in receipt.left])
        more.append(say("Blocked by the scan: {names}", names=left))
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
    return History(scope.name, scope.title, scope.place, past_changes(entries), trouble, hint)


def past_changes(entries: Sequence[HistoryEntry]) -> tuple[PastChange, ...]:
    """Return one row for each change, newest first; an undo is part of the row of its change."""
    undo = next((one.number for one in entries if one.state == "done"), 0)
    redo = next((one.number for one in entries if one.state == "undone"), 0)
    latest: dict[int, HistoryEntry] = {}
    known = {one.number: one for one in entries}
    for one in reversed(entries):
        latest[_original_number(one, known)] = one
    return tuple(
        _past(one, latest[one.number], undo, redo)
        for one in entries
        if _original_number(one, known) == one.number
    )


def _original_number(entry: HistoryEntry, known: dict[int, HistoryEntry]) -> int:
    """The number of the change that a chain of undo and redo entries is about."""
    while entry.of in known:
        entry = known[entry.of]
    return entry.number


def _past(entry: HistoryEntry, latest: HistoryEntry, undo: int, redo: int) -> PastChange:
    if latest.op == "undo":
        words, tone = say("Undone"), "warn"
    elif latest.op == "redo":
        words, tone = say("Done"), "good"
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
    try:
        then = datetime.fromisoformat(time).astimezone()
    except ValueError:
        return time
    today = then.date() == datetime.now().astimezone().date()
    return then.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")
