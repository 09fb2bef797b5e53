"""Pages of a pending plan, its confirmation, and undo."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel.errors import Blocked, Incomplete, InvalidInput, SatchelError
from satchel.i18n import say
from satchel.presentation.change_words import undone_words
from satchel.presentation.changes import (
    REST,
    done_words,
    ids_to_leave,
    install_words,
    show_diff,
    show_history,
    show_plan,
)
from satchel.presentation.drafts import Remark, remark_of
from satchel.presentation.skills import find_file, find_skill, key_of, show_scopes
from satchel.store.store import Receipt
from satchel.store.undo import Undone
from satchel.ui.flash import Flash
from satchel.ui.pending import PendingPlan, expired
from satchel.ui.state import release
from satchel.ui.templating import address, app_state, go_to, page, wants_part

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
    skill = find_file(state.satchel, ref)
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
    if seen := state.results.get(key):
        return go_to(request, seen)
    return _plan_page(request, key, state.plans.require(key))


@router.get("/plans/{key}/yes")
@router.get("/plans/{key}/no")
def answered(request: Request, key: str) -> Response:
    """Redirect a reload of a POST address to its plan."""
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
        found = show_diff(pending.plan, step, path)
    except OSError as exc:  # the plan was dropped while it was read
        raise expired() from exc
    if wants_part(request):
        return page(request, "change/diff.html", diff=found)
    return page(request, "change/diff_page.html", diff=found, key=key)


@router.post("/plans/{key}/yes")
def confirm(
    request: Request,
    key: str,
    accept_risk: Annotated[str, Form(max_length=500)] = "",
    take: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Apply a plan; of an import, the selected skills."""
    state = app_state(request)
    with state.confirming:
        if seen := state.results.get(key):  # a second click
            return go_to(request, seen)
        return _confirm(request, state, key, accept_risk, take or ())


def _confirm(
    request: Request, state: AppState, key: str, reason: str, ticked: Sequence[str]
) -> Response:
    pending = state.plans.require(key)
    plan = pending.plan
    leave = ids_to_leave(plan, ticked)
    if leave and len(leave) == len(plan.changes):
        trouble = remark_of(InvalidInput(say("No skill is selected")))
        return _plan_page(request, key, pending, trouble, 422, reason=reason, ticked=ticked)
    try:
        receipt = apply(state, key, reason, leave)
    except Blocked as exc:
        words = Remark("bad", "✗", "", 0, exc.message, say("To install it anyway, give a reason"))
        return _plan_page(request, key, pending, words, 403, ticked=ticked)
    seen = _done(state, pending.store, plan, receipt)
    state.results.add(seen, key)
    return go_to(request, seen)


@router.post("/plans/{key}/no")
def reject(request: Request, key: str) -> Response:
    """Drop a plan."""
    state = app_state(request)
    release(state.plans.pop(key))
    return go_to(request, "/skills")


@router.get("/history")
def history(request: Request) -> Response:
    """Show the history of changes."""
    rows = [show_history(scope) for scope in show_scopes(app_state(request).satchel)]
    return page(request, "change/history.html", histories=rows)


@router.post("/undo")
@router.post("/redo")
def undo(
    request: Request,
    number: Annotated[int, Form(ge=1)],
    scope: Annotated[Scope, Form()] = "project",
    back: Annotated[Literal["/skills", "/history"], Form()] = "/skills",
    ref: Annotated[str, Form(max_length=4_096)] = "",
) -> Response:
    """Undo or redo the last change, if it is still the one that was shown."""
    state, redo = app_state(request), request.url.path == "/redo"
    done = undo_change(state, state.satchel.store(scope), number, redo=redo)
    note = Flash(
        undone_words(done, redo=redo),
        tuple(line for line in (*done.trouble, *done.notes, *done.repaired) if line),
        "warn" if done.trouble else "good",
        scope=scope,
        number=done.number,
        undone=not redo,
    )
    return go_to(request, _back(state, back, ref, state.flash.add(note)))


def _back(state: AppState, back: str, ref: str, told: str) -> str:
    """The editor of the skill, if it still exists; else the given page."""
    try:
        if ref:
            state.satchel.store_of(find_file(state.satchel, ref))
            return address("/skill/edit", ref=ref, told=told)
    except SatchelError:
        pass  # the undo removed the skill
    return address(back, told=told)


def _done(state: AppState, store: Store, plan: ChangePlan, receipt: Receipt) -> str:
    """The URL that shows the result, with an undo button."""
    words, more = done_words(plan, receipt)
    here = [step.id for step in receipt.done if step.kind != "remove"]
    shown = ""
    if len(here) == 1:
        with suppress(SatchelError):  # it was removed meanwhile, or a setting excludes it
            shown = find_skill(state.satchel, store.scope.target(here[0])).ref
    note = Flash(
        words,
        more,
        "warn" if receipt.left or receipt.trouble or not receipt.done else "good",
        store.scope.name,
        receipt.number,
        links=((say("Open"), address("/skill", ref=shown)),) if shown else (),
    )
    row = f"#row-{key_of(shown)}" if shown else ""
    return address("/skills", open=shown, told=state.flash.add(note)) + row


def _plan_page(
    request: Request,
    key: str,
    pending: PendingPlan,
    trouble: Remark | None = None,
    status: int = 200,
    *,
    reason: str = "",
    ticked: Collection[str] | None = None,
) -> Response:
    try:
        shown = show_plan(pending.plan, pending.store)
    except OSError as exc:  # the plan was dropped while it was read
        raise expired() from exc
    return page(
        request,
        "change/plan.html",
        status=status,
        key=key,
        plan=shown,
        label=pending.label,
        trouble=trouble,
        rest=REST,
        many=install_words("{count}"),
        reason=reason,
        ticked=shown.ticked if ticked is None else ticked,
    )


# --- applying -----------------------------------------------------------------------------


def apply(state: AppState, key: str, accept_risk: str = "", leave: Collection[str] = ()) -> Receipt:
    """Apply a pending plan, release its files, and notify every page.

    Args:
        state: Holds the plan.
        key: The key of the plan.
        accept_risk: Why blocked skills are installed as well.
        leave: Ids that stay unchanged.

    Raises:
        NotFound: it is no longer pending.
        Blocked: nothing was changed, and it is still pending.
        SatchelError: it failed, or something changed meanwhile; the error states whether something
            was changed. It is no longer pending.
    """
    pending = state.plans.pop(key)
    try:
        reason = " ".join(accept_risk.split())
        receipt = _apply_in_store(pending.store, pending.plan, reason, leave)
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
        done = store.undo(redo=redo, number=number)
    except Incomplete as exc:
        if not isinstance(exc.receipt, Undone):
            raise
        done = exc.receipt
    state.library_changed()
    return done


def _apply_in_store(
    store: Store, plan: ChangePlan, reason: str = "", leave: Collection[str] = ()
) -> Receipt:
    """Return the receipt of a change whose clean-up failed, instead of raising."""
    try:
        return store.apply(plan, accept_risk=reason, leave=leave)
    except Incomplete as exc:
        if isinstance(exc.receipt, Receipt):
            return exc.receipt
        raise
