"""What of a form or an address cannot be used? In our words, with the name its reader knows.

What a framework finds is English, and made for programmers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from satchel._language import listed, say

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHOICE = re.compile(r"'([^']*)'")
_MOST_CHOICES = 8
_NO_INTEGER = frozenset(("int_parsing", "int_type", "int_from_float", "int_parsing_size"))


def invalid(error: Mapping[str, Any]) -> str:
    """Return one validation error of pydantic as a sentence."""
    place = tuple(str(one) for one in error.get("loc", ()))
    path = ".".join(place[1:]) or "body"
    name = label_of(*place[:2])
    field = f"“{name}”" if name else f"`{path}`"
    return _sentence(error, field)


def unreadable(words: str) -> str:
    """What is wrong with a form that the framework could not take apart, by what it said."""
    if words.startswith("Too many files"):
        return say("The form has too many files")
    if words.startswith("Too many"):
        return say("The form has too many fields")
    if "exceeded maximum size" in words:
        return say("A field of the form is too long")
    return say("What was sent cannot be read")


def _sentence(error: Mapping[str, Any], field: str) -> str:
    kind = str(error.get("type", ""))
    limits: Mapping[str, Any] = error.get("ctx") or {}
    told = _beyond(kind, limits, field) or _other(kind, limits, field)
    return told or say("{field} is not what belongs there", field=field)


def _beyond(kind: str, limits: Mapping[str, Any], field: str) -> str:
    """A limit that was not kept."""
    if kind == "string_too_long":
        most = limits.get("max_length", 0)
        return say("{field} has more than {most} characters", field=field, most=most)
    if kind == "greater_than_equal":
        return say("{field} must be at least {least}", field=field, least=limits.get("ge", 0))
    if kind == "less_than_equal":
        return say("{field} must be at most {most}", field=field, most=limits.get("le", 0))
    return ""


def _other(kind: str, limits: Mapping[str, Any], field: str) -> str:
    """Something that is not there, or is something else."""
    if kind in {"missing", "string_too_short"}:
        return say("{field} is missing", field=field)
    if kind in _NO_INTEGER:
        return say("{field} is not a whole number", field=field)
    choices = _CHOICE.findall(str(limits.get("expected", "")))
    if kind in {"literal_error", "enum"} and 0 < len(choices) <= _MOST_CHOICES:
        names = listed(f"`{one}`" for one in choices)
        return say("{field} is none of {names}", field=field, names=names)
    return ""


def label_of(part: str = "", name: str = "") -> str:
    """What a page calls a field that people fill in; nothing for those that pages fill in."""
    if part == "query":
        return {
            "budget": say("Budget"),
            "goal": say("A request"),
            "q": say("Search the skills"),
            "unit": say("Counted in"),
        }.get(name, "")
    if part != "body":
        return ""
    return {
        "accept_risk": say("Why it may be installed all the same"),
        "description": say("Description"),
        "name": say("Name"),
        "note": say("Note"),
        "own": say("Id"),
        "password": say("Password"),
        "path": say("Folder in it"),
        "ref": say("Branch, tag or commit"),
        "scope": say("Where"),
        "source": say("Address"),
    }.get(name, "")
