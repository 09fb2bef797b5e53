"""A change that waits for a yes: shown, carried out, taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel._language import say
from satchel.errors import Blocked, Conflict, InvalidInput, SatchelError
from satchel.presentation import undone_words
from satchel.ui.carrying import carry_out, take_back, throw_away
from satchel.ui.house import Note, waits_no_more
from satchel.ui.view import address, go_to, house_of, page, part, wants_part
from satchel.ui.views.changes import (
    EVERY,
    done_words,
    is_idle,
    left_alone,
    show_diff,
    show_history,
    show_plan,
)
from satchel.ui.views.drafts import Remark, trouble_of
from satchel.ui.views.skills import find_file, find_skill, key_of, show_scopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.store.plan import Plan
    from satchel.store.store import Receipt, Store
    from satchel.ui.house import House, Waiting
    from satchel.ui.views.changes import PlanShown

router = APIRouter()
Scope = Literal["project", "global"]
Number = Annotated[int, Form(ge=1)]


@router.post("/skills/remove")
def remove(request: Request, ref: Annotated[str, Query(max_length=4_096)]) -> Response:
    """Make a plan to remove one skill of the user's, and show it."""
    house = house_of(request)
    skill = find_file(house.satchel, ref)
    store = house.satchel.store_of(skill)
    plan = store.plan_remove([skill.head.id])
    waiting = house.desk.put(store, plan, ids=[skill.head.id])
    return go_to(request, f"/plans/{waiting.key}")


@router.post("/plans/lock")
def keep_change(request: Request, ref: Annotated[str, Query(max_length=4_096)]) -> Response:
    """Make a plan to record what somebody changed in an imported skill, and show it."""
    return _mend(request, ref, "lock")


@router.post("/plans/restore")
def restore(request: Request, ref: Annotated[str, Query(max_length=4_096)]) -> Response:
    """Make a plan to bring back what was imported, and show it."""
    return _mend(request, ref, "install")


def _mend(request: Request, ref: str, op: str) -> Response:
    house = house_of(request)
    skill = find_file(house.satchel, ref)
    store = house.satchel.store_of(skill)
    plan = _anew(house, store, op, [skill.head.id])
    waiting = house.desk.put(store, plan, ids=[skill.head.id])
    return go_to(request, f"/plans/{waiting.key}")


def _anew(house: House, store: Store, op: str, ids: Sequence[str]) -> Plan:
    """A plan of a kind that is about skills which are there already."""
    if op == "lock":
        return store.plan_lock(ids)
    if op == "install":
        # For people elsewhere the owner's git, keys and folders fetch nothing.
        return store.plan_install(ids, frozen=True, fetch=not house.access.strangers)
    return store.plan_remove(ids)


@router.get("/plans/{key}")
def plan_page(request: Request, key: str) -> Response:
    """What would be done, and what the scan says of it."""
    desk = house_of(request).desk
    if seen := desk.became(key):
        return go_to(request, seen)
    return _plan_page(request, desk.look(key))


@router.get("/plans/{key}/yes")
@router.get("/plans/{key}/no")
def answered(request: Request, key: str) -> Response:
    """The page of an answer, loaded again: in another language, or from the address bar."""
    return go_to(request, f"/plans/{quote(key, safe='')}")


@router.get("/plans/{key}/diff")
def diff(
    request: Request,
    key: str,
    step: Annotated[int, Query(ge=0)],
    path: Annotated[str, Query(max_length=4_096)],
) -> Response:
    """How one file would change, line by line."""
    waiting = house_of(request).desk.look(key)
    try:
        found = show_diff(waiting.plan, step, path)
    except OSError as exc:  # it was thrown away while we read
        raise waits_no_more() from exc
    if wants_part(request):
        return part(request, "change/diff.html", diff=found)
    return page(request, "change/diff_page.html", diff=found, key=key)


@router.post("/plans/{key}/yes")
def say_yes(
    request: Request,
    key: str,
    accept_risk: Annotated[str, Form(max_length=500)] = "",
    overwrite: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Do it; what would be lost and nobody ticked stays as it is."""
    house = house_of(request)
    with house.desk.turn(key):
        if seen := house.desk.became(key):  # the second click of two
            return go_to(request, seen)
        return _say_yes(request, house, house.desk.look(key), accept_risk, overwrite or ())


def _say_yes(
    request: Request, house: House, waiting: Waiting, reason: str, ticked: Sequence[str]
) -> Response:
    plan = waiting.plan
    leave = left_alone(plan, ticked)
    if is_idle(plan, leave):
        trouble = trouble_of(
            InvalidInput(
                say("Nothing was done: you did not tick what may be overwritten"),
                say("Tick the box, then press the button again"),
            )
        )
        return _plan_page(request, waiting, trouble, 422, reason=reason)
    try:
        receipt = carry_out(house, waiting.key, reason, leave)
    except Blocked as exc:
        words = Remark(
            "bad", "✗", "", 0, exc.message, say("Read what it found. To install it all the same, "
                                                "type why")
        )  # fmt: skip
        return _plan_page(request, waiting, words, 403, ticked=ticked)
    except Conflict as exc:
        return _look_again(request, house, waiting, exc)
    seen = _done(house, waiting.store, plan, receipt)
    house.desk.becomes(waiting.key, seen)
    return go_to(request, seen)


@router.post("/plans/{key}/no")
def say_no(request: Request, key: str) -> Response:
    """Throw it away."""
    house = house_of(request)
    throw_away(house, key)
    note = Note(say("Nothing was changed"), tone="info")
    return go_to(request, address("/skills", told=house.notes.put(note)))


@router.get("/history")
def history(request: Request) -> Response:
    """What was changed, and what can be taken back."""
    rows = [show_history(scope) for scope in show_scopes(house_of(request).satchel)]
    return page(request, "change/history.html", histories=rows)


@router.post("/undo")
def undo(
    request: Request,
    number: Number,
    scope: Annotated[Scope, Form()] = "project",
    back: Annotated[Literal["/skills", "/history"], Form()] = "/skills",
    ref: Annotated[str, Form(max_length=4_096)] = "",
) -> Response:
    """Take the last change back, if it is still the one that the reader saw."""
    return _undo(request, scope, number, (back, ref), redo=False)


@router.post("/redo")
def redo(
    request: Request,
    number: Number,
    scope: Annotated[Scope, Form()] = "project",
    back: Annotated[Literal["/skills", "/history"], Form()] = "/skills",
    ref: Annotated[str, Form(max_length=4_096)] = "",
) -> Response:
    """Take the last undo back."""
    return _undo(request, scope, number, (back, ref), redo=True)


def _undo(
    request: Request, scope: Scope, number: int, back: tuple[str, str], *, redo: bool
) -> Response:
    house = house_of(request)
    done = take_back(house, house.satchel.store(scope), number, redo=redo)
    note = Note(
        undone_words(done, redo=redo),
        tuple(line for line in (*done.trouble, *done.notes, *done.repaired) if line),
        "warn" if done.trouble else "good",
        scope=scope,
        number=done.number,
        undone=not redo,
    )
    return go_to(request, _back(house, *back, house.notes.put(note)))


def _back(house: House, back: str, ref: str, told: str) -> str:
    """Where the reader came from: the editor of a skill, as long as there is one of it."""
    try:
        if ref:
            house.satchel.store_of(find_file(house.satchel, ref))
            return address("/skill/edit", ref=ref, told=told)
    except SatchelError:
        pass  # the skill itself was taken back
    return address(back, told=told)


def _done(house: House, store: Store, plan: Plan, receipt: Receipt) -> str:
    """The address at which a change that was made is told, and can be taken back."""
    words, more = done_words(plan, receipt)
    here = [step.id for step in receipt.done if step.kind != "remove"]
    links: list[tuple[str, str]] = []
    shown = ""
    for skill_id in here[:3]:
        try:
            found = find_skill(house.satchel, store.scope.target(skill_id))
        except SatchelError:  # somebody was quicker, or it is left out by a setting
            continue
        links.append((say("Open `{name}`", name=skill_id), address("/skill", ref=found.ref)))
        shown = found.ref if len(here) == 1 else ""
    note = Note(
        words,
        more,
        "warn" if receipt.left or receipt.trouble or not receipt.done else "good",
        store.scope.name,
        receipt.number,
        links=tuple(links),
    )
    row = f"#row-{key_of(shown)}" if shown else ""
    return address("/skills", open=shown, told=house.notes.put(note)) + row


def _look_again(request: Request, house: House, waiting: Waiting, exc: Conflict) -> Response:
    """Somebody was quicker: the same change, made ready anew against what is there now."""
    try:
        if waiting.ids:
            plan = _anew(house, waiting.store, waiting.plan.op, waiting.ids)
            fresh = house.desk.put(waiting.store, plan, ids=waiting.ids)
        else:
            arrival = house.arrivals.look(waiting.arrival)
            fresh = house.desk.look(house.arrivals.choose(arrival, arrival.chosen))
    except SatchelError:
        # It cannot be made ready anew; why it was not done is what counts.
        raise exc from None
    words = say("Nothing was done. This is how it looks now; decide again")
    told = house.notes.put(Note(exc.message, (words,), "warn"))
    house.desk.becomes(waiting.key, address(f"/plans/{fresh.key}", told=told))
    return _plan_page(request, fresh, trouble_of(exc)._replace(fix=words), 409)


def _plan_page(
    request: Request,
    waiting: Waiting,
    trouble: Remark | None = None,
    status: int = 200,
    *,
    reason: str = "",
    ticked: Sequence[str] = (),
) -> Response:
    return page(
        request,
        "change/plan.html",
        status=status,
        key=waiting.key,
        plan=_shown(waiting),
        about=waiting,
        trouble=trouble,
        every=EVERY,
        reason=reason,
        ticked=ticked,
    )


def _shown(waiting: Waiting) -> PlanShown:
    try:
        return show_plan(waiting.plan, waiting.store)
    except OSError as exc:  # it was thrown away while we read
        raise waits_no_more() from exc
