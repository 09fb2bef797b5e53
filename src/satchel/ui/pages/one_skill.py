"""One skill's own page: its story, a question about a request, trust, and other agents."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel._language import say
from satchel.errors import InvalidInput
from satchel.tools.frame import printable
from satchel.ui.notes import Note
from satchel.ui.view import address, go_to, house_of, page, part, wants_part
from satchel.ui.views import agents, story, trusting
from satchel.ui.views.skills import broken_at, find_skill

router = APIRouter()

Ref = Annotated[str, Query(min_length=1, max_length=4096)]


@router.get("/skill")
def one_skill(request: Request, ref: Ref, goal: str = "", everywhere: bool = False) -> Response:
    """The whole page; as a part, the story alone, when the library changed."""
    satchel = house_of(request).satchel
    if os.path.isabs(ref) and broken_at(satchel, ref) is not None:
        return go_to(request, address("/skills/row", ref=ref))  # it has no story, only a file
    skill = find_skill(satchel, ref)
    told = story.tell(satchel, skill)
    if wants_part(request):
        return part(request, "skill/story.html", skill=skill, story=told)
    return page(
        request,
        "skill/page.html",
        skill=skill,
        story=told,
        trust=trusting.trust_of(satchel, skill),
        asked=story.ask(satchel, skill, goal) if goal.strip() else None,
        agents=agents.agents_of(satchel, skill, user=everywhere),
        outcome=None,
        edited=story.edited_since(satchel, skill),
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


# --- trust --------------------------------------------------------------------------------


@router.post("/skill/trust")
def trust(
    request: Request,
    ref: Ref,
    what: Annotated[Literal["skill", "project"], Form()] = "skill",
    mark: Annotated[str, Form(max_length=128)] = "",
    sure: Annotated[str, Form(max_length=8)] = "",
) -> Response:
    """Approve what was looked at, or with a word of its own the whole project."""
    house = house_of(request)
    skill = find_skill(house.satchel, ref)
    if what == "skill":
        trusting.approve(house.satchel, skill, mark)
        note = Note(say("Trusted as it is now: {name}", name=printable(skill.name)))
    elif sure == "yes":
        trusting.approve_project(house.satchel)
        note = Note(say("Everything in this project is trusted, now and later"), tone="warn")
    else:
        raise InvalidInput(
            say("Nothing was trusted: you did not say that you mean everything"),
            say("Tick the box, then press the button again"),
        )
    house.changed()
    return go_to(request, address("/skill", ref=skill.ref, told=house.notes.put(note)))


@router.post("/skill/untrust")
def untrust(
    request: Request,
    ref: Ref,
    what: Annotated[Literal["skill", "project"], Form()] = "skill",
) -> Response:
    """Take trust back."""
    house = house_of(request)
    skill = find_skill(house.satchel, ref)
    trusting.take_back(house.satchel, skill if what == "skill" else None)
    house.changed()
    note = Note(say("The trust was taken back"))
    return go_to(request, address("/skill", ref=skill.ref, told=house.notes.put(note)))


# --- other agents -------------------------------------------------------------------------


@router.get("/skill/agents")
def see_agents(request: Request, ref: Ref, everywhere: bool = False) -> Response:
    """Who has it; as a part of the page."""
    satchel = house_of(request).satchel
    skill = find_skill(satchel, ref)
    if not wants_part(request):
        return go_to(request, address("/skill", ref=skill.ref, everywhere=everywhere) + "#agents")
    found = agents.agents_of(satchel, skill, user=everywhere)
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
    outcome = agents.switch(satchel, skill, agent, user=everywhere, on=turn == "on")
    house.changed()
    found = agents.agents_of(satchel, skill, user=everywhere)
    if wants_part(request):
        return part(request, "skill/agents.html", skill=skill, agents=found, outcome=outcome)
    return page(
        request,
        "skill/page.html",
        skill=skill,
        story=story.tell(satchel, skill),
        trust=trusting.trust_of(satchel, skill),
        asked=None,
        agents=found,
        outcome=outcome,
        edited=story.edited_since(satchel, skill),
    )
