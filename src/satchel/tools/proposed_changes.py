"""Lets a person decide about the changes that a program proposes, and applies what is accepted.

Changes that need no consent of their own are decided together, each other one by itself. Accepted
changes are applied at once: all or none.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from satchel._unicode import replace_unprintable
from satchel.i18n import Message, render, say
from satchel.runners.base import is_cancelled
from satchel.tools.base import CallCancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from satchel.runners.base import Cancel, Change, ChangeKind, ChangeProposal, RunResult
    from satchel.tools.base import ToolCall

MAX_NOTICES = 10
MAX_CONSENTS = 10
"""Files of one call that each need a consent of their own and are asked about."""
MAX_SHOWN_DIFF_CHARS = 200_000
"""Of all diffs that one decision shows."""
_MAX_PATH_CHARS = 300
_MAX_NAMES = 20
_FAILED = Message("the program failed")
_BAD_STATUS = Message("the program failed: files change only when it ends with status 0")
_CANCELLED = Message("the call was cancelled")
_DECLINED = Message("the user did not agree")
NEEDS_PERSON = Message("a person must accept it, and none can be asked here")
NEEDS_CONSENT = Message(
    "it runs automatically or changes how other programs behave, so a person must accept it"
)
_NEXT_STEPS: dict[str, Message] = {
    _BAD_STATUS: Message(
        "Correct what failed and call the tool again; if the status is its answer, tell the user "
        "that it cannot change files this way"
    ),
    _DECLINED: Message(
        "Do not propose these changes again this way: ask what is wanted, or go on without them"
    ),
    NEEDS_PERSON: Message("Tell the user what you wanted to change, and go on without it"),
    NEEDS_CONSENT: Message("Tell the user what these files need: they can change them themselves"),
}


class ProposedChange(NamedTuple):
    """A change of a file or link that a program proposes, as a person sees it."""

    path: str
    """Relative to the workspace, as printable text."""
    kind: ChangeKind
    """What would happen to the file."""
    old_size: int | None = None
    """Bytes of the file as it is; None when it is created."""
    new_size: int | None = None
    """Bytes of the file as it would be; None when it is deleted."""
    diff: str = ""
    """A unified diff of printable text, with a last line `…` where it was cut; empty for a link,
    and for what is binary or too long."""
    executable: bool = False
    """Whether the file would be executable."""
    link: str = ""
    """The target as printable text, where it would be a link."""
    needs_consent: bool = False
    """Whether the file runs automatically or changes how other programs behave."""
    was_executable: bool = False
    """Whether the file is executable now."""

    @property
    def mode_words(self) -> str:
        """Whether the file is executable, and whether that changes; empty if it is not."""
        if self.kind == "changed" and self.executable != self.was_executable:
            return say("becomes executable") if self.executable else say("no longer executable")
        return say("executable") if self.executable else ""


class ProposalOutcome(NamedTuple):
    """Which of the proposed changes were applied."""

    rows: tuple[dict[str, Any], ...] = ()
    """What was applied, for `data`."""
    denied: tuple[str, ...] = ()
    """A sentence for each change that was not applied; a limited number."""
    notes: tuple[Message, ...] = ()
    """What the model must know."""
    lost: tuple[str, ...] = ()
    """A sentence for each kind of files and folders that were not kept."""


def apply_proposal(call: ToolCall, result: RunResult) -> ProposalOutcome:
    """Apply the changes that are accepted, if the program did not fail; discard the others."""
    proposal = result.changes
    if proposal is None:
        return ProposalOutcome()
    try:
        denied = [(change.path, change.reason) for change in proposal.refused]
        if result.fault is not None or result.error:
            reason = _BAD_STATUS if result.fault == "exit-code" else _FAILED
            denied += [(change.path, reason) for change in proposal.changes]
            return _outcome((), denied)
        accepted = _review(call, proposal, denied)
        if _is_cancelled(call.cancel):
            denied += [(change.path, _CANCELLED) for change in accepted]
            return _outcome((), denied)
        application = proposal.apply(accepted)
    finally:
        proposal.discard()
    reason = Message("it was changed meanwhile by something else, so nothing was applied")
    denied += [(path, reason) for path in application.conflicts]
    if application.trouble:
        reason = Message("the workspace cannot be written: {reason}", reason=application.trouble)
        denied += [(change.path, reason) for change in accepted]
    reason = Message("it was moved to a file that is not changed, so it stays")
    denied += [(path, reason) for path in application.kept]
    lost = _lost(proposal)
    outcome = _outcome(application.applied, denied, lost)
    if not application.conflicts:
        return outcome
    step = Message("Look at the files as they are now, then call the tool again")
    return outcome._replace(notes=(*outcome.notes, step))


def _review(
    call: ToolCall, proposal: ChangeProposal, denied: list[tuple[str, Message]]
) -> list[Change]:
    """Get a decision about each change; returns the accepted ones and adds the others."""
    accepted: list[Change] = []
    for changes in _groups(proposal, denied):
        answer: bool | str = NEEDS_PERSON
        if _is_cancelled(call.cancel):
            answer = _CANCELLED
        elif call.review is not None:
            try:
                answer = call.review(changes, proposal.diff)
            except CallCancelled:
                answer = _CANCELLED
        if answer is True:
            accepted += changes
            continue
        reason = answer if isinstance(answer, Message) else _DECLINED
        denied += [(change.path, reason) for change in changes]
    return accepted


def _is_cancelled(cancel: Cancel | None) -> bool:
    return cancel is not None and is_cancelled(cancel)


def _groups(
    proposal: ChangeProposal, denied: list[tuple[str, Message]]
) -> Iterator[tuple[Change, ...]]:
    """The changes that are decided together."""
    if proposal.permitted:
        yield proposal.permitted
    with_consent = [change for change in proposal.changes if change.needs_consent]
    for change in with_consent[:MAX_CONSENTS]:
        yield (change,)
    reason = Message("a person is asked about {count} such files at most", count=MAX_CONSENTS)
    denied += [(change.path, reason) for change in with_consent[MAX_CONSENTS:]]


def _lost(proposal: ChangeProposal) -> list[Message]:
    """What a program wrote that can be no change."""
    lost: list[Message] = []
    if proposal.scratch_files:
        text = (
            "Files in `/tmp` and in the home folder were not kept: {names}. Only the working "
            "folder is kept: have the files written there"
        )
        lost.append(Message(text, names=_named(proposal.scratch_files)))
    if proposal.empty_folders:
        text = "Empty folders were not kept: {names}"
        lost.append(Message(text, names=_named(proposal.empty_folders)))
    return lost


def _named(paths: Sequence[str]) -> list[str | Message]:
    names: list[str | Message] = [f"`{shown_path(path)}`" for path in paths[:_MAX_NAMES]]
    if len(paths) > _MAX_NAMES:
        names.append(Message("and {count} more", count=len(paths) - _MAX_NAMES))
    return names


def _outcome(
    applied: Iterable[Change], denied: list[tuple[str, Message]], lost: Sequence[Message] = ()
) -> ProposalOutcome:
    sentences = [_denial(path, reason) for path, reason in denied[:MAX_NOTICES]]
    if len(denied) > MAX_NOTICES:
        unlisted_count = len(denied) - MAX_NOTICES
        sentences.append(Message("files: {count} more were not changed", count=unlisted_count))
    reasons = dict.fromkeys(reason for _, reason in denied)
    steps = [_NEXT_STEPS[reason] for reason in reasons if reason in _NEXT_STEPS]
    rows = tuple(describe_change(change) for change in applied)
    names = _named([row["path"] for row in rows])
    notes = [Message("Changed files: {names}", names=names)] if names else []
    notes += [*sentences, *steps, *lost]
    return ProposalOutcome(
        rows, tuple(map(render, sentences)), tuple(notes), tuple(map(render, lost))
    )


def describe_change(change: Change) -> dict[str, Any]:
    """A change as JSON."""
    row = {
        name: value for name, value in change._asdict().items() if value not in (None, "", False)
    }
    return {**row, "path": shown_path(change.path)}


def change_notes(data: Mapping[str, Any]) -> tuple[str, ...]:
    """What a call changed, and what was not applied, from the data of its envelope; no contents."""
    rows: list[dict[str, Any]] = data.get("changes") or []
    notes = [_change_note(row) for row in rows[:_MAX_NAMES]]
    if len(rows) > _MAX_NAMES:
        notes.append(Message("files: {count} more were changed", count=len(rows) - _MAX_NAMES))
    return (*notes, *(data.get("denied") or ()), *(data.get("lost") or ()))


def _change_note(row: Mapping[str, Any]) -> Message:
    path, old, new = row["path"], f"{row.get('old_size', 0):,}", f"{row.get('new_size', 0):,}"
    if row["kind"] == "created":
        return Message("files: `{path}` was created: {new} bytes", path=path, new=new)
    if row["kind"] == "deleted":
        return Message("files: `{path}` was deleted: {old} bytes", path=path, old=old)
    mode = (bool(row.get("was_executable")), bool(row.get("executable")))
    text = {
        (False, True): "files: `{path}` was changed and is executable now: {old} bytes before, "
        "{new} bytes now",
        (True, False): "files: `{path}` was changed and is no longer executable: {old} bytes "
        "before, {new} bytes now",
    }.get(mode, "files: `{path}` was changed: {old} bytes before, {new} bytes now")
    return Message(text, path=path, old=old, new=new)


def show_changes(
    changes: Iterable[Change], diff: Callable[[Change], str]
) -> tuple[ProposedChange, ...]:
    """Changes as a person sees them, with diffs up to a limit of their total size."""
    proposed: list[ProposedChange] = []
    remaining_chars = MAX_SHOWN_DIFF_CHARS
    for change in changes:
        text = diff(change) if remaining_chars > 0 else "…"
        remaining_chars -= len(text)
        proposed.append(
            ProposedChange(
                path=shown_path(change.path),
                kind=change.kind,
                old_size=change.old_size,
                new_size=change.new_size,
                diff=text,
                executable=change.executable,
                link=shown_path(change.link),
                needs_consent=change.needs_consent,
                was_executable=change.was_executable,
            )
        )
    return tuple(proposed)


def shown_path(path: str) -> str:
    """An untrusted path as one line of printable characters."""
    plain = replace_unprintable(os.fsencode(path).decode(errors="replace"), "?").replace("`", "?")
    half = _MAX_PATH_CHARS // 2  # the name at the end says what the file is
    return plain if len(plain) <= _MAX_PATH_CHARS else f"{plain[:half]}…{plain[-half:]}"


def _denial(path: str, reason: Message) -> Message:
    return Message(
        "files: `{path}` was not changed: {reason}", path=shown_path(path), reason=reason
    )
