"""`Envelope`, the result of every tool call.

It has exactly six top-level fields: status, data, text, error, stats, context. `error` is present
only when the status is `error`. `text` is what the model reads.
"""

from __future__ import annotations

import json
from typing import Any, Literal, NamedTuple

from satchel.i18n import Message, for_model

Status = Literal["success", "partial", "error"]
ErrorCode = Literal[
    "NOT_FOUND",
    "ACCESS_DENIED",
    "PERMISSION_DENIED",
    "INVALID_PARAM",
    "TIMEOUT",
    "INTERNAL_ERROR",
    "EXECUTION_ERROR",
    "CONFLICT",
    "IS_DIRECTORY",
    "BINARY_FILE",
]


class ErrorInfo(NamedTuple):
    """Why a tool has no usable result."""

    code: ErrorCode
    """The kind of error; the page on errors lists the codes."""
    message: str
    """What happened, in one sentence."""
    hint: str = ""
    """The next step, also part of `text`; not in the wire form."""
    bug: bool = False
    """The tool raised an unexpected exception; not in the wire form."""


class Envelope(NamedTuple):
    """The result of a tool call: a status, the text for the model, and the same as data.

    Example:
        from satchel import Satchel

        session = Satchel.for_project(".").session()
        reply = session.call("Skill", {"name": "nothing"})
        assert reply.status == "error"
        assert reply.error is not None
        print(reply.error.code, reply.text)
    """

    status: Status
    """`success`: complete. `partial`: usable but discounted. `error`: no usable result."""
    data: dict[str, Any]
    """The result as JSON values; empty after an error."""
    text: str
    """What the model reads: what was done, and for partial or error the next step."""
    error: ErrorInfo | None
    """What went wrong; None unless the status is `error`."""
    stats: dict[str, Any]
    """`time_ms` always; counts and sizes as needed."""
    context: dict[str, Any]
    """`cwd`, `params_input`, and `path_resolved` where a path was resolved."""

    def to_dict(self) -> dict[str, Any]:
        """The wire form: no `error` key unless there is an error."""
        record: dict[str, Any] = {
            "status": self.status,
            "data": self.data,
            "text": self.text,
            "stats": self.stats,
            "context": self.context,
        }
        if self.error is not None:
            record["error"] = {"code": self.error.code, "message": self.error.message}
        return record

    def to_json(self) -> str:
        """The wire form as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def answer(
    text: str,
    data: dict[str, Any],
    *,
    params: dict[str, Any],
    time_ms: int,
    partial: bool = False,
    stats: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
) -> Envelope:
    """Build the envelope of a usable result, complete or partial."""
    return Envelope(
        "partial" if partial else "success",
        data,
        text,
        None,
        {"time_ms": time_ms, **(stats or {})},
        {"cwd": ".", "params_input": params, **(context or {})},
    )


def failure(
    code: ErrorCode,
    message: str,
    next_step: str,
    *,
    params: dict[str, Any],
    time_ms: int,
    data: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
) -> Envelope:
    """Build the envelope of a failed call; `next_step` is what the model should do instead."""
    return Envelope(
        "error",
        data or {},
        for_model(
            Message("{message}. {step}", people="{message}", message=message, step=next_step)
            if next_step
            else message
        ),
        ErrorInfo(code, message, next_step),
        {"time_ms": time_ms},
        {"cwd": ".", "params_input": params, **(context or {})},
    )
