"""An index of all skills with their order and states, built once per snapshot.

A page then costs as much as its rows: counts are kept, rows are sliced, and names are searched in
one joined text.
"""

from __future__ import annotations

import gc
import threading
import time
from bisect import bisect_right
from collections import Counter
from contextlib import suppress
from importlib import import_module
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from satchel.errors import Blocked, SatchelError
from satchel.library.snapshot import BrokenSkill, find_broken
from satchel.presentation.jobs import BackgroundJob
from satchel.skill.model import Skill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from satchel.catalogue import Account
    from satchel.library import Location, Snapshot
    from satchel.library.snapshot import ToolSnapshot
    from satchel.presentation.jobs import ReportProgress
    from satchel.satchel import Satchel

    Item = Skill | BrokenSkill

STATES = (
    "active", "full", "shortened", "named", "tools", "unlisted", "withheld", "untrusted",
    "unpinned", "blocked", "unverified", "broken", "shadowed", "excluded",
)  # fmt: skip
ACTIVE = frozenset(("full", "shortened", "named", "tools"))
"""States that the filter `active` includes; no skill has that state itself."""
SOURCES = ("user", "project", "system", "global", "extra", "server", "builtin")
SORTS = ("name", "source", "state", "used", "problems")
_MAX_CHECKED_SKILLS = 200
"""Up to this many offered skills, every request checks each of them, which takes a survey of its
folder and a scan of new content. In a larger library only the skills of the page are checked."""
_MAX_REFRESHED_SKILLS = 1_000
"""A library of this size is refreshed in a few milliseconds."""
LOAD_WAIT_S = 0.5
"""A page shows a progress state when the library takes longer to read."""
INDEX_WAIT_S = 0.3
CHECK_S = 0.03
"""For the rows of one page: hashing and scanning new content takes milliseconds per skill."""
CHECK_ALL_S = 1.0
CHECK_DELAY_S = 0.4
"""Rows of a search are checked when nothing was typed for this time."""
_MAX_NAME_PROBES = 4_000
_MAX_SELECTIONS = 16
"""Filtered and sorted lists that are cached."""
_MAX_DESCRIPTION_RESULTS = 50
"""Results from the descriptions of skills that are in no search index."""
_MAX_DESCRIPTION_CHARS = 2_000
_WARM_UP_SEARCHES = ("skill 技能", "qzqzq")
"""Words of both languages, and one that is in no index and so is searched in all texts."""


class SkillFilter(NamedTuple):
    """Filters of the list; empty means any."""

    source: str = ""
    state: str = ""
    tools: bool = False

    def matches(self, source: str, state: str, *, tools: bool) -> bool:
        """Whether an item with these values is shown."""
        return (
            self.source in ("", source)
            and (self.state in ("", state) or (self.state == "active" and state in ACTIVE))
            and (tools or not self.tools)
        )


ALL_SKILLS = SkillFilter()


class SkillIndex:
    """All skills and broken files in list order, each with its state."""

    def __init__(
        self, snapshot: Snapshot, account: Account, locations: Iterable[Location], *, locked: bool
    ) -> None:
        self.snapshot = snapshot
        self._locked = locked
        self.modified: set[str] = set()
        """Refs of installed skills that were edited, as far as they were checked."""
        tools = snapshot.tools
        self._listing = {
            **dict.fromkeys(account.withheld, "withheld"),
            **dict.fromkeys(account.named, "named"),
            **dict.fromkeys(account.shortened, "shortened"),
            **dict.fromkeys(account.full, "full"),
        }
        broken = find_broken((*snapshot.problems, *tools.problems), locations)
        self.broken = {item.problem.path: item for item in broken}
        mine, rest, behind = _in_order(snapshot, tools)
        self.items: list[Item] = [*mine, *rest, *broken]
        get = self._listing.get
        self.states: list[str] = [
            get(item.head.name, "unlisted")
            if isinstance(item, Skill) and item.state == "active" and item.head.file[0] == "S"
            else self.state_of(item)
            for item in self.items
        ]
        of = tools.of
        self._tools = [isinstance(item, Skill) and of(item) is not None for item in self.items]
        self._sources = [item.source for item in self.items]
        self.counts = Counter(zip(self._sources, self.states, self._tools, strict=True))
        """Items by source, state and whether they have tools."""
        self.behind = behind
        """Name of an offered skill -> skills that it shadows."""
        self._picked: dict[tuple[SkillFilter, str, int], Sequence[int]] = {}
        self._places: dict[int, int] | None = None
        self._by_name: list[int] | None = None
        self._problems: list[int] | None = None
        self._names: _Joined | None = None
        self._others: tuple[list[int], _Joined] | None = None
        self._unchecked: Sequence[int] = ()
        self._checking = False
        self._lock = threading.Lock()

    def state_of(self, item: Item) -> str:
        """The state at the last check; `check_one` also runs the scan."""
        if isinstance(item, BrokenSkill):
            return "broken"
        if item.state == "untrusted":
            return "unpinned" if self._locked else "untrusted"
        if item.state != "active":
            return item.state
        if item.is_tool:
            return "tools"
        return self._listing.get(item.name, "unlisted")

    def facets(self, at: int) -> tuple[str, str, bool]:
        """Source and state of an item, and whether it has tools."""
        return self._sources[at], self.states[at], self._tools[at]

    def matches(self, at: int, wanted: SkillFilter) -> bool:
        """Whether an item passes the filters."""
        return wanted.matches(self._sources[at], self.states[at], tools=self._tools[at])

    def select(self, wanted: SkillFilter, sort: str, used: Mapping[str, float]) -> Sequence[int]:
        """Return the indices of items that pass the filters.

        Args:
            wanted: The filters.
            sort: One of `SORTS`, with `-` in front for descending; empty for library order.
            used: Name of a skill -> when it was last used.
        """
        if wanted == ALL_SKILLS and not sort:
            return range(len(self.items))
        with self._lock:
            key = wanted, sort, id(used) if sort.endswith("used") else 0
            found = self._picked.get(key)
            if found is None:
                found = [*(self._name_order() if sort else range(len(self.items)))]
                if wanted != ALL_SKILLS:
                    fits = {key for key in self.counts if wanted.matches(*key[:2], tools=key[2])}
                    found = [at for at in found if self.facets(at) in fits]
                if sort.lstrip("-") not in ("", "name"):
                    found.sort(key=self._sort_keys(sort.lstrip("-"), used).__getitem__)
                if sort.startswith("-"):
                    found.reverse()
                if len(self._picked) >= _MAX_SELECTIONS:
                    self._picked.clear()
                self._picked[key] = found
            return found

    def _name_order(self) -> list[int]:
        """All indices in the order of their names."""
        if self._by_name is None:
            names = [item.name.lower() for item in self.items]
            self._by_name = sorted(range(len(names)), key=names.__getitem__)
        return self._by_name

    def _sort_keys(self, sort: str, used: Mapping[str, float]) -> list[float]:
        """A number per item; equal ones stay in the order of their names."""
        if sort == "source":
            return [SOURCES.index(source) for source in self._sources]
        if sort == "state":
            return [STATES.index(state) for state in self.states]
        if sort == "used":
            return [-used.get(item.name, 0.0) for item in self.items]
        if self._problems is None:
            self._problems = [count_problems(item, "") for item in self.items]
        pairs = zip(self._problems, self.states, strict=True)
        return [-count - (state == "blocked") for count, state in pairs]

    def place_of(self, skill: Skill) -> int | None:
        """The index of a skill; None when it is not in the list."""
        return self._place_table().get(id(skill.head))

    def _place_table(self) -> dict[int, int]:
        if self._places is None:
            self._places = {
                id(item.head): at for at, item in enumerate(self.items) if isinstance(item, Skill)
            }
        return self._places

    def check_one(self, satchel: Satchel, skill: Skill) -> str:
        """Check the folder of a skill and return its state; edited ones go to `modified`."""
        state, integrity = self.state_of(skill), satchel.library.integrity
        if skill.state != "active" or skill.origin.remote:
            return state  # a list fetches nothing from a server
        try:
            if not skill.is_tool:  # its tools are checked before they are offered
                integrity.check(skill, clean=False)
            edited = bool(integrity.modified(skill))
        except Blocked:
            return "blocked"
        except SatchelError:
            return state  # a broken lockfile is among the problems
        (self.modified.add if edited else self.modified.discard)(skill.ref)
        return state

    def check(self, satchel: Satchel, places: Iterable[int], most_s: float = inf) -> bool:
        """Check the folders of some skills, and correct their states; False when time runs out."""
        until = time.monotonic() + most_s
        for at in places:
            item = self.items[at]
            if time.monotonic() > until:
                return False
            if not isinstance(item, Skill):
                continue
            state = self.check_one(satchel, item)
            if state != self.states[at]:
                with self._lock:
                    self.counts[item.source, self.states[at], self._tools[at]] -= 1
                    self.counts[item.source, state, self._tools[at]] += 1
                    self.states[at] = state
                    self._picked.clear()
        return True

    def check_later(self, satchel: Satchel, places: Sequence[int]) -> None:
        """Check some skills in the background, unless others are to be checked meanwhile.

        A skill that the scan blocks then has another state in the next snapshot of the library.
        """
        with self._lock:
            self._unchecked, starts = places, not self._checking
            self._checking = True
        if starts:
            threading.Thread(target=self._check_waiting, args=(satchel,), daemon=True).start()

    def _check_waiting(self, satchel: Satchel) -> None:
        while True:
            places = self._unchecked
            time.sleep(CHECK_DELAY_S)
            for at in places:
                if places is not self._unchecked:
                    break
                with suppress(OSError):
                    self.check(satchel, (at,))
            with self._lock:
                if places is self._unchecked:
                    self._checking = False
                    return

    def check_all(self, satchel: Satchel) -> None:
        """Check all skills of a small library; what takes longer goes on in the background."""
        places, few = range(len(self.items)), len(self.snapshot.skills) <= _MAX_CHECKED_SKILLS
        if few and not self.check(satchel, places, CHECK_ALL_S):
            self.check_later(satchel, places)

    def warm_up(self) -> None:
        """Build what the first search, sort and lookup of a skill use."""
        self.find_named((), lambda _: False, 0)
        self.find_described((), lambda _: False, 0)
        self._name_order()
        self._sort_keys("problems", {})
        self._place_table()
        self.snapshot.by_ref("")
        self.snapshot.named("")

    def find_named(
        self, words: Sequence[str], wanted: Callable[[int], bool], most: int
    ) -> list[int]:
        """Return the indices of items whose name or id contains all words.

        Args:
            words: In lower case, without blanks.
            wanted: Whether an index counts.
            most: The maximum number of results.
        """
        if self._names is None:
            self._names = _joined([_name_of(item) for item in self.items])
        return _search_joined(self._names, words, wanted, most)

    def find_described(
        self, words: Sequence[str], wanted: Callable[[int], bool], most: int
    ) -> list[int]:
        """Search names and descriptions of skills that are in no search index.

        These are shadowed, untrusted and broken skills, and those with tools only.
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
        found = _search_joined(
            kept, words, lambda at: wanted(places[at]), min(most, _MAX_DESCRIPTION_RESULTS)
        )
        return [places[at] for at in found]


def count_problems(item: Item, state: str) -> int:
    """Return the number of errors and warnings; a blocked skill has one more."""
    if not isinstance(item, Skill):
        return 1
    problems = item.head.problems
    found = sum(one.severity != "note" for one in problems) if problems else 0
    return found + (state == "blocked")


_Joined = tuple[str, list[int]]
"""A joined text and the start of each part."""


def _joined(texts: Sequence[str]) -> _Joined:
    return "".join(texts), [0, *accumulate(map(len, texts))]


def _search_joined(
    kept: _Joined, words: Sequence[str], wanted: Callable[[int], bool], most: int
) -> list[int]:
    """The parts that contain all words."""
    text, starts = kept
    first = max(words, key=len, default="")
    found: list[int] = []
    place = text.find(first) if first else -1
    looks = 0
    while place >= 0 and len(found) < most and looks < _MAX_NAME_PROBES:
        looks += 1
        at = bisect_right(starts, place) - 1
        end = starts[at + 1]
        if wanted(at) and all(text.find(word, starts[at], end) >= 0 for word in words):
            found.append(at)
        place = text.find(first, end)
    return found


_indexes: WeakKeyDictionary[Satchel, SkillIndex] = WeakKeyDictionary()
_build_lock = threading.Lock()
_untrusted_counts: WeakKeyDictionary[Snapshot, int] = WeakKeyDictionary()


def count_untrusted(satchel: Satchel, look: Snapshot) -> int:
    """Return the number of untrusted skills; counted once per snapshot."""
    if satchel.settings.trust == "locked" and not satchel.settings.asks:
        return 0
    count = _untrusted_counts.get(look)
    if count is None:
        count = _untrusted_counts[look] = sum(skill.state == "untrusted" for skill in look.hidden)
    return count


def refresh_if_small(satchel: Satchel) -> bool:
    """Refresh a small library at once; False for a large one.

    A large library is refreshed in the background by `LiveEvents`.
    """
    library = satchel.library
    look = library.snapshot()
    if len(look.skills) + len(look.hidden) > _MAX_REFRESHED_SKILLS:
        return False
    library.invalidate()
    library.refresh()
    return True


def index_of(satchel: Satchel, *, wait: bool = False) -> SkillIndex:
    """Return the index of a library; the same object until something changes.

    The index of a large library is built again in the background; the previous one is returned
    meanwhile, unless `wait` is set.
    """
    small = refresh_if_small(satchel)
    kept = _indexes.get(satchel)
    if kept is not None and kept.snapshot is satchel.library.snapshot():
        return kept
    if small or wait or kept is None:
        return _build(satchel, small=small)
    if not _build_lock.locked():
        threading.Thread(target=_build, args=(satchel,), daemon=True).start()
    return kept


def _build(satchel: Satchel, *, small: bool = False) -> SkillIndex:
    """Build the index, and for a large library everything that its first search needs."""
    with _build_lock:  # concurrent requests build it once
        look, kept = satchel.library.snapshot(), _indexes.get(satchel)
        if kept is not None and kept.snapshot is look:
            return kept
        locked = satchel.settings.trust == "locked" and not satchel.settings.asks
        account = satchel.preview(snapshot=look).account
        made = SkillIndex(look, account, satchel.library.locations, locked=locked)
        if not small:
            made.warm_up()
            if kept is not None:  # else `LibraryLoader` builds the search index
                _warm_up_search(satchel)
            gc.freeze()  # else a collection stops all requests for 0.2 s
        _indexes[satchel] = made
    return made


def _warm_up_search(satchel: Satchel) -> None:
    for words in _WARM_UP_SEARCHES:
        satchel.search(words, 1, reasons=False)


class LibraryLoader:
    """Reads the library and builds the search index in the background, so that no page waits."""

    def __init__(self, satchel: Satchel) -> None:
        self._satchel = satchel
        self.reading = BackgroundJob(self._read)
        self.indexing = BackgroundJob(self._index)

    def is_loaded(self) -> bool:
        """Whether the library was read; waits a moment for it."""
        return _is_done(self.reading, LOAD_WAIT_S)

    def is_indexed(self) -> bool:
        """Whether the search index is complete, or the library is small; waits a moment for it."""
        small = len(self._satchel.library.snapshot().skills) <= _MAX_REFRESHED_SKILLS
        return small or _is_done(self.indexing, INDEX_WAIT_S)

    def stop(self) -> None:
        """Stop at the next progress report."""
        self.reading.stop()
        self.indexing.stop()

    def _read(self, _report: ReportProgress) -> bool:
        index_of(self._satchel)
        self.indexing.start()
        import_module("satchel.security")  # else the first page that scans a skill waits for it
        return True

    def _index(self, report: ReportProgress) -> bool:
        total = len(self._satchel.library.snapshot().skills)
        self._satchel.prepare(lambda done: report(done, total))
        _warm_up_search(self._satchel)
        gc.freeze()
        return True


def _is_done(job: BackgroundJob[bool], wait_s: float) -> bool:
    if not job.state.ran and (job.start() or job.state.running):
        job.wait(wait_s)
    return job.state.ran or bool(job.state.trouble)


def count_unusable(satchel: Satchel) -> int:
    """Return the number of broken and blocked skills, as far as they were checked."""
    counts = index_of(satchel).counts.items()
    return sum(count for key, count in counts if key[1] in ("broken", "blocked", "unverified"))


def _in_order(
    snapshot: Snapshot, tools: ToolSnapshot
) -> tuple[list[Skill], list[Skill], dict[str, list[Skill]]]:
    """Offered skills with those they shadow; skills not offered; shadowed skills by name.

    Built-in skills come last of the offered ones.
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
    text = item.description if isinstance(item, Skill) else item.problem.message
    return f"{text[:_MAX_DESCRIPTION_CHARS]}\n".lower()


def _name_of(item: Item) -> str:
    name = item.name
    if isinstance(item, Skill) and item.head.id != name:
        return f"{name}\n{item.head.id}\n".lower()
    return f"{name}\n".lower()
