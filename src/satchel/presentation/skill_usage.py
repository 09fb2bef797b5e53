"""How often skills are used, counted from the trace."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from satchel.satchel import Satchel

PERIOD_DAYS = 30
MAX_USED_SHOWN = 8
MAX_UNUSED_SHOWN = 20
KINDS = ("selected", "loaded", "ran", "failed")
"""Trace event kinds that are counted."""

Uses = dict[str, Counter[str]]
"""Kind -> skill -> count."""


class UsedSkill(NamedTuple):
    """The counts of one skill."""

    name: str
    ref: str
    """Empty when it is no longer installed."""
    counts: tuple[int, ...] = ()
    """In the order of `KINDS`."""


class UsageShown(NamedTuple):
    """The use of skills in the period."""

    is_recorded: bool
    top: list[UsedSkill]
    unused: list[UsedSkill]
    """Offered and never used; built-in ones last."""
    hidden_count: int
    """Number of unused skills that are not shown."""


def count_events(rows: Iterable[dict[str, Any]], since: float) -> Uses:
    """Count the rows of a trace that are not older than `since`, in seconds since the epoch."""
    uses: Uses = {kind: Counter() for kind in KINDS}
    for row in rows:
        timestamp, kind, skills = row.get("t"), row.get("kind"), row.get("skills")
        if not isinstance(timestamp, int | float) or timestamp < since or kind not in uses:
            continue
        has_failed = kind == "ran" and row.get("ended") != "well"
        if isinstance(skills, list) and not has_failed:
            names = cast("list[object]", skills)
            uses[kind].update({name for name in names if isinstance(name, str)})
    return uses


def show_usage(satchel: Satchel, uses: Uses) -> UsageShown:
    """Return the most used skills; and if any was used, those that were not."""
    total: Counter[str] = Counter()
    for kind in KINDS:
        total.update(uses[kind])
    snapshot = satchel.library.snapshot()
    top: list[UsedSkill] = []
    for name in sorted(total, key=lambda name: (-total[name], name))[:MAX_USED_SHOWN]:
        # A tool skill is offered by its tools and is not in the catalogue.
        skill = snapshot.get(name) or next(iter(satchel.library.named(name)), None)
        counts = tuple(uses[kind][name] for kind in KINDS)
        top.append(UsedSkill(name, skill.ref if skill is not None else "", counts))
    if not total:
        return UsageShown(satchel.trace.enabled, [], [], 0)
    offered = snapshot.for_model  # built-in ones last; not walked to its end: it may be large
    used = [skill for name in total if (skill := snapshot.get(name)) and skill.for_model]
    unused = (UsedSkill(skill.name, skill.ref) for skill in offered if skill.name not in total)
    first_unused = list(islice(unused, MAX_UNUSED_SHOWN))
    hidden_count = len(offered) - len(used) - len(first_unused)
    return UsageShown(satchel.trace.enabled, top, first_unused, hidden_count)
