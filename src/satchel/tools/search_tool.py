"""SkillSearch: finds what the catalogue had no room for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.tools.frame import encodable, one_line, plural
from satchel.tools.selecting import search

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.detect.pipeline import SelectionPipeline
    from satchel.envelope import Envelope
    from satchel.library import Library
    from satchel.tools.base import Call
    from satchel.trace import Trace

DEFAULT_LIMIT = 10
MAX_LIMIT = 50
_DESCRIPTION = 200
_QUERY_IN_TRACE = 200


class SearchTool:
    """Finds skills by words about the task."""

    name = "SkillSearch"
    about_skills = True
    description = (
        "Find skills by a few words about the task, also those that are not listed. "
        "Returns names and descriptions; load one with Skill."
    )
    aliases: dict[str, str] = {}  # noqa: RUF012 - read only, as the protocol says
    parameters: dict[str, Any] = {  # noqa: RUF012 - same
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "A few words that say what is to be done, or a skill's name",
                "minLength": 1,
                "maxLength": 2000,
            },
            "limit": {
                "type": "integer",
                "description": f"How many to return; {DEFAULT_LIMIT} if left out",
                "minimum": 1,
                "maximum": MAX_LIMIT,
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(
        self, library: Library, detector: Callable[[], SelectionPipeline], trace: Trace
    ) -> None:
        self._library = library
        self._detector = detector
        self._trace = trace

    def run(self, call: Call) -> Envelope:
        """Search."""
        query = str(call.arguments["query"])
        limit = int(call.arguments.get("limit", DEFAULT_LIMIT))
        look = call.resolved.look if call.resolved is not None else self._library.snapshot()
        skills = look.for_model
        called = look.get(query.strip())
        if called is not None and not called.for_model:
            called = None
        detector = self._detector()
        found = search(detector, query, skills, limit, called)
        self._trace.record(
            "searched",
            [match.name for match in found],
            query=query[:_QUERY_IN_TRACE],
            detector=detector.name,
            reasons=[match.reason for match in found],
        )
        rows: list[dict[str, Any]] = []
        lines: list[str] = []
        for number, match in enumerate(found, 1):
            description = one_line(match.skill.description, _DESCRIPTION)
            reason = one_line(match.reason, _DESCRIPTION)
            rows.append(
                {
                    "name": encodable(match.name),
                    "description": description,
                    "score": float(match.score),
                    "reason": reason,
                }
            )
            origin = match.skill.origin.remote
            if origin:
                rows[-1]["origin"] = encodable(origin)
            name = one_line(match.name, _DESCRIPTION) + (f" [{one_line(origin)}]" if origin else "")
            why = f" ({reason})" if reason.strip() else ""
            lines.append(f"{number}. {name}: {description}{why}")
        stats = {"searched": len(skills), "matches": len(rows)}
        asked = one_line(query, 100)
        if not rows:
            text = (
                f"None of {plural(len(skills), 'skill')} has a word of `{asked}`. Try other or "
                "fewer words, or go on without a skill."
            )
            return call.answer(text, {"matches": []}, stats=stats)
        head = f"{plural(len(rows), 'skill')} of {len(skills):,} for `{asked}`, best first. "
        text = "\n".join((f"{head}Load one with Skill and its name.", *lines))
        return call.answer(text, {"matches": rows}, stats=stats)
