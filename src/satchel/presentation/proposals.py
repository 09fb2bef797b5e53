"""Records of requests for approval: the question, and the changes that a program proposes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from satchel.i18n import say
from satchel.presentation.diffs import parse_diff

if TYPE_CHECKING:
    from satchel.presentation.diffs import Diff
    from satchel.session.permissions import ApprovalRequest
    from satchel.tools.proposed_changes import ProposedChange

MAX_ARGUMENT_CHARS = 6_000


class ProposalShown(NamedTuple):
    """One change that a program proposes."""

    path: str
    kind: str
    tone: str
    size: str
    link: str
    mode: str
    """Whether it is executable, or becomes so, in words."""
    diff: Diff | None
    """None when it is empty, binary or too long."""


class RequestShown(NamedTuple):
    """A request for approval."""

    key: str
    question: str
    arguments: str
    """Of the call, as JSON."""
    changes: tuple[ProposalShown, ...]


def show_request(key: str, request: ApprovalRequest) -> RequestShown:
    """Return the record of a request."""
    arguments = json.dumps(dict(request.arguments), ensure_ascii=False, indent=2, default=str)
    changes = tuple(map(_show_proposal, request.changes))
    return RequestShown(key, request.question, arguments[:MAX_ARGUMENT_CHARS], changes)


def _show_proposal(change: ProposedChange) -> ProposalShown:
    return ProposalShown(
        path=change.path,
        kind=kind_label(change),
        tone={"created": "good", "deleted": "bad"}.get(change.kind, "info"),
        size=format_sizes(change),
        link=change.link,
        mode=change.mode_words,
        diff=parse_diff(change.path, change.diff) if change.diff else None,
    )


def kind_label(change: ProposedChange) -> str:
    """Return what happens to a file."""
    return {"created": say("created"), "changed": say("changed"), "deleted": say("deleted")}[
        change.kind
    ]


def format_sizes(change: ProposedChange) -> str:
    """Return the sizes before and after."""
    sizes = [f"{size:,}" for size in (change.old_size, change.new_size) if size is not None]
    return say("{size} bytes", size=" → ".join(sizes))
