"""One skill's own page: its story, a question about a request, accepted risks, other agents."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel._language import say
from satchel.tools.frame import printable
from satchel.ui.house import Note
from satchel.ui.view import address, go_to, house_of, page, part, wants_part
from satchel.ui.views import story, trusting
from satchel.ui.views.skills import broken_at, find_checked, find_skill

if TYPE_CHECKING:
    from satchel.facade import Satchel
    from satchel.skill.model import Skill

router = APIRouter()

Ref = Annotated[str, Query(min_length=1, max_length=4096)]


@router.get("/skill")
def one_skill(request: Request, ref: Ref, goal: str = "", everywhere: bool = False) -> Response:
    """The whole page; as a part, the story alone, when the library changed."""
    satchel = house_of(request).satchel
    if os.path.isabs(ref) and broken_at(satchel, ref) is not None:
        return go_to(request, address("/skills/row", ref=ref))  # it has no story, only a file
    skill = find_checked(satchel, ref)
    if wants_part(request):
        told = story.tell(satchel, skill)
        return part(request, "skill/story.html", skill=skill, story=told)
    asked = story.ask(satchel, skill, goal) if goal.strip() else None
    found = story.agents_of(satchel, skill, user=everywhere)
    return _whole(request, satchel, skill, agents=found, asked=asked, outcome=None)


def _whole(request: Request, satchel: Satchel, skill: Skill, **values: Any) -> Response:
    told = story.tell(satchel, skill)
    return page(
        request,
        "skill/page.html",
        skill=skill,
        story=told,
        trust=trusting.show_trust(satchel, skill, told.row.state),
        modified=trusting.modified_files(satchel, skill),
        **values,
    )


@router.get("/skill/why")
def why(request: Request, ref: Ref, goal: str = "") -> Response:
    """Whether it would be chosen for a request."""
    satchel = house_of(request).satchel
    skill = find_skill(satchel, ref)
    if not wants_part(request):
        return go_to(request, address("/skill", ref=skill.ref, goal=goal) + "#question")
    asked = story.ask(satchel, skill, goal)
    return part(request, "skill/asked.html", skill=skill, asked=asked)


@router.post("/skill/accept")
def accept(
    request: Request, ref: Ref, reason: Annotated[str, Form(max_length=500)] = ""
) -> Response:
    """Use a skill that the scan blocks, as it is now."""
    house = house_of(request)
    skill = house.satchel.accept_risk(find_skill(house.satchel, ref), reason)
    house.changed()
    note = Note(say("`{name}` is used as it is now", name=printable(skill.name)))
    return go_to(request, address("/skill", ref=skill.ref, told=house.notes.put(note)))


# --- other agents -------------------------------------------------------------------------


@router.get("/skill/agents")
def see_agents(request: Request, ref: Ref, everywhere: bool = False) -> Response:
    """Who has it; as a part of the page."""
    satchel = house_of(request).satchel
    skill = find_skill(satchel, ref)
    if not wants_part(request):
        return go_to(request, address("/skill", ref=skill.ref, everywhere=everywhere) + "#agents")
    found = story.agents_of(satchel, skill, user=everywhere)
    return part(request, "skill/agents.html", skill=skill, agents=found, outcome=None)


@router.post("/skill/agents")
def switch_agent(
    request: Request,
    ref: Ref,
    agent: Annotated[str, Form(max_length=64)],
    turn: Annotated[Literal["on", "off"], Form()],
    everywhere: Annotated[bool, Form()] = False,
) -> Response:
    """Put it where an agent looks, or take it away."""
    house = house_of(request)
    satchel = house.satchel
    skill = find_skill(satchel, ref)
    outcome = story.switch(satchel, skill, agent, user=everywhere, on=turn == "on")
    house.changed()
    found = story.agents_of(satchel, skill, user=everywhere)
    if wants_part(request):
        return part(request, "skill/agents.html", skill=skill, agents=found, outcome=outcome)
    return _whole(request, satchel, skill, agents=found, asked=None, outcome=outcome)
