"""Pages of the skill list, of one skill and its files, and of trust."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel.errors import NotFound
from satchel.i18n import say
from satchel.presentation import skill_page, trust
from satchel.presentation.files import detail_of, list_files, read_file
from satchel.presentation.skills import (
    MAX_SEARCH_CHARS,
    broken_at,
    find_checked,
    find_name,
    find_skill,
    key_of,
    list_skills,
    source_words,
    state_words,
)
from satchel.presentation.trust import can_revoke, show_folder
from satchel.tools.framing import printable
from satchel.ui.flash import Flash
from satchel.ui.skill_html import render
from satchel.ui.templating import address, app_state, go_to, page, part, wants_part

if TYPE_CHECKING:
    from satchel.satchel import Satchel
    from satchel.skill.model import Skill

router = APIRouter()
WORDS: dict[str, Any] = {"source_words": source_words, "state_words": state_words}


@router.get("/skills")
def skills(
    request: Request,
    q: str = "",
    source: str = "",
    state: str = "",
    at: Annotated[int, Query(alias="page", ge=1, le=10_000_000)] = 1,
    opened: Annotated[str, Query(alias="open", max_length=4_096)] = "",
) -> Response:
    """Show the list; only its rows for htmx."""
    shared = app_state(request)
    satchel = shared.satchel
    listing = list_skills(satchel, words=q, source=source, state=state, page=at, opened=opened)
    values: dict[str, Any] = {
        "listing": listing,
        "longest": MAX_SEARCH_CHARS,
        "folder": None if q.strip() else show_folder(satchel, shared.review, listing.untrusted),
        "can_revoke": can_revoke(satchel),
        **WORDS,
    }
    if wants_part(request):
        return part(request, "skills/list.html", alone=True, **values)
    return page(request, "skills/page.html", alone=False, **values)


@router.post("/skills/trust")
def trust_folder(request: Request) -> Response:
    """Trust the project's folder."""
    app_state(request).satchel.trust()
    return _decided(request, Flash(say("The skills of this folder are used, now and later")))


@router.post("/skills/untrust")
def untrust_folder(request: Request) -> Response:
    """Revoke trust in the project's folder."""
    if not app_state(request).satchel.untrust():
        raise NotFound(say("This folder was not trusted"), say("Load the page again"))
    return _decided(request, Flash(say("The folder is trusted no more")))


def _decided(request: Request, note: Flash) -> Response:
    state = app_state(request)
    state.library_changed()
    return go_to(request, address("/skills", told=state.flash.add(note)))


@router.get("/skills/row")
def row(request: Request, ref: str) -> Response:
    """Show the details of a row."""
    detail = detail_of(app_state(request).satchel, ref)
    template = "skills/detail.html" if wants_part(request) else "skills/detail_page.html"
    return page(request, template, detail=detail, **WORDS)


@router.get("/skills/file")
def file(request: Request, ref: str, path: str = "") -> Response:
    """Show one file; without htmx, as a page."""
    satchel = app_state(request).satchel
    content = read_file(satchel, ref, path)

    def link(other: str) -> str:
        return address("/skills/file", ref=ref, path=other)

    values: dict[str, Any] = {
        "ref": ref,
        "key": key_of(ref),
        "content": content,
        "shown": render(content, link) if content.kind == "text" else None,
    }
    if wants_part(request):
        return part(request, "skills/file.html", **values)
    name = find_name(satchel, ref)
    return page(
        request, "skills/file_page.html", name=name, files=list_files(satchel, ref), **values
    )


# --- one skill ----------------------------------------------------------------------------


Ref = Annotated[str, Query(min_length=1, max_length=4096)]


@router.get("/skill")
def one_skill(request: Request, ref: Ref, goal: str = "", everywhere: bool = False) -> Response:
    """Show the page; as a fragment, only its status, when the library changed."""
    satchel = app_state(request).satchel
    if os.path.isabs(ref) and broken_at(satchel, ref) is not None:
        return go_to(request, address("/skills/row", ref=ref))  # a broken file has no status page
    skill = find_checked(satchel, ref)
    if wants_part(request):
        told = skill_page.page_of(satchel, skill)
        return part(request, "skill/story.html", skill=skill, story=told)
    asked = skill_page.explain_request(satchel, skill, goal) if goal.strip() else None
    found = skill_page.agents_of(satchel, skill, user=everywhere)
    return _whole(request, satchel, skill, agents=found, asked=asked, outcome=None)


def _whole(request: Request, satchel: Satchel, skill: Skill, **values: Any) -> Response:
    told = skill_page.page_of(satchel, skill)
    return page(
        request,
        "skill/page.html",
        skill=skill,
        story=told,
        trust=trust.show_trust(satchel, skill, told.row.state),
        modified=trust.modified_files(satchel, skill),
        **values,
    )


@router.get("/skill/why")
def why(request: Request, ref: Ref, goal: str = "") -> Response:
    """Show whether it would be selected for a request."""
    satchel = app_state(request).satchel
    skill = find_skill(satchel, ref)
    if not wants_part(request):
        return go_to(request, address("/skill", ref=skill.ref, goal=goal) + "#question")
    asked = skill_page.explain_request(satchel, skill, goal)
    return part(request, "skill/asked.html", skill=skill, asked=asked)


@router.post("/skill/accept")
def accept(
    request: Request, ref: Ref, reason: Annotated[str, Form(max_length=500)] = ""
) -> Response:
    """Accept the risk of a blocked skill with its current content."""
    state = app_state(request)
    skill = state.satchel.accept_risk(find_skill(state.satchel, ref), reason)
    state.library_changed()
    note = Flash(say("`{name}` is used as it is now", name=printable(skill.name)))
    return go_to(request, address("/skill", ref=skill.ref, told=state.flash.add(note)))


# --- other agents -------------------------------------------------------------------------


@router.get("/skill/agents")
def see_agents(request: Request, ref: Ref, everywhere: bool = False) -> Response:
    """Show which agents see it."""
    satchel = app_state(request).satchel
    skill = find_skill(satchel, ref)
    if not wants_part(request):
        return go_to(request, address("/skill", ref=skill.ref, everywhere=everywhere) + "#agents")
    found = skill_page.agents_of(satchel, skill, user=everywhere)
    return part(request, "skill/agents.html", skill=skill, agents=found, outcome=None)


@router.post("/skill/agents")
def switch_agent(
    request: Request,
    ref: Ref,
    agent: Annotated[str, Form(max_length=64)],
    turn: Annotated[Literal["on", "off"], Form()],
    everywhere: Annotated[bool, Form()] = False,
) -> Response:
    """Link it into an agent's folder, or remove the link."""
    state = app_state(request)
    satchel = state.satchel
    skill = find_skill(satchel, ref)
    outcome = skill_page.switch(satchel, skill, agent, user=everywhere, on=turn == "on")
    state.library_changed()
    found = skill_page.agents_of(satchel, skill, user=everywhere)
    if wants_part(request):
        return part(request, "skill/agents.html", skill=skill, agents=found, outcome=outcome)
    return _whole(request, satchel, skill, agents=found, asked=None, outcome=outcome)
