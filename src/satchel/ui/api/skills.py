"""Skills: the list, one of them, its files, its story; adding and removing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request

from satchel.tools.frame import encodable
from satchel.ui.api.answers import done, errors, ills, row_model
from satchel.ui.api.models import (
    Chapter,
    Done,
    FileEntry,
    FileText,
    FileTree,
    NewSkill,
    OneSkill,
    Ref,
    SkillPage,
    Why,
)
from satchel.ui.carrying import make
from satchel.ui.view import house_of
from satchel.ui.views.drafts import id_for
from satchel.ui.views.files import list_files, read_file
from satchel.ui.views.skills import LONGEST, find_skill, list_skills, own_scope, row_of

if TYPE_CHECKING:
    from satchel.ui.views.files import Entry

router = APIRouter(prefix="/api", tags=["skills"])
Which = Annotated[Ref, Query(description="A skill's `ref`, name, id or path")]


@router.get("/skills", responses=errors())
def every_skill(
    request: Request,
    q: Annotated[str, Query(max_length=LONGEST, description="Words to search")] = "",
    source: Annotated[str, Query(max_length=32)] = "",
    state: Annotated[str, Query(max_length=32)] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
) -> SkillPage:
    """One page of the list, or of what a search finds."""
    found = list_skills(house_of(request).satchel, words=q, source=source, state=state, page=page)
    return SkillPage(
        skills=[row_model(row) for row in found.rows],
        total=found.total,
        page=found.page,
        pages=found.pages,
        more=found.most,
    )


@router.post("/skills", status_code=201, responses=errors(409, 413))
def add_skill(request: Request, asked: NewSkill) -> Done:
    """Write a new skill of the user's own. It can be undone."""
    house = house_of(request)
    store = house.satchel.store(asked.scope)
    skill_id = asked.id or id_for(asked.name, "")
    with store.plan_add(asked.name, asked.description, asked.body, skill_id=skill_id) as plan:
        return done(make(house, store, plan))


@router.get("/skill", responses=errors(404))
def one_skill(request: Request, ref: Which) -> OneSkill:
    """One skill."""
    satchel = house_of(request).satchel
    skill = find_skill(satchel, ref)
    row = row_model(row_of(satchel, skill))
    return OneSkill(
        **row.model_dump(),
        path=encodable(skill.path),
        editable=bool(own_scope(satchel, skill)),
        problems=ills(skill.head.problems),
    )


@router.delete("/skill", responses=errors(404, 409))
def remove_skill(request: Request, ref: Which) -> Done:
    """Take one of the user's own skills away. It can be undone."""
    house = house_of(request)
    skill = find_skill(house.satchel, ref)
    store = house.satchel.store_of(skill)
    with store.plan_remove([skill.head.id]) as plan:
        return done(make(house, store, plan))


@router.get("/skill/files", responses=errors(404))
def files(request: Request, ref: Which) -> FileTree:
    """The files of a skill."""
    found = list_files(house_of(request).satchel, ref)
    return FileTree(
        entries=[_entry(one) for one in found.entries],
        total=found.total,
        size=found.size,
        more=found.more,
        failed=encodable(found.failed),
    )


@router.get("/skill/file", responses=errors(404))
def file(
    request: Request,
    ref: Which,
    path: Annotated[str, Query(max_length=4096, description="Empty means its SKILL.md")] = "",
) -> FileText:
    """What a file of a skill holds, as text. Nothing outside its folder is ever read."""
    found = read_file(house_of(request).satchel, ref, path)
    return FileText(
        path=encodable(found.path),
        size=found.size,
        kind=found.kind,
        text=found.text,
        cut=found.cut,
        said=encodable(found.said),
    )


@router.get("/skill/why", responses=errors(404))
def why(request: Request, ref: Which) -> Why:
    """What became of a skill, and what to do next."""
    satchel = house_of(request).satchel
    story = satchel.why(find_skill(satchel, ref))
    return Why(
        name=encodable(story.name),
        verdict=encodable(story.verdict),
        chapters=[
            Chapter(title=one.title, lines=[encodable(line) for line in one.lines], mood=one.mood)
            for one in story.chapters
        ],
        advice=[encodable(one) for one in story.advice],
    )


def _entry(entry: Entry) -> FileEntry:
    return FileEntry(
        name=entry.name,
        path=entry.path,
        kind=entry.kind,
        size=entry.size,
        said=encodable(entry.said),
        inside=[_entry(one) for one in entry.inside],
    )
