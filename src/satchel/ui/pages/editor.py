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
from satchel.presentation.changes import diff_of_texts, done_words
from satchel.presentation.drafts import check_draft, encode_text, open_draft, remark_of
from satchel.presentation.files import read_bytes
from satchel.presentation.skills import find_file
from satchel.ui.errors import failure_of
from satchel.ui.flash import Flash
from satchel.ui.middleware import MAX_EDIT_BYTES
from satchel.ui.pages.changes import apply_all
from satchel.ui.templating import address, app_state, go_to, page

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
    text, _ = await _typed(request)
    return await run_in_threadpool(_check, request, ref, text)


@router.post("/skill/edit")
async def save(request: Request, ref: Ref, path: Ref = "") -> Response:
    """Save the text as one change that can be undone; never over a concurrent change."""
    text, digest = await _typed(request)
    return await run_in_threadpool(_save, request, ref, path, text, digest)


async def _typed(request: Request) -> tuple[str, str]:
    """The text, and the digest of the version it is based on.

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
    skill = find_file(satchel, ref)
    satchel.store_of(skill)
    return page(request, "change/check.html", checked=check_draft(satchel, skill, text))


def _save(request: Request, ref: str, path: str, text: str, digest: str) -> Response:
    state = app_state(request)
    try:
        skill = find_file(state.satchel, ref)
        store, file = state.satchel.store_of(skill), path or skill.head.file
        before = read_bytes(state.satchel, ref, file, MAX_EDIT_BYTES)
        files = {file: encode_text(text, before)}
        with store.plan_edit(skill.head.id, files, expect={file: digest}) as plan:
            receipt = apply_all(state, store, plan)
            words, more = done_words(plan, receipt)
    except SatchelError as exc:
        return _not_saved(request, ref, path, text, exc)
    tone = "warn" if receipt.trouble else "good"
    note = Flash(words, more, tone, store.scope.name, receipt.number)
    return go_to(request, address("/skill/edit", ref=ref, path=path, told=state.flash.add(note)))


def _not_saved(request: Request, ref: str, path: str, text: str, exc: SatchelError) -> Response:
    """Show the error beside the typed text, also when the file is gone."""
    clash = isinstance(exc, Conflict)
    try:
        return _edit_page(request, ref, path, text, None if clash else remark_of(exc), clash=clash)
    except SatchelError as closed:
        failure = failure_of(closed)
    return page(request, "change/kept.html", status=failure.status, failure=failure, text=text)


def _edit_page(
    request: Request,
    ref: str,
    path: str,
    text: str | None = None,
    trouble: Remark | None = None,
    *,
    clash: bool = False,
) -> Response:
    satchel = app_state(request).satchel
    skill = find_file(satchel, ref)
    draft = open_draft(satchel, skill, ref, path)
    mine = draft.text if text is None else text.replace("\r\n", "\n")
    return page(
        request,
        "change/edit.html",
        status=409 if clash else 422 if trouble is not None else 200,
        ref=ref,
        skill=skill,
        draft=draft,
        text=mine,
        checked=check_draft(satchel, skill, mine) if draft.file == skill.head.file else None,
        trouble=trouble,
        clash=clash,
        diff=diff_of_texts(draft.file, draft.text, mine) if clash else None,
    )
