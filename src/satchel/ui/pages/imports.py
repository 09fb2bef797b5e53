"""Pages to add skills: a form for a new one; a zip, a folder or a repository to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from satchel.errors import Refused, SatchelError
from satchel.i18n import say
from satchel.presentation.changes import result_message
from satchel.presentation.drafts import custom_id_for, error_remark, show_new
from satchel.presentation.skill_lookup import find_skill, show_scopes
from satchel.presentation.skills import row_key
from satchel.ui.flash import Flash
from satchel.ui.imports import MAX_FETCHES, SourceFetch, plan_upload
from satchel.ui.middleware import MAX_UPLOAD_BYTES
from satchel.ui.pages.changes import apply_all
from satchel.ui.pending import PendingPlan
from satchel.ui.templating import address, app_state, flash_address, go_to, page, wants_part
from satchel.ui.uploads import MAX_FILES, receive_archive, receive_folder, spool

if TYPE_CHECKING:
    from satchel.store.store import Store

router = APIRouter()
Scope = Literal["project", "global"]
_MAX_FIELD_CHARS = 2_048


# --- new skill ----------------------------------------------------------------------------


@router.get("/skills/add")
def add_form(request: Request, scope: Scope = "project") -> Response:
    """Show the form: in a dialog, or as a page."""
    return _add_form(request, scope)


@router.post("/skills/add/check")
def check_new(
    request: Request,
    name: Annotated[str, Form(max_length=200)] = "",
    description: Annotated[str, Form(max_length=10_000)] = "",
    scope: Annotated[Scope, Form()] = "project",
    skill_id: Annotated[str, Form(alias="own", max_length=200)] = "",
    asks_id: Annotated[bool, Form(alias="asked")] = False,
) -> Response:
    """Check name and description while they are typed."""
    store = app_state(request).satchel.store(scope)
    new = show_new(store, name, description, skill_id)
    return page(request, "change/new_check.html", new=new, oob=True, asks_id=asks_id)


@router.post("/skills/add")
def add(
    request: Request,
    name: Annotated[str, Form(max_length=200)] = "",
    description: Annotated[str, Form(max_length=10_000)] = "",
    scope: Annotated[Scope, Form()] = "project",
    skill_id: Annotated[str, Form(alias="own", max_length=200)] = "",
) -> Response:
    """Create the skill, and show it in the list."""
    state = app_state(request)
    try:
        store = state.satchel.store(scope)
        with store.plan_add(name, description, skill_id=custom_id_for(name, skill_id)) as plan:
            receipt = apply_all(state, store, plan)
            folder = store.scope.target(plan.steps[0].id)
            message, details = result_message(plan, receipt)
    except SatchelError as exc:
        return _add_form(request, scope, name, description, exc, skill_id)
    tone = "warn" if receipt.trouble else "good"
    flash = Flash(message, details, tone, scope, receipt.number)
    try:
        ref = find_skill(state.satchel, folder).ref
    except SatchelError:  # it was removed meanwhile, or a setting excludes it
        return go_to(request, flash_address(request, flash, "/skills"))
    flash = flash._replace(links=((say("Edit it"), address("/skill/edit", ref=ref)),))
    result_address = flash_address(request, flash, "/skills", open=ref)
    return go_to(request, f"{result_address}#row-{row_key(ref)}")


def _add_form(
    request: Request,
    scope: Scope,
    name: str = "",
    description: str = "",
    exc: SatchelError | None = None,
    skill_id: str = "",
) -> Response:
    scopes = show_scopes(app_state(request).satchel)
    stores: dict[Scope, Store] = {
        scope_view.name: scope_view.store for scope_view in scopes if scope_view.store is not None
    }
    if stores and scope not in stores:
        scope = next(iter(stores))
    template = "add_form" if wants_part(request) else "add"
    return page(
        request,
        f"change/{template}.html",
        status=422 if exc is not None else 200,
        scope=scope,
        scopes=scopes,
        name=name,
        description=description,
        trouble=error_remark(exc) if exc is not None else None,
        new=show_new(stores.get(scope), name, description, skill_id),
        oob=False,
    )


# --- imports ------------------------------------------------------------------------------


@router.get("/skills/import")
def import_page(
    request: Request, skill_id: Annotated[str, Query(alias="own", max_length=200)] = ""
) -> Response:
    """Show the import forms, filled in with an id."""
    return page(
        request,
        "change/import.html",
        scopes=show_scopes(app_state(request).satchel),
        max_bytes=MAX_UPLOAD_BYTES,
        max_files=MAX_FILES,
        skill_id=skill_id,
        can_fetch=not app_state(request).access.has_remote_users,
    )


@router.post("/skills/import/zip")
@router.post("/skills/import/folder")
async def import_upload(request: Request) -> Response:
    """Import a zip or tar, or a folder uploaded as files with their paths."""
    state = app_state(request)
    is_archive = request.url.path == "/skills/import/zip"
    async with spool() as folder:
        receive = receive_archive if is_archive else receive_folder
        upload = await receive(request, folder)
        store = state.satchel.store(upload.scope)
        plan = await run_in_threadpool(plan_upload, store, upload, is_archive=is_archive)
    return go_to(request, f"/plans/{state.plans.add(PendingPlan(store, plan, upload.name))}")


@router.post("/skills/import/git")
def import_git(
    request: Request,
    source: Annotated[str, Form(max_length=_MAX_FIELD_CHARS)],
    ref: Annotated[str, Form(max_length=_MAX_FIELD_CHARS)] = "",
    path: Annotated[str, Form(max_length=_MAX_FIELD_CHARS)] = "",
    scope: Annotated[Scope, Form()] = "project",
    skill_id: Annotated[str, Form(alias="own", max_length=200)] = "",
) -> Response:
    """Fetch a repository; the next page shows the progress."""
    state = app_state(request)
    if state.access.has_remote_users:  # they must not fetch from this machine and its network
        raise Refused(
            say("Repositories cannot be fetched here"),
            say("Upload an archive, or run `satchel install` in the terminal"),
        )
    if sum(fetch.is_running for fetch in state.fetches.values()) >= MAX_FETCHES:
        raise Refused(say("Too many requests"), say("Try again later"))
    store = state.satchel.store(scope)
    fetch = SourceFetch(store, source.strip(), ref.strip(), path, skill_id=skill_id.strip())
    fetch.start(lambda plan: state.plans.add(PendingPlan(store, plan, fetch.label)))
    return go_to(request, f"/skills/import/{state.fetches.add(fetch)}")


@router.get("/skills/import/{key}")
@router.get("/skills/import/{key}/progress")
def fetch_page(request: Request, key: str) -> Response:
    """Show the progress of a fetch, polled every half second; the plan when it has one."""
    fetch = app_state(request).fetches.require(key)
    if fetch.plan:
        return go_to(request, f"/plans/{fetch.plan}")
    template = "fetching" if request.url.path.endswith("/progress") else "fetch"
    return page(request, f"change/{template}.html", fetch=fetch, key=key)


@router.post("/skills/import/{key}/cancel")
def cancel(request: Request, key: str) -> Response:
    """Cancel a fetch, and drop its plan."""
    state = app_state(request)
    state.plans.drop(state.fetches.require(key).plan)
    state.fetches.drop(key)
    return go_to(request, "/skills/import")
