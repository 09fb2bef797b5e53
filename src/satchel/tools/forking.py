"""What does a conversation within another one get? A part of what that one has, never more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from satchel.tools.gate import Gate
from satchel.tools.permits import Grant, as_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.library import Library
    from satchel.skill.model import Skill
    from satchel.tools.holding import Held
    from satchel.trace import Trace


def narrowed(library: Library, include: Sequence[str], exclude: Sequence[str]) -> Library:
    """The skills that pass; all of them when nothing is said.

    Args:
        library: Which skills there are.
        include: Only skills whose name or id matches one of these patterns; all when empty.
        exclude: No skill that matches one of these.
    """
    include, exclude = as_patterns(include), as_patterns(exclude)
    if not (include or exclude):
        return library
    from satchel.library.filters import Filter
    from satchel.library.narrowed import NarrowedLibrary

    return NarrowedLibrary(library, Filter(include, exclude))


def narrowed_gate(
    gate: Gate, trace: Trace, tools: Sequence[str] | None, forbidden: Callable[[], list[Grant]]
) -> Gate:
    """Who decides about calls there: as here, and within `tools` too.

    Args:
        gate: Who decides here.
        trace: Where it is told.
        tools: Patterns of the tools that may be called; all that can be called here when None.
        forbidden: Gives what is forbidden here at the time of a call.
    """
    within = gate.within if tools is None else (*gate.within, as_patterns(tools))
    return Gate(trace, gate.approve, gate.ask, within, forbidden, gate.bell)


def forbidden_by(held: Iterable[Held]) -> list[Grant]:
    """What loaded skills forbid."""
    return [Grant(one.name, (), one.disallowed) for one in held if one.disallowed]


def fork_fields(library: Library, skill: Skill, *, as_person: bool) -> Mapping[str, Any] | None:
    """The frontmatter of a skill that can be loaded and wants to fork; None for any other.

    Raises:
        SatchelError: it cannot be read.
    """
    if skill.state != "active" or not (skill.for_model or as_person):
        return None
    fields = library.seals.read(skill).fields
    return fields if str(fields.get("context", "")).strip() == "fork" else None


def wishes(fields: Mapping[str, Any]) -> tuple[str, str]:
    """The sub-agent and the model that the author of a skill wants; empty for that of the host."""
    agent, model = (str(fields.get(key) or "").strip() for key in ("agent", "model"))
    return agent, "" if model == "inherit" else model
