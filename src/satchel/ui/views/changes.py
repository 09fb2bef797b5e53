"""What would a change do, and what can be taken back? A plan and the history, as records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import render, say
from satchel.errors import NotFound, Refused
from satchel.presentation import about_step, change_word, difference_rows, history_words, names_of
from satchel.skill.tree import FolderTree
from satchel.store.plan import verdict_words
from satchel.ui.views.findings import MOODS, show_finding
from satchel.ui.views.skills import scope_place, scope_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.skill.tree import Tree
    from satchel.store.history import Entry
    from satchel.store.plan import Plan, Step
    from satchel.store.store import Receipt, Store
    from satchel.ui.views.findings import FindingShown
    from satchel.ui.views.skills import ScopeShown

LINES = 2_000
"""Lines of a difference that are shown."""


class DiffLine(NamedTuple):
    """One line of a difference."""

    kind: Literal["same", "add", "del", "hunk", "note"]
    old: str
    new: str
    text: str


class Diff(NamedTuple):
    """How one file would change."""

    path: str
    lines: tuple[DiffLine, ...]
    more: int


def diff_of_texts(path: str, before: str, after: str) -> Diff:
    """The difference of two versions of a text."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="")
    return diff_lines(path, "\n".join(lines))


def diff_lines(path: str, patch: str) -> Diff:
    """A unified diff with the numbers of its lines."""
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
    return Diff(path, tuple(rows[:LINES]), max(0, len(rows) - LINES))


def _note_words(text: str) -> str:
    """What a patch says about itself, in the reader's language."""
    import re

    if found := re.fullmatch(r"binary: (\d+) -> (\d+) bytes", text):
        return say("no text: {before} → {after} bytes", before=found[1], after=found[2])
    if text in ("No newline at end of file", "only the permission to execute changes"):
        return say(text)
    return text


SHOWN = 60
"""Skills of a plan that are shown one by one; what needs a look comes first."""
MOST_SHOWN = 400
FILES = 200
"""Files of one skill that are named."""
NAMED = 12
"""Hosts, secrets and the like that are named."""
FINDINGS = 60
TICKS = 8
"""So many overwritten skills are ticked one by one; more are ticked together."""
EVERY = "*"
"""The tick for all of them together."""
_TONES = {"add": "good", "replace": "warn", "remove": "bad", "same": "", "refused": "bad"}
_PAST_TONES = {"done": "good", "undone": "warn", "past": "", "damaged": "bad"}


class Row(NamedTuple):
    """One line about a difference."""

    title: str
    items: tuple[str, ...]
    more: int
    tone: str


class FileRow(NamedTuple):
    """One file that comes, goes or changes."""

    path: str
    kind: Literal["added", "removed", "changed"]
    words: str
    sign: str


class StepShown(NamedTuple):
    """What would happen to one skill."""

    at: int
    """Its place in the plan."""
    kind: str
    words: str
    tone: str
    id: str
    name: str
    description: str
    about: str
    """Files, programs, licence, signer."""
    error: str
    hint: str
    notes: tuple[str, ...]
    rows: tuple[Row, ...]
    fields: tuple[tuple[str, str, str], ...]
    files: tuple[FileRow, ...]
    more_files: int
    verdict: str
    verdict_words: str
    verdict_tone: str
    findings: tuple[FindingShown, ...]
    more_findings: int
    unscanned: tuple[tuple[str, str], ...]
    blocked: bool
    warning: str
    """What would be lost, in plain words; empty when nothing is."""


class PlanShown(NamedTuple):
    """A change before it is made."""

    op: str
    title: str
    place: str
    """Where the skills are."""
    yes: str
    """What the button says."""
    counts: tuple[tuple[str, int, str], ...]
    """Word, how many, tone."""
    steps: tuple[StepShown, ...]
    more: int
    overwrites: tuple[str, ...]
    """Ids that need their own tick; `EVERY` alone when they are many."""
    overwritten: int
    blocked: tuple[str, ...]
    doable: bool
    """There is something to say yes to."""
    yara: bool
    """Whether YARA looked too; True when nothing was scanned."""


class Past(NamedTuple):
    """One change of the past."""

    number: int
    when: str
    """By the clock of this machine."""
    exact: str
    """The same in UTC."""
    what: str
    ids: tuple[str, ...]
    state: str
    tone: str
    can: Literal["", "undo", "redo"]
    """What may be done about it now."""
    turn: int
    """The entry that this would be done to."""


class History(NamedTuple):
    """The changes of one scope, newest first."""

    scope: str
    title: str
    place: str
    rows: tuple[Past, ...]
    trouble: str
    """Why it cannot be read."""
    hint: str


# --- a plan ---------------------------------------------------------------------------------


def show_plan(plan: Plan, store: Store) -> PlanShown:
    """Everything that a person should know before saying yes."""
    weights = [_weight(step) for step in plan.steps]
    order = sorted(range(len(plan.steps)), key=lambda at: (weights[at], at))
    # Whatever needs a look is shown, however many there are, up to a page that nobody could read.
    room = min(max(SHOWN, sum(weight < 3 for weight in weights)), MOST_SHOWN)
    reports = [step.report for step in plan.changes if step.report is not None]
    ids = replaced_by(plan)
    return PlanShown(
        plan.op,
        _title(plan),
        f"{scope_words(plan.scope.name)}: {scope_place(store)}",
        _yes(plan),
        _counts(plan),
        tuple(show_step(plan, at) for at in order[:room]),
        max(0, len(order) - room),
        ids if len(ids) <= TICKS else (EVERY,),
        len(ids),
        _blocked(plan),
        bool(plan.changes),
        not reports or any("yara" in report.engines for report in reports),
    )


def replaced_by(plan: Plan) -> tuple[str, ...]:
    """Ids that the plan would overwrite, each of which somebody must want.

    What was asked for one skill by its name (an edit, a lock) needs no second question.
    """
    if plan.op != "import":
        return ()
    return tuple(step.id for step in plan.of_kind("replace"))


def left_alone(plan: Plan, ticked: Sequence[str]) -> tuple[str, ...]:
    """Ids that stay as they are, since nobody ticked that they may be overwritten."""
    ids = replaced_by(plan)
    if len(ids) > TICKS:
        return () if EVERY in ticked else ids
    return tuple(one for one in ids if one not in ticked)


def is_idle(plan: Plan, leave: Sequence[str]) -> bool:
    """Whether nothing of a plan would be done, since nobody ticked what it overwrites."""
    return bool(leave) and all(step.id in leave for step in plan.changes)


def _weight(step: Step) -> int:
    """What a person must see comes first."""
    if step.kind in ("refused", "same"):
        return 4 if step.kind == "same" else 1
    if step.blocked:
        return 0
    odd = step.report is not None and step.report.verdict != "no findings"
    return 2 if odd or step.kind in ("replace", "remove") else 3


def _title(plan: Plan) -> str:
    """A question about what would change; what is refused or as it is already is not counted."""
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


def _blocked(plan: Plan) -> tuple[str, ...]:
    return tuple(step.id for step in plan.blocked)


def _yes(plan: Plan) -> str:
    count = len(plan.changes)
    if plan.op == "remove":
        return say("Delete") if count == 1 else say("Delete {count}", count=count)
    if plan.op == "lock":
        return say("Keep it")
    if plan.op == "install":
        return say("Bring it back")
    # How many come depends on what is ticked, and on a reason that is typed, or not.
    if count == 1 or plan.blocked or plan.of_kind("replace"):
        return say("Install") if plan.of_kind("add") or plan.blocked else say("Replace")
    return say("Install {count}", count=count)


def _counts(plan: Plan) -> tuple[tuple[str, int, str], ...]:
    words = {
        "add": say("new"),
        "replace": say("there already"),
        "remove": say("deleted"),
        "same": say("as they are"),
        "refused": say("refused"),
    }
    every = ((kind, sum(step.kind == kind for step in plan.steps)) for kind in words)
    return tuple((words[kind], count, _TONES[kind]) for kind, count in every if count)


def show_step(plan: Plan, at: int) -> StepShown:
    """One skill of a plan."""
    step = plan.steps[at]
    report = step.report if step.kind != "same" else None
    findings = [one for one in report.findings if one.severity != "note"] if report else []
    files = tuple(_files(plan, step))
    return StepShown(
        at,
        step.kind,
        _kind_words(step),
        _TONES[step.kind],
        step.id,
        step.name,
        step.description,
        about_step(step),
        step.error.message if step.error is not None else "",
        step.error.hint if step.error is not None else "",
        step.notes,
        tuple(_rows(step)),
        step.difference.fields,
        files[:FILES],
        max(0, len(files) - FILES),
        report.verdict if report else "",
        verdict_words(report.verdict) if report else "",
        MOODS[report.verdict] if report else "",
        tuple(show_finding(one) for one in findings[:FINDINGS]),
        max(0, len(findings) - FINDINGS),
        tuple((path, render(why)) for path, why in report.unscanned) if report else (),
        step.blocked and step.kind in ("add", "replace"),
        _warning(plan, step),
    )


def _kind_words(step: Step) -> str:
    return {
        "add": say("new"),
        "replace": say("there already"),
        "remove": say("will be deleted"),
        "same": say("nothing new"),
        "refused": say("refused"),
    }[step.kind]


def _warning(plan: Plan, step: Step) -> str:
    """What would be lost, where something would."""
    if step.kind != "replace" or plan.op in ("edit", "lock"):
        return ""
    if plan.op == "install":
        return say("What you changed in `{name}` is overwritten", name=step.id)
    if step.before is not None and step.was != step.before.tree:
        return say("`{name}` is there already, with edits of yours that would be overwritten",
                   name=step.id)  # fmt: skip
    if step.before is None:
        return say("`{name}` is there already, written here, and would be overwritten",
                   name=step.id)  # fmt: skip
    return say("`{name}` is there already and would be overwritten", name=step.id)


def _rows(step: Step) -> Iterable[Row]:
    for title, items, tone in difference_rows(step.difference):
        if items:
            yield Row(title, tuple(items[:NAMED]), max(0, len(items) - NAMED), tone)
    if step.kind == "add" and step.report is not None:
        found = step.report.inventory
        for title, items in (
            (say("programs"), found.programs),
            (say("hosts it names"), found.hosts),
            (say("secrets it reads"), found.secrets),
        ):
            if items:
                yield Row(title, items[:NAMED], max(0, len(items) - NAMED), "warn")


def _files(plan: Plan, step: Step) -> Iterable[FileRow]:
    difference = step.difference
    added, removed = difference.added, difference.removed
    if step.kind == "add" and step.seal is not None:
        added = tuple(step.seal.files)
    elif step.kind == "remove":
        removed = tuple(_present(plan, step))
    elif step.kind in ("same", "refused"):
        return
    yield from (FileRow(path, "changed", say("changed"), "~") for path in difference.changed)
    yield from (FileRow(path, "added", say("new"), "+") for path in added)
    yield from (FileRow(path, "removed", say("removed"), "−") for path in removed)


def _present(plan: Plan, step: Step) -> list[str]:
    try:
        return [file.path for file in FolderTree(plan.scope.target(step.id)).files]
    except (OSError, Refused):
        return []


# --- line by line ---------------------------------------------------------------------------


def show_diff(plan: Plan, at: int, path: str) -> Diff:
    """How one file of one skill would change.

    Raises:
        NotFound: the plan has no such skill or file.
    """
    from satchel.store.plan import patch_one

    step = plan.steps[at] if 0 <= at < len(plan.steps) else None
    if step is None or not any(file.path == path for file in _files(plan, step)):
        raise NotFound(say("There is no such file in this change"), say("Look at the change again"))
    old: Tree | None = None
    if step.kind in ("replace", "remove"):
        old = step.old or FolderTree(plan.scope.target(step.id))
    new = FolderTree(step.staged) if step.staged and step.kind != "remove" else None
    return diff_lines(path, patch_one(old, new, path))


# --- what was done --------------------------------------------------------------------------


def done_words(plan: Plan, receipt: Receipt) -> tuple[str, tuple[str, ...]]:
    """What was done: one sentence, and what else is worth knowing."""
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
    """The changes of one scope."""
    trouble, hint = scope.trouble, scope.hint
    entries: list[Entry] = []
    try:
        entries = scope.store.history() if scope.store is not None else []
    except Refused as exc:
        trouble, hint = exc.message, exc.hint
    undo = next((one.number for one in entries if one.state == "done"), 0)
    redo = next((one.number for one in entries if one.state == "undone"), 0)
    # An undoing is told beside what it took back, not as a change of its own.
    latest: dict[int, Entry] = {}
    known = {one.number: one for one in entries}
    for one in reversed(entries):
        latest[_first(one, known)] = one
    rows = tuple(
        _past(one, latest[one.number], undo, redo)
        for one in entries
        if _first(one, known) == one.number
    )
    return History(scope.name, scope.title, scope.place, rows, trouble, hint)


def _first(entry: Entry, known: dict[int, Entry]) -> int:
    """The number of the change that an undoing, or a doing again, is about."""
    while entry.of in known:
        entry = known[entry.of]
    return entry.number


def _past(entry: Entry, latest: Entry, undo: int, redo: int) -> Past:
    """One change, and what became of it."""
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
    return Past(
        entry.number, _clock(entry.time), exact, what, entry.ids, words, tone, can, latest.number
    )


def _clock(time: str) -> str:
    """A time of the history by the clock of this machine; the hour alone when it was today."""
    from datetime import datetime

    try:
        then = datetime.fromisoformat(time).astimezone()
    except ValueError:
        return time
    today = then.date() == datetime.now().astimezone().date()
    return then.strftime("%H:%M" if today else "%Y-%m-%d %H:%M")
