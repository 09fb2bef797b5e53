"""Pages of a pending plan, its confirmation, and undo."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel.errors import Blocked, Incomplete, InvalidInput, SatchelError
from satchel.i18n import say
from satchel.presentation.change_words import undo_sentence
from satchel.presentation.changes import (
    HIDDEN_SKILLS,
    install_label,
    result_message,
    show_diff,
    show_plan,
    unselected_ids,
)
from satchel.presentation.drafts import Remark, error_remark
from satchel.presentation.history import show_history
from satchel.presentation.skill_lookup import find_editable_skill, find_skill, show_scopes
from satchel.presentation.skills import row_key
from satchel.store.merge import Side
from satchel.store.transaction import Receipt
from satchel.store.undo import Undone
from satchel.ui.flash import Flash
from satchel.ui.pending import PendingPlan, expired_error
from satchel.ui.state import release
from satchel.ui.templating import address, app_state, flash_address, go_to, page, wants_part

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from satchel.store.plan import ChangePlan
    from satchel.store.store import Store
    from satchel.ui.state import AppState

router = APIRouter()
Scope = Literal["project", "global"]


@router.post("/skills/remove")
def remove(request: Request, ref: Annotated[str, Query(max_length=4_096)]) -> Response:
    """Plan the removal of one skill, and show the plan."""
    return _show_new_plan(request, ref, "remove")


@router.post("/plans/lock")
@router.post("/plans/restore")
def plan_existing(request: Request, ref: Annotated[str, Query(max_length=4_096)]) -> Response:
    """Plan to record or to revert the edits of an imported skill, and show the plan."""
    op = "lock" if request.url.path == "/plans/lock" else "install"
    return _show_new_plan(request, ref, op)


def _show_new_plan(request: Request, ref: str, op: str) -> Response:
    state = app_state(request)
    skill = find_editable_skill(state.satchel, ref)
    store, ids = state.satchel.store_of(skill), [skill.head.id]
    if op == "lock":
        plan = store.plan_lock(ids)
    elif op == "install":
        # Users on other machines must not fetch with the owner's git, keys and folders.
        plan = store.plan_install(ids, frozen=True, fetch=not state.access.has_remote_users)
    else:
        plan = store.plan_remove(ids)
    return go_to(request, f"/plans/{state.plans.add(PendingPlan(store, plan))}")


@router.get("/plans/{key}")
def plan_page(request: Request, key: str) -> Response:
    """Show a plan and its scan."""
    state = app_state(request)
    if result := state.results.get(key):
        return go_to(request, result)
    return _plan_page(request, key, state.plans.require(key))


@router.get("/plans/{key}/yes")
@router.get("/plans/{key}/no")
def reload_answer(request: Request, key: str) -> Response:
    """Redirect to the plan when the page of an answer is loaded again."""
    return go_to(request, f"/plans/{quote(key, safe='')}")


@router.get("/plans/{key}/diff")
def diff(
    request: Request,
    key: str,
    step: Annotated[int, Query(ge=0)],
    path: Annotated[str, Query(max_length=4_096)],
) -> Response:
    """Show the diff of one file."""
    pending = app_state(request).plans.require(key)
    try:
        difference = show_diff(pending.plan, step, path)
    except OSError as exc:  # the plan was dropped while it was read
        raise expired_error() from exc
    if wants_part(request):
        return page(request, "change/diff.html", diff=difference)
    return page(request, "change/diff_page.html", diff=difference, key=key)


@router.post("/plans/{key}/yes")
def confirm(
    request: Request,
    key: str,
    accept_risk: Annotated[str, Form(max_length=500)] = "",
    selected: Annotated[list[str] | None, Form(alias="take")] = None,
) -> Response:
    """Apply a plan; of an import, the selected skills."""
    state = app_state(request)
    with state.confirming:
        if result := state.results.get(key):  # a second click
            return go_to(request, result)
        return _confirm(request, state, key, accept_risk, selected or ())


def _confirm(
    request: Request, state: AppState, key: str, reason: str, selected: Sequence[str]
) -> Response:
    pending = state.plans.require(key)
    plan = pending.plan
    excluded_ids = unselected_ids(plan, selected)
    if excluded_ids and len(excluded_ids) == len(plan.changes):
        error = error_remark(InvalidInput(say("No skill is selected")))
        return _plan_page(request, key, pending, error, 422, reason=reason, selected=selected)
    try:
        receipt = apply(state, key, reason, excluded_ids)
    except Blocked as exc:
        hint = say("To install it anyway, give a reason")
        error = error_remark(exc)._replace(fix=hint)
        return _plan_page(request, key, pending, error, 403, selected=selected)
    result = _result_address(request, pending.store, plan, receipt)
    state.results.add(result, key)
    return go_to(request, result)


@router.post("/plans/{key}/no")
def reject(request: Request, key: str) -> Response:
    """Drop a plan."""
    state = app_state(request)
    release(state.plans.pop(key))
    return go_to(request, "/skills")


@router.post("/plans/{key}/keep")
def keep_side(request: Request, key: str, side: Annotated[Side, Form(alias="keep")]) -> Response:
    """Plan an update again, with one side of its conflicts."""
    state = app_state(request)
    state.require_local_user(say("Skills cannot be updated here"), "satchel update")
    pending = state.plans.require(key)
    sides: dict[str, Side] = {step.id: side for step in pending.plan.steps}
    plan = pending.store.plan_update(sides, keep=sides)
    release(state.plans.pop(key))
    return go_to(request, f"/plans/{state.plans.add(PendingPlan(pending.store, plan))}")


@router.get("/history")
def history(request: Request) -> Response:
    """Show the history of changes."""
    histories = [show_history(scope) for scope in show_scopes(app_state(request).satchel)]
    return page(request, "change/history.html", histories=histories)


@router.post("/undo")
@router.post("/redo")
def undo(
    request: Request,
    number: Annotated[int, Form(ge=1)],
    scope: Annotated[Scope, Form()] = "project",
    return_path: Annotated[Literal["/skills", "/history"], Form(alias="back")] = "/skills",
    ref: Annotated[str, Form(max_length=4_096)] = "",
) -> Response:
    """Undo or redo the last change, if it is still the one that was shown."""
    state, redo = app_state(request), request.url.path == "/redo"
    undone = undo_change(state, state.satchel.store_to_undo(scope, redo=redo), number, redo=redo)
    flash = Flash(
        undo_sentence(undone, redo=redo),
        tuple(line for line in (*undone.trouble, *undone.notes, *undone.repaired) if line),
        "warn" if undone.trouble else "good",
        scope=scope,
        number=undone.number,
        is_undo=not redo,
    )
    if ref and _can_edit(state, ref):
        return go_to(request, flash_address(request, flash, "/skill/edit", ref=ref))
    return go_to(request, flash_address(request, flash, return_path))


def _can_edit(state: AppState, ref: str) -> bool:
    """Whether a skill exists and can be changed; an undo may have removed it."""
    try:
        state.satchel.store_of(find_editable_skill(state.satchel, ref))
    except SatchelError:
        return False
    return True


def _result_address(request: Request, store: Store, plan: ChangePlan, receipt: Receipt) -> str:
    """Return the URL that shows the result, with an undo button."""
    message, details = result_message(plan, receipt)
    installed_ids = [step.id for step in receipt.done if step.kind != "remove"]
    ref = ""
    if len(installed_ids) == 1:
        with suppress(SatchelError):  # it was removed meanwhile, or a setting excludes it
            folder = store.scope.target(installed_ids[0])
            ref = find_skill(app_state(request).satchel, folder).ref
    flash = Flash(
        message,
        details,
        "warn" if receipt.left or receipt.trouble or not receipt.done else "good",
        store.scope.name,
        receipt.number,
        links=((say("Open"), address("/skill", ref=ref)),) if ref else (),
    )
    anchor = f"#row-{row_key(ref)}" if ref else ""
    return flash_address(request, flash, "/skills", open=ref) + anchor


def _plan_page(
    request: Request,
    key: str,
    pending: PendingPlan,
    trouble: Remark | None = None,
    status: int = 200,
    *,
    reason: str = "",
    selected: Collection[str] | None = None,
) -> Response:
    try:
        plan_view = show_plan(pending.plan, pending.store)
    except OSError as exc:  # the plan was dropped while it was read
        raise expired_error() from exc
    return page(
        request,
        "change/plan.html",
        status=status,
        key=key,
        plan=plan_view,
        label=pending.label,
        trouble=trouble,
        hidden_skills=HIDDEN_SKILLS,
        install_label=install_label("{count}"),
        reason=reason,
        selected=plan_view.selected_ids if selected is None else selected,
    )


# --- applying a plan ----------------------------------------------------------------------


def apply(
    state: AppState, key: str, accept_risk: str = "", excluded_ids: Collection[str] = ()
) -> Receipt:
    """Apply a pending plan, release its files, and notify every page.

    Args:
        state: Holds the plan.
        key: The key of the plan.
        accept_risk: Why blocked skills are installed as well.
        excluded_ids: Ids that stay unchanged.

    Raises:
        NotFound: it is no longer pending.
        Blocked: nothing was changed, and it is still pending.
        SatchelError: it failed, or something changed meanwhile; the error states whether something
            was changed. It is no longer pending.
    """
    pending = state.plans.pop(key)
    try:
        reason = " ".join(accept_risk.split())
        receipt = _apply_in_store(pending.store, pending.plan, reason, excluded_ids)
    except Blocked:
        state.plans.add(pending, key)
        raise
    except BaseException:
        release(pending)
        raise
    release(pending)
    state.library_changed()
    return receipt


def apply_all(state: AppState, store: Store, plan: ChangePlan) -> Receipt:
    """Apply a plan completely or not at all, and notify every page. The caller closes it.

    Raises:
        SatchelError: a part of it is refused, or it failed. Nothing was changed.
    """
    store.require_complete(plan)
    receipt = _apply_in_store(store, plan)
    state.library_changed()
    return receipt


def undo_change(state: AppState, store: Store, number: int, *, redo: bool) -> Undone:
    """Undo or redo a change, and notify every page.

    Raises:
        SatchelError: it failed; the error states whether it was begun.
    """
    try:
        undone = store.undo(redo=redo, number=number)
    except Incomplete as exc:
        if not isinstance(exc.receipt, Undone):
            raise
        undone = exc.receipt
    state.library_changed()
    return undone


def _apply_in_store(
    store: Store, plan: ChangePlan, reason: str = "", excluded_ids: Collection[str] = ()
) -> Receipt:
    """Apply a plan, and return its receipt also when only the clean-up failed."""
    try:
        return store.apply(plan, accept_risk=reason, leave=excluded_ids)
    except Incomplete as exc:
        if isinstance(exc.receipt, Receipt):
            return exc.receipt
        raise
