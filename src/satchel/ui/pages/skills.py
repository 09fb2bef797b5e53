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
from satchel.presentation.changes import done_words
from satchel.presentation.files import export_skills, read_file
from satchel.presentation.skill_html import render
from satchel.presentation.skill_index import SkillFilter
from satchel.presentation.skills import (
    MAX_SEARCH_CHARS,
    broken_at,
    find_checked,
    find_file,
    find_skill,
    highlight,
    list_skills,
    listing_words,
    match_reason,
    own_scope,
    source_label,
    state_words,
)
from satchel.presentation.trust import can_revoke, show_folder
from satchel.tools.framing import printable
from satchel.ui.flash import Flash
from satchel.ui.pages.changes import apply_all
from satchel.ui.pending import PendingPlan
from satchel.ui.templating import address, app_state, go_to, page, wants_part

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
    at: Annotated[int, Query(alias="page", ge=1, le=10_000_000)] = 1,
    opened: Annotated[str, Query(alias="open", max_length=4_096)] = "",
) -> Response:
    """Show the list; only its rows for htmx."""
    shared = app_state(request)
    satchel = shared.satchel
    if not shared.loading.is_loaded():
        return page(request, "skills/loading.html", status=204 if wants_part(request) else 200)
    indexed = not q.strip() or shared.loading.is_indexed()
    listing = list_skills(
        satchel, words=q, wanted=SkillFilter(source, state, tools), sort=sort, page=at,
        opened=opened, indexed=indexed,
    )  # fmt: skip
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
    found = [find_file(state.satchel, ref) for ref in dict.fromkeys(refs)]
    if do == "export":
        return _export(found)
    stores: dict[str, tuple[Store, list[str]]] = {}
    for skill in found:
        store = state.satchel.store_of(skill)
        stores.setdefault(store.scope.name, (store, []))[1].append(skill.head.id)
    if len(stores) > 1:
        raise Refused(
            say("The selected skills are in different scopes"), say("Remove one scope at a time")
        )
    [(store, ids)] = stores.values()
    plan = PendingPlan(store, store.plan_remove(ids))
    return go_to(request, f"/plans/{state.plans.add(plan)}")


def _export(found: Sequence[Skill]) -> Response:
    folder = tempfile.mkdtemp(prefix="satchel-export-")
    cleanup = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
    try:
        path, name = export_skills(found, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return FileResponse(path, media_type="application/zip", filename=name, background=cleanup)


@router.post("/skills/trust")
@router.post("/skills/untrust")
def trust_folder(request: Request, ref: str = "") -> Response:
    """Trust the project's folder, or revoke that."""
    state = app_state(request)
    note = Flash(say("This folder is trusted"))
    if request.url.path == "/skills/trust":
        state.satchel.trust()
    elif state.satchel.untrust():
        note = Flash(say("Trust revoked"))
    else:
        raise NotFound(say("Its folder is not trusted"), say("Reload the page"))
    state.library_changed()
    page_url = "/skill" if ref else "/skills"
    return go_to(request, address(page_url, ref=ref, told=state.flash.add(note)))


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
        shown, raw = skill_page.broken_page(satchel, item), True
    else:
        skill = find_checked(satchel, ref)
        shown = skill_page.page_of(satchel, skill)
    if wants_part(request):
        return page(request, "skill/status.html", shown=shown)
    content = _file_values(satchel, shown.row.ref, path or shown.own, raw=raw)
    if path and content["failure"]:
        raise content["failure"]
    asked = None
    if skill is not None and goal.strip():
        asked = skill_page.explain_request(satchel, skill, goal)
    return page(
        request,
        "skill/page.html",
        shown=shown,
        ref=shown.row.ref,
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
        editable = content.kind == "text" and bool(own_scope(satchel, find_file(satchel, ref)))
    except SatchelError as exc:
        return {"content": None, "file": None, "failure": exc, "editable": False, "bad": 0}

    def link(other: str) -> str:
        return address("/skill/file", ref=ref, path=other)

    item = broken_at(satchel, ref)
    return {
        "content": content,
        "file": render(content, link, raw=raw) if content.kind == "text" else None,
        "failure": None,
        "editable": editable,
        "bad": item.problem.line if item is not None else 0,
    }


@router.post("/skill/rename")
def rename(request: Request, ref: Ref, name: Annotated[str, Form(max_length=200)]) -> Response:
    """Rename a skill."""
    state = app_state(request)
    skill = find_file(state.satchel, ref)
    store = state.satchel.store_of(skill)
    with store.plan_rename(skill.head.id, name.strip()) as plan:
        receipt = apply_all(state, store, plan)
        words, more = done_words(plan, receipt)
    found = find_skill(state.satchel, store.scope.target(name.strip()))
    note = Flash(words, more, "good", store.scope.name, receipt.number)
    return _back(request, found.ref, note)


@router.post("/skill/update")
def update(request: Request, ref: Ref) -> Response:
    """Plan the update of a skill from its source, and show the plan."""
    state = app_state(request)
    if state.access.has_remote_users:  # they must not fetch with the owner's git and keys
        raise Refused(
            say("Skills cannot be updated here"), say("Run `satchel update` in the terminal")
        )
    skill = find_file(state.satchel, ref)
    store = state.satchel.store_of(skill)
    plan = store.plan_update([skill.head.id])
    if all(step.kind == "same" for step in plan.steps):
        plan.close()
        return _back(request, skill.ref, Flash(say("Already up to date"), tone="info"))
    return go_to(request, f"/plans/{state.plans.add(PendingPlan(store, plan))}")


@router.post("/skill/accept")
def accept(
    request: Request, ref: Ref, reason: Annotated[str, Form(max_length=500)] = ""
) -> Response:
    """Accept the risk of a blocked skill with its current content."""
    state = app_state(request)
    skill = state.satchel.accept_risk(find_skill(state.satchel, ref), reason)
    state.library_changed()
    note = Flash(say("Risk accepted: `{name}`", name=printable(skill.name)))
    return _back(request, skill.ref, note)


def _back(request: Request, ref: str, note: Flash) -> Response:
    """Redirect to the page of a skill, with a message."""
    told = app_state(request).flash.add(note)
    return go_to(request, address("/skill", ref=ref, told=told))
