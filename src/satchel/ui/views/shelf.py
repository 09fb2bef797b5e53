"""The skills of a list, in their order and with their states, worked out once per snapshot.

A page then costs what its rows cost, however many skills there are: counts are kept, rows are cut
out of a list, and names are searched in one long text.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from satchel.errors import Blocked, SatchelError
from satchel.library.snapshot import Broken, find_broken
from satchel.skill.model import Skill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from satchel.catalogue import Account
    from satchel.facade import Satchel
    from satchel.library import Location, Snapshot
    from satchel.library.tool_shelf import ToolSnapshot

    Item = Skill | Broken

STATES = (
    "full", "shortened", "named", "unlisted", "withheld", "tools", "untrusted", "unpinned",
    "blocked", "broken", "shadowed", "excluded",
)  # fmt: skip
"""What can become of a skill, as a list names it."""
SOURCES = ("user", "project", "system", "global", "extra", "server", "builtin")
OFFERED = frozenset(("full", "shortened", "named", "unlisted", "withheld"))
_EACH = 200
"""Up to so many offered skills, every look checks each: that takes a survey of its folder, and a
scan of a new content. Of more, only those that are shown are checked."""
_SMALL = 1_000
"""So many skills are looked at in a few milliseconds."""
_LOOKS = 4_000
"""Places in the text of all names that one search looks at."""
_DESCRIBED = 50
"""Skills that are found by a description that is in no index."""
_READ = 2_000
"""Characters of such a description that are searched."""


class _Seen(NamedTuple):
    """What a shelf was made of: others mean another shelf."""

    snapshot: Snapshot
    tools: ToolSnapshot
    account: Account


class Shelf:
    """Everything there is, in the order of a list, each with its state."""

    def __init__(self, seen: _Seen, locations: Iterable[Location], *, locked: bool) -> None:
        self.seen = seen
        self._locked = locked
        self.modified: set[str] = set()
        """Refs of installed skills that were edited, as far as they were checked."""
        snapshot, tools, account = seen
        self._standing = {
            **dict.fromkeys(account.withheld, "withheld"),
            **dict.fromkeys(account.named, "named"),
            **dict.fromkeys(account.shortened, "shortened"),
            **dict.fromkeys(account.full, "full"),
        }
        broken = find_broken((*snapshot.problems, *tools.problems), locations)
        self.broken = {item.problem.path: item for item in broken}
        mine, rest, behind = _in_order(snapshot, tools)
        self.items: list[Item] = [*mine, *rest, *broken]
        get = self._standing.get
        self.states: list[str] = [
            get(item.head.name, "unlisted")
            if isinstance(item, Skill) and item.state == "active" and item.head.file[0] == "S"
            else self.state_of(item)
            for item in self.items
        ]
        self._sources = [item.source for item in self.items]
        self.counts = Counter(zip(self._sources, self.states, strict=True))
        self.behind = behind
        """Those that are hidden by one that is offered, by its name."""
        self._picked: dict[tuple[str, str], Sequence[int]] = {}
        self._names: _Joined | None = None
        self._others: tuple[list[int], _Joined] | None = None
        self._hold = threading.Lock()

    def state_of(self, item: Item) -> str:
        """The state as of the last look; whether the scan blocks it now is `look_at`'s to say."""
        if isinstance(item, Broken):
            return "broken"
        if item.state == "untrusted":
            return "unpinned" if self._locked else "untrusted"
        if item.state != "active":
            return item.state
        if item.is_tool:
            return "tools"
        return self._standing.get(item.name, "unlisted")

    def fits(self, at: int, source: str, state: str) -> bool:
        """Whether one is from a source and in a state; empty words mean any."""
        return source in ("", self._sources[at]) and state in ("", self.states[at])

    def pick(self, source: str, state: str) -> Sequence[int]:
        """The places of those from a source and in a state; empty words mean all."""
        if not source and not state:
            return range(len(self.items))
        with self._hold:
            found = self._picked.get((source, state))
            if found is None:
                pairs = enumerate(zip(self._sources, self.states, strict=True))
                found = self._picked[source, state] = [
                    at
                    for at, (here, now) in pairs
                    if (not source or here == source) and (not state or now == state)
                ]
            return found

    def look_at(self, satchel: Satchel, skill: Skill) -> str:
        """The state of a skill after a check of its folder, which also shows edits."""
        state, seals = self.state_of(skill), satchel.library.seals
        if skill.state != "active" or skill.origin.remote:
            return state  # nothing of a server is fetched for a list
        try:
            if not skill.is_tool:  # its tools are offered after a check
                seals.check(skill, clean=False)
            edited = bool(seals.modified(skill))
        except Blocked:
            return "blocked"
        except SatchelError:
            return state  # a broken lock is among the problems; what is gone will not be there next
        (self.modified.add if edited else self.modified.discard)(skill.ref)
        return state

    def check(self, satchel: Satchel, places: Iterable[int]) -> None:
        """Check the folders of some skills, and correct their states."""
        for at in places:
            item = self.items[at]
            if not isinstance(item, Skill):
                continue
            state = self.look_at(satchel, item)
            if state != self.states[at]:
                with self._hold:
                    self.counts[item.source, self.states[at]] -= 1
                    self.counts[item.source, state] += 1
                    self.states[at] = state
                    self._picked.clear()

    def check_all(self, satchel: Satchel) -> None:
        """The same of all, where they are few."""
        if len(self.seen.snapshot.skills) <= _EACH:
            self.check(satchel, range(len(self.items)))

    def named(self, words: Sequence[str], wanted: Callable[[int], bool], most: int) -> list[int]:
        """The places of those whose name or id contains all of some words.

        Args:
            words: In lower case, without blanks.
            wanted: Whether a place counts.
            most: How many at most.
        """
        if self._names is None:
            self._names = _joined([_name_of(item) for item in self.items])
        return _look(self._names, words, wanted, most)

    def described(
        self, words: Sequence[str], wanted: Callable[[int], bool], most: int
    ) -> list[int]:
        """The same of names and descriptions, of those that no search of models knows.

        What is hidden, not trusted, broken or has tools alone is in no index, and people look for
        it too. At most 50 are found.
        """
        if self._others is None:
            places = [
                at
                for at, item in enumerate(self.items)
                if not isinstance(item, Skill) or item.is_tool or item.state != "active"
            ]
            texts = [_name_of(self.items[at]) + _about(self.items[at]) for at in places]
            self._others = places, _joined(texts)
        places, kept = self._others
        found = _look(kept, words, lambda at: wanted(places[at]), min(most, _DESCRIBED))
        return [places[at] for at in found]


_Joined = tuple[str, list[int]]
"""Many texts as one, and where each begins: one search goes through all of them."""


def _joined(texts: Sequence[str]) -> _Joined:
    return "".join(texts), [0, *accumulate(map(len, texts))]


def _look(
    kept: _Joined, words: Sequence[str], wanted: Callable[[int], bool], most: int
) -> list[int]:
    """Which of the texts contain all of some words."""
    text, starts = kept
    first = max(words, key=len, default="")
    found: list[int] = []
    place = text.find(first) if first else -1
    looks = 0
    while place >= 0 and len(found) < most and looks < _LOOKS:
        looks += 1
        at = bisect_right(starts, place) - 1
        end = starts[at + 1]
        if wanted(at) and all(text.find(word, starts[at], end) >= 0 for word in words):
            found.append(at)
        place = text.find(first, end)
    return found


_shelves: WeakKeyDictionary[Satchel, Shelf] = WeakKeyDictionary()
_making = threading.Lock()


_waits: WeakKeyDictionary[Snapshot, int] = WeakKeyDictionary()


def waiting_in(satchel: Satchel, look: Snapshot) -> int:
    """Skills whose folder is not trusted yet; counted once per snapshot."""
    if satchel.settings.trust == "locked" and not satchel.settings.asks:
        return 0
    count = _waits.get(look)
    if count is None:
        count = _waits[look] = sum(skill.state == "untrusted" for skill in look.hidden)
    return count


def look_now(satchel: Satchel) -> bool:
    """Look at the disk at once where that costs next to nothing; whether it was done.

    A large library is looked at all the time by whoever tells open pages of changes.
    """
    library = satchel.library
    look = library.snapshot()
    if len(look.skills) + len(look.hidden) > _SMALL:
        return False
    library.doubt()  # a watcher needs a moment to notice
    library.refresh()
    return True


def shelf_of(satchel: Satchel) -> Shelf:
    """What a list of these skills shows now; the same object till something changes."""
    library = satchel.library
    fresh = look_now(satchel)
    look = library.snapshot()
    seen = _Seen(look, library.tools(refresh=fresh), satchel.preview(look=look).account)
    kept = _shelves.get(satchel)
    if kept is None or any(one is not other for one, other in zip(kept.seen, seen, strict=True)):
        with _making:  # a second reader waits for the first instead of doing the same
            kept = _shelves.get(satchel)
            if kept is None or any(a is not b for a, b in zip(kept.seen, seen, strict=True)):
                locked = satchel.settings.trust == "locked" and not satchel.settings.asks
                kept = _shelves[satchel] = Shelf(seen, library.locations, locked=locked)
    return kept


def _in_order(
    snapshot: Snapshot, tools: ToolSnapshot
) -> tuple[list[Skill], list[Skill], dict[str, list[Skill]]]:
    """Offered ones, each with those that it hides behind it; what is not offered; who hides whom.

    What ships with Satchel is the least special here, and so comes last of the offered.
    """
    only = [one.skill for one in tools.only()]
    hidden = [*snapshot.hidden, *(skill for skill in only if skill.state != "active")]
    mine: list[Skill] = list(snapshot.skills)
    active = [skill for skill in only if skill.state == "active"]
    if active:
        at = next((at for at, skill in enumerate(mine) if skill.source == "builtin"), len(mine))
        mine[at:at] = active
    behind: dict[str, list[Skill]] = {}
    rest: list[Skill] = []
    for skill in hidden:
        if skill.state == "shadowed" and snapshot.get(skill.name) is not None:
            behind.setdefault(skill.name, []).append(skill)
        else:
            rest.append(skill)
    if behind:
        ordered: list[Skill] = []
        for skill in mine:
            ordered.append(skill)
            if skill.head.name in behind:
                ordered += behind[skill.head.name]
        mine = ordered
    return mine, rest, behind


def _about(item: Item) -> str:
    """What a row says of it."""
    text = item.description if isinstance(item, Skill) else item.problem.message
    return f"{text[:_READ]}\n".lower()


def _name_of(item: Item) -> str:
    name = item.name
    if isinstance(item, Skill) and item.head.id != name:
        return f"{name}\n{item.head.id}\n".lower()
    return f"{name}\n".lower()
