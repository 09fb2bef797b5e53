"""The page of settings, and the switch that offers one skill or not."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import Response

from satchel.errors import NotFound
from satchel.i18n import say
from satchel.presentation.skill_lookup import find_skill
from satchel.settings import SETTINGS
from satchel.store.setting_files import (
    APPLIED_AT_ONCE,
    change_exclusion,
    find_origin,
    value_text,
)
from satchel.ui.flash import Flash
from satchel.ui.templating import app_state, flash_address, go_to, page

router = APIRouter()
Scope = Literal["user", "project"]
_FIRST = ("model", "budget", "trust", "sandbox", "locations", "include", "exclude", "pin")
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@router.get("/settings")
def settings(request: Request) -> Response:
    """Show each setting with its value and where it comes from."""
    state = app_state(request)
    current = state.satchel.settings
    names = [*_FIRST, *(name for name in _BY_NAME if name not in _FIRST)]
    rows = [
        (_BY_NAME[name], value_text(getattr(current, name)), find_origin(current, _BY_NAME[name]))
        for name in names
    ]
    is_fixed = state.access.has_remote_users
    return page(
        request, "settings.html", rows=rows, first=len(_FIRST), fixed=is_fixed, describe=say
    )


@router.post("/settings")
def change(
    request: Request,
    name: Annotated[str, Form(max_length=40)],
    value: Annotated[str, Form(max_length=10_000)] = "",
    scope: Annotated[Scope, Form()] = "user",
) -> Response:
    """Write a setting; an empty value removes it."""
    state = app_state(request)
    if name not in _BY_NAME:
        raise NotFound(say("There is no setting `{name}`", name=name), say("Reload the page"))
    state.require_local_user(say("Settings cannot be changed here"), "satchel config set")
    previous = state.change_setting(_BY_NAME[name], value.strip(), scope)
    is_applied = name in APPLIED_AT_ONCE
    details = () if is_applied else (say("Restart `satchel ui` to apply it"),)
    tone = "good" if is_applied else "info"
    flash = Flash(say("Saved"), details, tone, setting=(name, previous, scope))
    return go_to(request, flash_address(request, flash, "/settings"))


@router.post("/skill/offer")
def offer(
    request: Request,
    ref: Annotated[str, Query(max_length=4_096)],
    offered: Annotated[Literal["on", "off"], Form()],
) -> Response:
    """Offer a skill of this project or not, by the setting `exclude`."""
    state = app_state(request)
    skill = find_skill(state.satchel, ref)
    value = change_exclusion(state.satchel.settings, skill.name, offered=offered == "on")
    previous = state.change_setting(_BY_NAME["exclude"], value, "project")
    message = say("The skill is on") if offered == "on" else say("The skill is off")
    flash = Flash(message, setting=("exclude", previous, "project"))
    return go_to(request, flash_address(request, flash, "/skill", ref=ref))
