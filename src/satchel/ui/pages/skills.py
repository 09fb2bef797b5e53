"""Pages of the skill list, of one skill and its files, and of trust."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from satchel.errors import InvalidInput, NotFound, Refused, SatchelError
from satchel.i18n import say
from satchel.presentation import skill_page
from satchel.presentation.changes import result_message
from satchel.presentation.files import export_skills, read_file
from satchel.presentation.skill_html import render_file
from satchel.presentation.skill_index import SkillFilter
from satchel.presentation.skill_lookup import (
    broken_at,
    editable_scope,
    find_checked,
    find_editable_skill,
    find_skill,
)
from satchel.presentation.skills import (
    MAX_SEARCH_CHARS,
    highlight,
    list_skills,
    listing_words,
    match_reason,
    source_label,
    state_words,
)
from satchel.presentation.trust import can_revoke, show_folder
from satchel.tools.framing import printable
from satchel.ui.flash import Flash
from satchel.ui.pages.changes import apply_all
from satchel.ui.pending import PendingPlan
from satchel.ui.templating import address, app_state, flash_address, go_to, page, wants_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.satchel import Satchel
    from satchel.skill.model import Skill
    from satchel.store.store import Store

router = APIRouter()
WORDS: dict[str, Any] = {
    "source_words": source_label, "state_words": state_words, "listing_words": listing_words,
}  # fmt: skip
Ref = Annotated[str, Query(min_length=1, max_length=4096)]
MAX_CHOSEN = 500


@router.get("/skills")
def skills(
    request: Request,
    q: str = "",
    source: str = "",
    state: str = "",
    tools: bool = False,
    sort: str = "",
    number: Annotated[int, Query(alias="page", ge=1, le=10_000_000)] = 1,
    opened: Annotated[str, Query(alias="open", max_length=4_096)] = "",
) -> Response:
    """Show the list; only its rows for htmx."""
    shared = app_state(request)
    satchel = shared.satchel
    if not shared.loading.is_loaded():
        return page(request, "skills/loading.html", status=204 if wants_part(request) else 200)
    indexed = not q.strip() or shared.loading.is_indexed()
    listing = list_skills(
        satchel,
        query=q,
        filters=SkillFilter(source, state, tools),
        sort=sort,
        page=number,
        marked_ref=opened,
        use_index=indexed,
    )
    values: dict[str, Any] = {
        "listing": listing,
        "longest": MAX_SEARCH_CHARS,
        "highlight": highlight,
        "indexing": None if indexed else shared.loading.indexing.state,
        "folder": None if q.strip() else show_folder(satchel, shared.review, listing.untrusted),
        "can_revoke": can_revoke(satchel),
        **WORDS,
    }
    return page(request, f"skills/{'list' if wants_part(request) else 'page'}.html", **values)


@router.get("/skills/reason")
def reason(request: Request, ref: Ref, q: Annotated[str, Query(max_length=400)]) -> Response:
    """Show why a search finds a skill."""
    words = match_reason(app_state(request).satchel, ref, q)
    return page(request, "skills/reason.html", words=words)


@router.post("/skills/chosen")
def chosen(
    request: Request,
    do: Annotated[Literal["remove", "export"], Form()],
    refs: Annotated[list[str] | None, Form(alias="ref", max_length=MAX_CHOSEN)] = None,
) -> Response:
    """Plan the removal of several skills, or export them."""
    state = app_state(request)
    if not refs:
        raise InvalidInput(say("No skill is selected"), say("Try again"))
    skills = [find_editable_skill(state.satchel, ref) for ref in dict.fromkeys(refs)]
    if do == "export":
        return _export(skills)
    stores: dict[str, tuple[Store, list[str]]] = {}
    for skill in skills:
        store = state.satchel.store_of(skill)
        stores.setdefault(store.scope.folder, (store, []))[1].append(skill.head.id)
    if len(stores) > 1:
        raise Refused(
            say("The selected skills are in different folders"),
            say("Remove those of one folder at a time"),
        )
    [(store, ids)] = stores.values()
    plan = PendingPlan(store, store.plan_remove(ids))
    return go_to(request, f"/plans/{state.plans.add(plan)}")


def _export(skills: Sequence[Skill]) -> Response:
    folder = tempfile.mkdtemp(prefix="satchel-export-")
    cleanup = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
    try:
        path, name = export_skills(skills, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return FileResponse(path, media_type="application/zip", filename=name, background=cleanup)


@router.post("/skills/trust")
@router.post("/skills/untrust")
def trust_folder(request: Request, ref: str = "") -> Response:
    """Trust the project's folder, or revoke that."""
    state = app_state(request)
    flash = Flash(say("This folder is trusted"))
    if request.url.path == "/skills/trust":
        state.satchel.trust()
    elif state.satchel.untrust():
        flash = Flash(say("Trust revoked"))
    else:
        raise NotFound(say("Its folder is not trusted"), say("Reload the page"))
    state.library_changed()
    page_url = "/skill" if ref else "/skills"
    return go_to(request, flash_address(request, flash, page_url, ref=ref))


# --- one skill ----------------------------------------------------------------------------


@router.get("/skill")
def one_skill(
    request: Request,
    ref: Ref,
    goal: str = "",
    path: Annotated[str, Query(max_length=4_096)] = "",
    raw: bool = False,
) -> Response:
    """Show the page; as a fragment, only its status, when the library changed."""
    satchel = app_state(request).satchel
    skill, item = None, broken_at(satchel, ref) if os.path.isabs(ref) else None
    if item is not None:
        view, raw = skill_page.broken_page(satchel, item), True
    else:
        skill = find_checked(satchel, ref)
        view = skill_page.page_of(satchel, skill)
    if wants_part(request):
        return page(request, "skill/status.html", shown=view)
    content = _file_values(satchel, view.row.ref, path or view.main_file, raw=raw)
    if path and content["failure"]:
        raise content["failure"]
    asked = None
    if skill is not None and goal.strip():
        asked = skill_page.explain_request(satchel, skill, goal)
    return page(
        request,
        "skill/page.html",
        shown=view,
        ref=view.row.ref,
        asked=asked,
        agents=skill_page.agents_of(satchel, skill) if skill is not None else (),
        **content,
    )


@router.get("/skill/file")
def file(request: Request, ref: Ref, path: str = "", raw: bool = False) -> Response:
    """Show one file; without htmx, on the page of the skill."""
    if not wants_part(request):
        return go_to(request, address("/skill", ref=ref, path=path, raw=raw) + "#files")
    values = _file_values(app_state(request).satchel, ref, path, raw=raw)
    if failure := values["failure"]:
        raise failure
    return page(request, "skill/file.html", ref=ref, **values)


def _file_values(satchel: Satchel, ref: str, path: str, *, raw: bool) -> dict[str, Any]:
    """The values of `skill/file.html`; on the page of a skill an error must not hide the rest."""
    try:
        content = read_file(satchel, ref, path)
        scope = editable_scope(satchel, find_editable_skill(satchel, ref))
        editable = content.kind == "text" and bool(scope)
    except SatchelError as exc:
        return {"content": None, "file": None, "failure": exc, "editable": False, "bad": 0}

    def url_for(other: str) -> str:
        return address("/skill/file", ref=ref, path=other)

    item = broken_at(satchel, ref)
    return {
        "content": content,
        "file": render_file(content, url_for, raw=raw) if content.kind == "text" else None,
        "failure": None,
        "editable": editable,
        "bad": item.problem.line if item is not None else 0,
    }


@router.post("/skill/rename")
def rename(request: Request, ref: Ref, name: Annotated[str, Form(max_length=200)]) -> Response:
    """Rename a skill."""
    state = app_state(request)
    skill = find_editable_skill(state.satchel, ref)
    store = state.satchel.store_of(skill)
    with store.plan_rename(skill.head.id, name.strip()) as plan:
        receipt = apply_all(state, store, plan)
        message, details = result_message(plan, receipt)
    renamed = find_skill(state.satchel, store.scope.target(name.strip()))
    flash = Flash(message, details, "good", store.scope.name, receipt.number)
    return _go_to_skill(request, renamed.ref, flash)


@router.post("/skill/update")
def update(request: Request, ref: Ref) -> Response:
    """Plan the update of a skill from its source, and show the plan."""
    state = app_state(request)
    state.require_local_user(say("Skills cannot be updated here"), "satchel update")
    skill = find_editable_skill(state.satchel, ref)
    store = state.satchel.store_of(skill)
    plan = store.plan_update([skill.head.id])
    if all(step.kind == "same" for step in plan.steps):
        plan.close()
        return _go_to_skill(request, skill.ref, Flash(say("Already up to date"), tone="info"))
    return go_to(request, f"/plans/{state.plans.add(PendingPlan(store, plan))}")


@router.post("/skill/accept")
def accept(
    request: Request, ref: Ref, reason: Annotated[str, Form(max_length=500)] = ""
) -> Response:
    """Accept the risk of a blocked skill with its current content."""
    state = app_state(request)
    skill = state.satchel.accept_risk(find_skill(state.satchel, ref), reason)
    state.library_changed()
    flash = Flash(say("Risk accepted: `{name}`", name=printable(skill.name)))
    return _go_to_skill(request, skill.ref, flash)


def _go_to_skill(request: Request, ref: str, flash: Flash) -> Response:
    """Redirect to the page of a skill, with a message."""
    return go_to(request, flash_address(request, flash, "/skill", ref=ref))
