"""The editor of a skill's files. A file is saved only over the version that was loaded.

The skill's own file is checked while typing. Every response contains the typed text, since it is
stored nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from satchel.errors import Conflict, SatchelError
from satchel.presentation.changes import result_message
from satchel.presentation.diffs import diff_of_texts
from satchel.presentation.drafts import check_draft, encode_text, error_remark, open_draft
from satchel.presentation.files import read_bytes
from satchel.presentation.skill_lookup import find_editable_skill
from satchel.ui.errors import failure_of
from satchel.ui.flash import Flash
from satchel.ui.middleware import MAX_EDIT_BYTES
from satchel.ui.pages.changes import apply_all
from satchel.ui.templating import app_state, flash_address, go_to, page

if TYPE_CHECKING:
    from satchel.presentation.drafts import Remark

router = APIRouter()
Ref = Annotated[str, Query(max_length=4_096)]
_MAX_FORM_FIELDS = 8


@router.get("/skill/edit")
def edit_page(request: Request, ref: Ref, path: Ref = "") -> Response:
    """Show the file."""
    return _edit_page(request, ref, path)


@router.post("/skill/edit/check")
async def check(request: Request, ref: Ref) -> Response:
    """Check the text of the skill's own file; nothing is saved."""
    text, _ = await _read_form(request)
    return await run_in_threadpool(_check, request, ref, text)


@router.post("/skill/edit")
async def save(request: Request, ref: Ref, path: Ref = "") -> Response:
    """Save the text as one change that can be undone; never over a concurrent change."""
    text, digest = await _read_form(request)
    return await run_in_threadpool(_save, request, ref, path, text, digest)


async def _read_form(request: Request) -> tuple[str, str]:
    """Return the text, and the digest of the version it is based on.

    The default limit of a field is 1 MiB of the encoded form, which is a third of that in Chinese.
    Here only the limit of the body counts: a text too large to be saved can still be shown.
    """
    async with request.form(
        max_files=0, max_fields=_MAX_FORM_FIELDS, max_part_size=MAX_EDIT_BYTES
    ) as form:
        text, digest = form.get("text", ""), form.get("digest", "")
    return text if isinstance(text, str) else "", digest if isinstance(digest, str) else ""


def _check(request: Request, ref: str, text: str) -> Response:
    satchel = app_state(request).satchel
    skill = find_editable_skill(satchel, ref)
    satchel.store_of(skill)
    return page(request, "change/check.html", checked=check_draft(satchel, skill, text))


def _save(request: Request, ref: str, path: str, text: str, digest: str) -> Response:
    state = app_state(request)
    try:
        skill = find_editable_skill(state.satchel, ref)
        store, file = state.satchel.store_of(skill), path or skill.head.file
        before = read_bytes(state.satchel, ref, file, MAX_EDIT_BYTES)
        files = {file: encode_text(text, before)}
        with store.plan_edit(skill.head.id, files, expect={file: digest}) as plan:
            receipt = apply_all(state, store, plan)
            message, details = result_message(plan, receipt)
    except SatchelError as exc:
        return _unsaved_page(request, ref, path, text, exc)
    tone = "warn" if receipt.trouble else "good"
    flash = Flash(message, details, tone, store.scope.name, receipt.number)
    return go_to(request, flash_address(request, flash, "/skill/edit", ref=ref, path=path))


def _unsaved_page(request: Request, ref: str, path: str, text: str, exc: SatchelError) -> Response:
    """Show the error beside the typed text, also when the file is gone."""
    has_conflict = isinstance(exc, Conflict)
    error = None if has_conflict else error_remark(exc)
    try:
        return _edit_page(request, ref, path, text, error, has_conflict=has_conflict)
    except SatchelError as page_error:
        failure = failure_of(page_error)
    return page(request, "change/kept.html", status=failure.status, failure=failure, text=text)


def _edit_page(
    request: Request,
    ref: str,
    path: str,
    text: str | None = None,
    trouble: Remark | None = None,
    *,
    has_conflict: bool = False,
) -> Response:
    satchel = app_state(request).satchel
    skill = find_editable_skill(satchel, ref)
    draft = open_draft(satchel, skill, ref, path)
    typed_text = draft.text if text is None else text.replace("\r\n", "\n")
    return page(
        request,
        "change/edit.html",
        status=409 if has_conflict else 422 if trouble is not None else 200,
        ref=ref,
        skill=skill,
        draft=draft,
        text=typed_text,
        checked=check_draft(satchel, skill, typed_text) if draft.file == skill.head.file else None,
        trouble=trouble,
        has_conflict=has_conflict,
        diff=diff_of_texts(draft.file, draft.text, typed_text) if has_conflict else None,
    )
