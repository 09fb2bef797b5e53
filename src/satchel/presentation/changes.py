"""A plan of changes and its result, as a page and the terminal show them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.errors import EditConflict, NameTaken, NotFound, Refused
from satchel.i18n import render, say
from satchel.presentation.change_words import (
    difference_rows,
    file_difference_rows,
    join_ids,
    step_summary,
)
from satchel.presentation.diffs import parse_diff
from satchel.presentation.findings import TONES, show_finding
from satchel.presentation.skill_lookup import scope_folder, scope_words
from satchel.skill.file_tree import FolderTree
from satchel.store.patch import file_patch
from satchel.store.plan import verdict_label

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from satchel.presentation.diffs import Diff
    from satchel.presentation.findings import FindingShown
    from satchel.skill.file_tree import Tree
    from satchel.store.plan import ChangePlan, ChangeStep, Kind
    from satchel.store.store import Store
    from satchel.store.transaction import Receipt

MAX_STEPS_SHOWN = 400
MAX_FILES_SHOWN = 200
MAX_ITEMS_SHOWN = 12
MAX_FINDINGS_SHOWN = 60
HIDDEN_SKILLS = "*"
"""The value of the checkbox that selects the skills that are not shown."""
_TONES = {"add": "good", "replace": "warn", "remove": "bad", "same": "", "refused": "bad"}


class DifferenceRow(NamedTuple):
    """One kind of difference between two versions of a skill."""

    title: str
    items: tuple[str, ...]
    hidden_count: int
    tone: str


class FileChangeRow(NamedTuple):
    """One added, removed or changed file."""

    path: str
    kind: Literal["added", "removed", "changed"]
    label: str
    symbol: str


class StepShown(NamedTuple):
    """The change to one skill."""

    position: int
    kind: Kind
    label: str
    tone: str
    id: str
    description: str
    summary: str
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
    hidden_files_count: int
    verdict: str
    verdict_label: str
    verdict_tone: str
    findings: tuple[FindingShown, ...]
    hidden_findings_count: int
    unscanned: tuple[tuple[str, str], ...]
    warning: str
    """What would be lost; empty when nothing is."""
    suggested_id: str
    """An id to use instead, when the name is that of an installed skill."""
    conflict: str
    """The lines that the user and the source both changed; empty without a conflict."""


class PlanShown(NamedTuple):
    """A plan before it is applied."""

    op: str
    title: str
    location: str
    """The scope and its folder."""
    confirm_label: str
    steps: tuple[StepShown, ...]
    """Without skills whose content is installed already."""
    hidden_count: int
    selected_ids: frozenset[str]
    """Ids that are selected at first: new skills that the scan does not block."""
    notes: tuple[str, ...]
    """Notes of several skills."""
    installed_ids: tuple[str, ...]
    """Ids whose content is installed already."""
    blocked_ids: tuple[str, ...]
    has_checkboxes: bool
    """Whether each skill has a checkbox."""
    is_confirmable: bool
    """Whether there is anything to confirm."""


# --- a plan ---------------------------------------------------------------------------------


def show_plan(plan: ChangePlan, store: Store) -> PlanShown:
    """Return everything a person should see before confirming a plan."""
    steps = _uninstalled(plan.steps)
    changes = _uninstalled(plan.changes)
    has_checkboxes = plan.op == "import" and len(changes) > 1
    selected_ids = [
        step.id
        for step in changes
        if not has_checkboxes or (step.kind == "add" and not step.blocked)
    ]
    common_notes = _common_notes(steps)
    indexes = [plan.steps.index(step) for step in steps_to_show(plan)]
    views = [show_step(plan, index, MAX_FINDINGS_SHOWN) for index in indexes]
    return PlanShown(
        op=plan.op,
        title=_title(plan),
        location=scope_words(plan.scope.name) + say(": ") + scope_folder(store),
        confirm_label=_confirm_label(plan, len(selected_ids)),
        steps=tuple(
            view._replace(notes=tuple(note for note in view.notes if note not in common_notes))
            for view in views
        ),
        hidden_count=len(steps) - len(indexes),
        selected_ids=frozenset(selected_ids),
        notes=common_notes,
        installed_ids=tuple(step.id for step in plan.steps if is_installed(step)),
        blocked_ids=tuple(step.id for step in plan.blocked),
        has_checkboxes=has_checkboxes,
        is_confirmable=bool(changes),
    )


def _uninstalled(steps: Iterable[ChangeStep]) -> list[ChangeStep]:
    return [step for step in steps if not is_installed(step)]


def _common_notes(steps: Iterable[ChangeStep]) -> tuple[str, ...]:
    """Return the notes of more than one step."""
    counts = Counter(note for step in steps for note in dict.fromkeys(step.notes))
    return tuple(note for note, count in counts.items() if count > 1)


def is_installed(step: ChangeStep) -> bool:
    """Whether the content of a skill is installed already."""
    if step.kind == "same":
        return True
    tree = step.tree_digest
    return step.kind == "replace" and tree is not None and tree.digest == step.was


def unselected_ids(plan: ChangePlan, selected: Collection[str]) -> tuple[str, ...]:
    """Return the ids of an import that stay unchanged.

    Args:
        plan: The plan; it stays unchanged as a whole unless it is an import.
        selected: The values of the selected checkboxes; a single skill has none.
    """
    if plan.op != "import":
        return ()
    install_ids = [step.id for step in _uninstalled(plan.changes)]
    if len(install_ids) > 1:
        shown_ids = {step.id for step in steps_to_show(plan)}
        checkboxes = {
            skill_id: skill_id if skill_id in shown_ids else HIDDEN_SKILLS
            for skill_id in install_ids
        }
        install_ids = [skill_id for skill_id in install_ids if checkboxes[skill_id] in selected]
    return tuple(step.id for step in plan.changes if step.id not in install_ids)


def steps_to_show(plan: ChangePlan) -> list[ChangeStep]:
    """Return the steps that a page shows, those that need attention first."""
    return sorted(_uninstalled(plan.steps), key=_attention_rank)[:MAX_STEPS_SHOWN]


def has_findings(step: ChangeStep) -> bool:
    """Whether the scan of a step needs attention."""
    return step.report is not None and step.report.verdict != "no findings"


def has_new_powers(step: ChangeStep) -> bool:
    """Whether an update brings new programs, hosts, secrets or permissions."""
    difference = step.difference
    additions = difference.programs or difference.hosts or difference.secrets or difference.powers
    return step.kind == "replace" and bool(additions)


def loses_edits(step: ChangeStep) -> bool:
    """Whether a step overwrites edits of an installed skill."""
    return step.before is not None and step.was != step.before.tree and not step.keeps_edits


def reason_to_confirm(plan: ChangePlan, accept_risk: str = "") -> str:
    """Return why a plan needs a confirmation; empty when it does not."""
    changes = [step for step in plan.changes if accept_risk or not step.blocked]
    if plan.op == "rename" or not changes:
        return ""
    if plan.op == "lock":
        return say("{names} will be locked as on the disk now", names=_join_step_ids(changes))
    if plan.blocked and accept_risk:
        return say("The scan blocks {names}", names=_join_step_ids(plan.blocked))
    removed = _steps_of_kind(changes, "remove")
    if removed and plan.op == "remove":
        return say("{names} will be removed", names=_join_step_ids(removed))
    if replaced := _steps_of_kind(changes, "replace"):
        return _replacement_reason(plan, replaced)
    if flagged := [step for step in changes if has_findings(step)]:
        return say("The scan flagged {names} for review", names=_join_step_ids(flagged))
    return ""


def _steps_of_kind(steps: Iterable[ChangeStep], kind: Kind) -> list[ChangeStep]:
    return [step for step in steps if step.kind == kind]


def _replacement_reason(plan: ChangePlan, replaced: Sequence[ChangeStep]) -> str:
    """Return what would be replaced: edits, or installed skills."""
    edited = [step for step in replaced if loses_edits(step)]
    if edited and plan.op != "edit":
        return say("Edits in {names} will be replaced", names=_join_step_ids(edited))
    names = _join_step_ids(replaced)
    if plan.op in ("edit", "update"):
        return say("{names} will be updated", names=names)
    return say("{names} will be overwritten", names=names)


def _join_step_ids(steps: Iterable[ChangeStep]) -> str:
    return join_ids([step.id for step in steps])


def _attention_rank(step: ChangeStep) -> int:
    """Return the sort key that puts steps first that need attention."""
    if step.kind == "same":
        return 4
    if step.kind == "refused":
        return 1
    if step.blocked:
        return 0
    return 2 if has_findings(step) or step.kind in ("replace", "remove") else 3


def _title(plan: ChangePlan) -> str:
    names = _join_step_ids(plan.changes or plan.steps)
    if plan.op == "remove":
        return say("Remove {names}?", names=names)
    if plan.op == "lock":
        return say("Keep your changes to {names}?", names=names)
    if plan.op == "install":
        return say("Restore {names}?", names=names)
    return say("Preview import")


def _confirm_label(plan: ChangePlan, selected_count: int) -> str:
    if plan.op != "import":
        labels = {"remove": say("Remove"), "lock": say("Keep changes"), "install": say("Restore")}
        return labels.get(plan.op, say("Save"))
    return install_label(selected_count)


def install_label(count: int | str) -> str:
    """Return the label of the button that installs some skills."""
    return say("Install 1 skill") if count == 1 else say("Install {count} skills", count=count)


def show_step(plan: ChangePlan, index: int, max_findings: int | None = None) -> StepShown:
    """Return the record of one step.

    Args:
        plan: The plan.
        index: The index of the step.
        max_findings: The number of findings to include; None for all.
    """
    step = plan.steps[index]
    report = step.report if step.kind != "same" else None
    all_findings = report.findings if report else ()
    findings = [finding for finding in all_findings if finding.severity != "note"]
    shown_findings = findings[:max_findings]
    files = tuple(_file_changes(plan, step))
    return StepShown(
        position=index,
        kind=step.kind,
        label=_kind_label(step),
        tone=_TONES[step.kind],
        id=step.id,
        description=step.description,
        summary=step_summary(step),
        error=step.error.message if step.error is not None else "",
        hint=step.error.hint if step.error is not None else "",
        notes=step.notes,
        file_rows=tuple(_shorten_rows(file_difference_rows(step.difference))),
        rows=tuple(_shorten_rows(difference_rows(step.difference))),
        inventory=tuple(_shorten_rows(_inventory_rows(step))),
        fields=step.difference.fields,
        files=files[:MAX_FILES_SHOWN],
        hidden_files_count=max(0, len(files) - MAX_FILES_SHOWN),
        verdict=report.verdict if report else "",
        verdict_label=verdict_label(report.verdict) if report else "",
        verdict_tone=TONES[report.verdict] if report else "",
        findings=tuple(map(show_finding, shown_findings)),
        hidden_findings_count=len(findings) - len(shown_findings),
        unscanned=tuple((path, render(why)) for path, why in report.unscanned) if report else (),
        warning=_warning(plan, step),
        suggested_id=step.error.suggestion if isinstance(step.error, NameTaken) else "",
        conflict=step.error.marked if isinstance(step.error, EditConflict) else "",
    )


def _kind_label(step: ChangeStep) -> str:
    return {
        "add": say("new"),
        "replace": say("changed"),
        "remove": say("removed"),
        "same": say("nothing new"),
        "refused": say("refused"),
    }[step.kind]


def _warning(plan: ChangePlan, step: ChangeStep) -> str:
    """Return what an update would lose; empty when it loses nothing."""
    if step.kind != "replace" or plan.op in ("edit", "lock") or is_installed(step):
        return ""
    if step.keeps_edits:
        return ""
    if plan.op == "install" or loses_edits(step) or step.before is None:
        return say("Your edits will be overwritten")
    return say("The installed version will be overwritten")


def _shorten_rows(rows: Iterable[tuple[str, Sequence[str], str]]) -> Iterable[DifferenceRow]:
    """Yield the rows that have items, each with its first ones."""
    for title, items, tone in rows:
        if items:
            hidden_count = max(0, len(items) - MAX_ITEMS_SHOWN)
            yield DifferenceRow(title, tuple(items[:MAX_ITEMS_SHOWN]), hidden_count, tone)


def _inventory_rows(step: ChangeStep) -> Iterable[tuple[str, Sequence[str], str]]:
    """Yield title, items and tone of what a new skill brings."""
    if step.kind == "add" and step.report is not None:
        inventory = step.report.inventory
        yield say("programs"), inventory.programs, "warn"
        yield say("hosts"), inventory.hosts, "warn"
        yield say("secrets"), inventory.secrets, "warn"


def _file_changes(plan: ChangePlan, step: ChangeStep) -> Iterable[FileChangeRow]:
    difference = step.difference
    added, removed = difference.added, difference.removed
    if step.kind == "add" and step.tree_digest is not None:
        added = tuple(step.tree_digest.files)
    elif step.kind == "remove":
        removed = tuple(_installed_paths(plan, step))
    elif step.kind in ("same", "refused"):
        return
    yield from (FileChangeRow(path, "changed", say("changed"), "~") for path in difference.changed)
    yield from (FileChangeRow(path, "added", say("new"), "+") for path in added)
    yield from (FileChangeRow(path, "removed", say("removed"), "−") for path in removed)


def _installed_paths(plan: ChangePlan, step: ChangeStep) -> list[str]:
    try:
        return [file.path for file in FolderTree(plan.scope.target(step.id)).files]
    except (OSError, Refused):
        return []


# --- diffs of a plan ---------------------------------------------------------------------------


def show_diff(plan: ChangePlan, index: int, path: str) -> Diff:
    """Return the diff of one file of one skill.

    Raises:
        NotFound: the plan has no such skill or file.
    """
    step = plan.steps[index] if 0 <= index < len(plan.steps) else None
    if step is None or not any(file.path == path for file in _file_changes(plan, step)):
        raise NotFound(say("There is no such file in this change"))
    return parse_diff(path, file_patch(*step_trees(plan, step), path))


def step_trees(plan: ChangePlan, step: ChangeStep) -> tuple[Tree | None, Tree | None]:
    """Return the files of a skill before and after a step; None where there are none."""
    old: Tree | None = None
    if step.kind in ("replace", "remove"):
        old = step.old or FolderTree(plan.scope.target(step.id))
    new = FolderTree(step.staged) if step.staged and step.kind != "remove" else None
    return old, new


# --- the result --------------------------------------------------------------------------


def result_sentences(plan: ChangePlan, receipt: Receipt) -> list[str]:
    """Return what was done, one sentence for each kind of change; empty when nothing was."""

    def names(*kinds: Kind) -> str:
        return join_ids([step.id for step in receipt.done if step.kind in kinds])

    all_names = names("add", "replace", "remove", "same")
    sentences = {
        "add": say("Added: {names}", names=all_names),
        "remove": say("Removed: {names}", names=all_names),
        "update": say("Updated: {names}", names=all_names),
        "edit": say("Saved: {names}", names=all_names),
        "lock": say("Locked: {names}", names=all_names),
        "install": say("Installed: {names}", names=all_names),
        "rename": say("Renamed: {old} to {names}", names=names("add"), old=names("remove")),
    }
    if plan.op != "import":
        return [sentences.get(plan.op, all_names)] if receipt.done else []
    installed, replaced = names("add", "remove", "same"), names("replace")
    results: list[str] = []
    if installed:
        results.append(say("Installed: {names}", names=installed))
    if replaced:
        results.append(say("Replaced: {names}", names=replaced))
    return results


def result_message(plan: ChangePlan, receipt: Receipt) -> tuple[str, tuple[str, ...]]:
    """Return one sentence about what was done, and further lines."""
    headline, *details = result_sentences(plan, receipt) or [say("Nothing was changed")]
    if receipt.left:
        blocked_names = join_ids([step.id for step in receipt.left])
        details.append(say("Blocked by the scan: {names}", names=blocked_names))
    details += [line for line in (*receipt.trouble, *receipt.notes, *receipt.repaired) if line]
    return headline, tuple(details)
