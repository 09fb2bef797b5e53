"""Usage statistics: which skills were offered, chosen, loaded and ran in the last thirty days.

The trace is read once, and again only when something was written to it. What a catalogue names is
written once per catalogue, so offers are counted by catalogue and multiplied out at the end.
"""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._language import say

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from satchel.facade import Satchel

DAYS = 30
TOP = 12
NEVER = 50
"""Skills that never fired that are shown."""
KINDS = ("selected", "loaded", "ran", "failed")
"""What can become of a skill that was offered."""


class Tally(NamedTuple):
    """What was counted."""

    offers: int
    """How often a catalogue was offered."""
    by_skill: dict[str, Counter[str]]
    """Kind -> skill -> how often."""
    offered: Counter[str]
    """Skill -> how often a catalogue named it."""
    found: frozenset[str]
    """Skills that a search of the model brought."""


class Line(NamedTuple):
    """One skill of the list."""

    name: str
    ref: str
    """Empty when there is none of that name any more."""
    offered: int
    counts: tuple[int, ...]
    """As `KINDS`."""


class Silent(NamedTuple):
    """A skill that was offered and never used."""

    name: str
    ref: str
    offered: int
    searched: bool
    """A search of the model brought it, and still nobody loaded it."""


class Use(NamedTuple):
    """What became of the skills."""

    mood: str
    verdict: str
    empty: bool
    """Nothing was recorded in these days."""
    recording: bool
    """Whether anything is recorded at all."""
    top: list[Line]
    never: list[Silent]
    never_count: int
    words: tuple[str, ...]
    """The kinds as people read them, as `KINDS`."""


class Counting:
    """Counts the trace, and keeps the sums until something is written to it."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self._hold = threading.Lock()
        self._seen: object = None
        self._tally: Tally | None = None

    def tally(self) -> Tally:
        """What happened in the last thirty days."""
        today = datetime.now().astimezone().date()
        with self._hold:
            seen = (self._satchel.trace.mark(), today)
            if self._tally is None or seen != self._seen:
                self._tally = count(self._satchel.trace.history(), today)
                self._seen = seen
            return self._tally


def count(rows: Iterable[dict[str, Any]], today: date) -> Tally:
    """Count the rows of a trace, the newest first.

    Args:
        rows: As `Trace.history` gives them.
        today: The last day that counts.
    """
    first = today - timedelta(days=DAYS - 1)
    starts = datetime.combine(first, datetime.min.time()).timestamp()
    by_digest: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    by_skill: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    found: set[str] = set()
    for row in rows:
        moment, kind = row.get("t"), row.get("kind")
        if not isinstance(moment, int | float) or not 0 <= moment < 1e11:
            continue
        if kind == "offered":
            digest = str(row.get("digest", ""))
            if "full" in row and (moment >= starts or digest in by_digest):
                # Older rows count too: what is offered again is not named again.
                names.setdefault(
                    digest,
                    [one for key in ("full", "shortened", "named") for one in _names(row.get(key))],
                )
            if moment >= starts:
                by_digest[digest] += 1
            continue
        if moment < starts:
            continue
        skills = _names(row.get("skills"))
        if kind == "searched":
            found.update(skills)
        if kind not in by_skill or (kind == "ran" and row.get("ended") != "well"):
            continue
        by_skill[kind].update(dict.fromkeys(skills, 1))
    offered: Counter[str] = Counter()
    for digest, times in by_digest.items():
        for name in names.get(digest, ()):
            offered[name] += times
    return Tally(by_digest.total(), by_skill, offered, frozenset(found))


def _names(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    return [one for one in cast("list[Any]", value) if isinstance(one, str)]


def use(satchel: Satchel, tally: Tally) -> Use:
    """The most used skills, and those that never fired."""
    happened = sum(tally.by_skill[kind].total() for kind in KINDS)
    silent = _silent(satchel, tally)
    mood, verdict = _verdict(tally, happened, len(silent))
    return Use(
        mood,
        verdict,
        not happened and not tally.offers,
        satchel.trace.enabled,
        _top(satchel, tally),
        silent[:NEVER],
        len(silent),
        kind_words(),
    )


def kind_words() -> tuple[str, ...]:
    """What can become of a skill, in the reader's language."""
    return (say("chosen"), say("loaded"), say("ran well"), say("failed"))


def _silent(satchel: Satchel, tally: Tally) -> list[Silent]:
    """Offered, still here, and neither chosen, loaded nor run; one's own skills first."""
    used = {name for kind in ("selected", "loaded", "ran") for name in tally.by_skill[kind]}
    snapshot = satchel.library.snapshot()
    rows: list[tuple[bool, Silent]] = []
    for name, times in tally.offered.items():
        skill = snapshot.get(name) if name not in used else None
        if skill is not None:
            one = Silent(name, skill.ref, times, name in tally.found)
            rows.append((skill.source == "builtin", one))
    rows.sort(key=lambda row: (row[0], -row[1].offered, row[1].name))
    return [one for _, one in rows]


def _top(satchel: Satchel, tally: Tally) -> list[Line]:
    total: Counter[str] = Counter()
    for kind in KINDS:
        total.update(tally.by_skill[kind])
    best = sorted(total, key=lambda name: (-total[name], name))[:TOP]
    snapshot = satchel.library.snapshot()
    lines: list[Line] = []
    for name in best:
        # A tool skill is offered by its tools, so the catalogue does not know it.
        skill = snapshot.get(name) or next(iter(satchel.library.find(name)), None)
        counts = tuple(tally.by_skill[kind][name] for kind in KINDS)
        ref = skill.ref if skill is not None else ""
        lines.append(Line(name, ref, tally.offered[name], counts))
    return lines


def _verdict(tally: Tally, happened: int, silent: int) -> tuple[str, str]:
    if not happened and not tally.offers:
        return "none", say("No agent used these skills in the last {days} days", days=DAYS)
    if silent:
        words = (
            say("One skill was offered and never used")
            if silent == 1
            else say("{count} skills were offered and never used", count=f"{silent:,}")
        )
        return "warn", words
    if not tally.offered:
        return "none", say("Skills were used in the last {days} days; none was offered", days=DAYS)
    return "good", say("Every skill that was offered was used")
