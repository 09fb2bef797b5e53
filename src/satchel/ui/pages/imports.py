"""Pages to add skills: a form for a new one; a zip, a folder or a repository to import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter, Form, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from satchel.errors import Refused, SatchelError
from satchel.i18n import say
from satchel.presentation.changes import done_words
from satchel.presentation.drafts import id_for, remark_of, show_new
from satchel.presentation.skills import find_skill, key_of, show_scopes
from satchel.ui.flash import Flash
from satchel.ui.imports import MAX_FETCHES, SourceFetch, plan_upload
from satchel.ui.middleware import MAX_UPLOAD_BYTES
from satchel.ui.pages.changes import apply_all
from satchel.ui.pending import PendingPlan
from satchel.ui.templating import address, app_state, go_to, page, wants_part
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
    own: Annotated[str, Form(max_length=200)] = "",
    asked: Annotated[bool, Form()] = False,
) -> Response:
    """Check name and description while they are typed."""
    store = app_state(request).satchel.store(scope)
    new = show_new(store, name, description, own)
    return page(request, "change/new_check.html", new=new, oob=True, asked=asked)


@router.post("/skills/add")
def add(
    request: Request,
    name: Annotated[str, Form(max_length=200)] = "",
    description: Annotated[str, Form(max_length=10_000)] = "",
    scope: Annotated[Scope, Form()] = "project",
    own: Annotated[str, Form(max_length=200)] = "",
) -> Response:
    """Create the skill, and show it in the list."""
    state = app_state(request)
    try:
        store = state.satchel.store(scope)
        with store.plan_add(name, description, skill_id=id_for(name, own)) as plan:
            receipt = apply_all(state, store, plan)
            folder = store.scope.target(plan.steps[0].id)
            words, more = done_words(plan, receipt)
    except SatchelError as exc:
        return _add_form(request, scope, name, description, exc, own)
    tone = "warn" if receipt.trouble else "good"
    note = Flash(words, more, tone, scope, receipt.number)
    try:
        ref = find_skill(state.satchel, folder).ref
    except SatchelError:  # it was removed meanwhile, or a setting excludes it
        return go_to(request, address("/skills", told=state.flash.add(note)))
    note = note._replace(links=((say("Edit it"), address("/skill/edit", ref=ref)),))
    told = state.flash.add(note)
    return go_to(request, address("/skills", open=ref, told=told) + f"#row-{key_of(ref)}")


def _add_form(
    request: Request,
    scope: Scope,
    name: str = "",
    description: str = "",
    exc: SatchelError | None = None,
    own: str = "",
) -> Response:
    scopes = show_scopes(app_state(request).satchel)
    usable: dict[Scope, Store] = {one.name: one.store for one in scopes if one.store is not None}
    if usable and usable.get(scope) is None:
        scope = next(iter(usable))
    template = "add_form" if wants_part(request) else "add"
    return page(
        request,
        f"change/{template}.html",
        status=422 if exc is not None else 200,
        scope=scope,
        scopes=scopes,
        name=name,
        description=description,
        trouble=remark_of(exc) if exc is not None else None,
        new=show_new(usable.get(scope), name, description, own),
        oob=False,
    )


# --- imports ------------------------------------------------------------------------------


@router.get("/skills/import")
def import_page(request: Request) -> Response:
    """Show the import forms."""
    return page(
        request,
        "change/import.html",
        scopes=show_scopes(app_state(request).satchel),
        most=MAX_UPLOAD_BYTES,
        most_files=MAX_FILES,
        local=not app_state(request).access.has_remote_users,
    )


@router.post("/skills/import/zip")
@router.post("/skills/import/folder")
async def import_upload(request: Request) -> Response:
    """Import a zip or tar, or a folder uploaded as files with their paths."""
    state = app_state(request)
    is_archive = request.url.path == "/skills/import/zip"
    async with spool() as folder:
        sent = await (receive_archive if is_archive else receive_folder)(request, folder)
        store = state.satchel.store(sent.scope)
        plan = await run_in_threadpool(plan_upload, store, sent, is_archive=is_archive)
    return go_to(request, f"/plans/{state.plans.add(PendingPlan(store, plan, sent.name))}")


@router.post("/skills/import/git")
def import_git(
    request: Request,
    source: Annotated[str, Form(max_length=_MAX_FIELD_CHARS)],
    ref: Annotated[str, Form(max_length=_MAX_FIELD_CHARS)] = "",
    path: Annotated[str, Form(max_length=_MAX_FIELD_CHARS)] = "",
    scope: Annotated[Scope, Form()] = "project",
) -> Response:
    """Fetch a repository; the next page shows the progress."""
    state = app_state(request)
    if state.access.has_remote_users:  # they must not fetch from this machine and its network
        raise Refused(
            say("Repositories cannot be fetched here"),
            say("Upload an archive, or run `satchel install` in the terminal"),
        )
    if sum(one.is_running for one in state.fetches.values()) >= MAX_FETCHES:
        raise Refused(say("Too many requests"), say("Try again later"))
    store = state.satchel.store(scope)
    fetch = SourceFetch(store, source.strip(), ref.strip(), path)
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
