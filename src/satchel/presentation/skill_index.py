"""An index of all skills with their order and states, built once per snapshot.

A page then costs as much as its rows: counts are stored, rows are sliced, and names are searched
in one joined text. Items are referred to by their position in the list.
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
    "unpinned", "needs setup", "blocked", "unverified", "broken", "shadowed", "excluded",
)  # fmt: skip
ACTIVE = frozenset(("full", "shortened", "named", "tools"))
"""States that the filter `active` includes; no skill has that state itself."""
SOURCES = (
    "user", "project", "system", "global", "extra", "package", "plugin", "server", "code",
    "builtin",
)  # fmt: skip
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
        order = _order_skills(snapshot, tools)
        self.items: list[Item] = [*order.offered, *order.others, *broken]
        get_listing = self._listing.get
        self.states: list[str] = [
            get_listing(item.head.name, "unlisted")
            if isinstance(item, Skill) and item.state == "active" and item.head.file[0] == "S"
            else self.state_of(item)
            for item in self.items
        ]
        tools_of = tools.of
        self._has_tools = [
            isinstance(item, Skill) and tools_of(item) is not None for item in self.items
        ]
        self._sources = [item.source for item in self.items]
        self.counts = Counter(zip(self._sources, self.states, self._has_tools, strict=True))
        """Items by source, state and whether they have tools."""
        self.shadowed = order.shadowed
        """Name of an offered skill -> skills that it shadows."""
        self._selections: dict[tuple[SkillFilter, str, int], Sequence[int]] = {}
        # Built on first use.
        self._positions: dict[int, int] | None = None
        self._name_order: list[int] | None = None
        self._problem_counts: list[int] | None = None
        self._joined_names: _JoinedTexts | None = None
        self._unindexed: tuple[list[int], _JoinedTexts] | None = None
        """Positions and texts of the skills that are in no search index."""
        self._positions_to_check: Sequence[int] = ()
        self._is_checking = False
        self._lock = threading.Lock()

    def state_of(self, item: Item) -> str:
        """Return the state at the last check; `check_one` also runs the scan."""
        if isinstance(item, BrokenSkill):
            return "broken"
        if item.state == "untrusted":
            return "unpinned" if self._locked else "untrusted"
        if item.state != "active":
            return item.state
        if item.is_tool:
            return "tools"
        return self._listing.get(item.name, "unlisted")

    def facets(self, position: int) -> tuple[str, str, bool]:
        """Return source and state of an item, and whether it has tools."""
        return self._sources[position], self.states[position], self._has_tools[position]

    def matches(self, position: int, filters: SkillFilter) -> bool:
        """Whether an item passes the filters."""
        source, state, tools = self.facets(position)
        return filters.matches(source, state, tools=tools)

    def has_only_builtin(self) -> bool:
        """Whether there are no skills but built-in ones."""
        return all(source == "builtin" for (source, *_), count in self.counts.items() if count)

    def select(self, filters: SkillFilter, sort: str, used: Mapping[str, float]) -> Sequence[int]:
        """Return the positions of items that pass the filters.

        Args:
            filters: The filters.
            sort: One of `SORTS`, with `-` in front for descending; empty for library order.
            used: Name of a skill -> when it was last used.
        """
        if filters == ALL_SKILLS and not sort:
            return range(len(self.items))
        with self._lock:
            key = filters, sort, id(used) if sort.endswith("used") else 0
            positions = self._selections.get(key)
            if positions is None:
                positions = self._filter_and_sort(filters, sort, used)
                if len(self._selections) >= _MAX_SELECTIONS:
                    self._selections.clear()
                self._selections[key] = positions
            return positions

    def _filter_and_sort(
        self, filters: SkillFilter, sort: str, used: Mapping[str, float]
    ) -> list[int]:
        positions = [*(self._positions_by_name() if sort else range(len(self.items)))]
        if filters != ALL_SKILLS:
            matching_facets = {
                (source, state, has_tools)
                for source, state, has_tools in self.counts
                if filters.matches(source, state, tools=has_tools)
            }
            positions = [
                position for position in positions if self.facets(position) in matching_facets
            ]
        if sort.lstrip("-") not in ("", "name"):
            positions.sort(key=self._sort_keys(sort.lstrip("-"), used).__getitem__)
        if sort.startswith("-"):
            positions.reverse()
        return positions

    def _positions_by_name(self) -> list[int]:
        """Return all positions in the order of the names."""
        if self._name_order is None:
            names = [item.name.lower() for item in self.items]
            self._name_order = sorted(range(len(names)), key=names.__getitem__)
        return self._name_order

    def _sort_keys(self, sort: str, used: Mapping[str, float]) -> list[float]:
        """Return a number per item; equal ones stay in the order of their names."""
        if sort == "source":
            return [SOURCES.index(source) for source in self._sources]
        if sort == "state":
            return [STATES.index(state) for state in self.states]
        if sort == "used":
            return [-used.get(item.name, 0.0) for item in self.items]
        if self._problem_counts is None:
            self._problem_counts = [count_problems(item, "") for item in self.items]
        counts_and_states = zip(self._problem_counts, self.states, strict=True)
        return [-count - (state == "blocked") for count, state in counts_and_states]

    def position_of(self, skill: Skill) -> int | None:
        """Return the position of a skill; None when it is not in the list."""
        return self._positions_by_header().get(id(skill.head))

    def _positions_by_header(self) -> dict[int, int]:
        if self._positions is None:
            self._positions = {
                id(item.head): position
                for position, item in enumerate(self.items)
                if isinstance(item, Skill)
            }
        return self._positions

    def check_one(self, satchel: Satchel, skill: Skill) -> str:
        """Check the folder of a skill and return its state; adds edited skills to `modified`."""
        state, integrity = self.state_of(skill), satchel.library.integrity
        if skill.state != "active" or skill.origin.remote:
            return state  # a list fetches nothing from a server
        try:
            if not skill.is_tool:  # its tools are checked before they are offered
                integrity.check(skill, clean=False)
            is_modified = bool(integrity.modified(skill))
        except Blocked:
            return "blocked"
        except SatchelError:
            return state  # a broken lockfile is among the problems
        if is_modified:
            self.modified.add(skill.ref)
        else:
            self.modified.discard(skill.ref)
        return state

    def check(self, satchel: Satchel, positions: Iterable[int], max_s: float = inf) -> bool:
        """Check the folders of some skills, and correct their states; False when time runs out."""
        deadline = time.monotonic() + max_s
        for position in positions:
            item = self.items[position]
            if time.monotonic() > deadline:
                return False
            if not isinstance(item, Skill):
                continue
            state = self.check_one(satchel, item)
            if state != self.states[position]:
                with self._lock:
                    has_tools = self._has_tools[position]
                    self.counts[item.source, self.states[position], has_tools] -= 1
                    self.counts[item.source, state, has_tools] += 1
                    self.states[position] = state
                    self._selections.clear()
        return True

    def check_later(self, satchel: Satchel, positions: Sequence[int]) -> None:
        """Check some skills in the background, unless others are to be checked meanwhile.

        A skill that the scan blocks then has another state in the next snapshot of the library.
        """
        with self._lock:
            self._positions_to_check = positions
            needs_thread = not self._is_checking
            self._is_checking = True
        if needs_thread:
            threading.Thread(target=self._run_checks, args=(satchel,), daemon=True).start()

    def _run_checks(self, satchel: Satchel) -> None:
        """Check the latest positions of `check_later`, until there are no others."""
        while True:
            positions = self._positions_to_check
            time.sleep(CHECK_DELAY_S)
            for position in positions:
                if positions is not self._positions_to_check:
                    break
                with suppress(OSError):
                    self.check(satchel, (position,))
            with self._lock:
                if positions is self._positions_to_check:
                    self._is_checking = False
                    return

    def check_all(self, satchel: Satchel) -> None:
        """Check all skills of a small library; what takes longer goes on in the background."""
        if len(self.snapshot.skills) > _MAX_CHECKED_SKILLS:
            return
        positions = range(len(self.items))
        if not self.check(satchel, positions, CHECK_ALL_S):
            self.check_later(satchel, positions)

    def warm_up(self) -> None:
        """Build what the first search, sort and lookup of a skill use."""
        self.find_named((), lambda _: False, 0)
        self.find_described((), lambda _: False, 0)
        self._positions_by_name()
        self._sort_keys("problems", {})
        self._positions_by_header()
        self.snapshot.by_ref("")
        self.snapshot.named("")

    def find_named(
        self, words: Sequence[str], accepts: Callable[[int], bool], limit: int
    ) -> list[int]:
        """Return the positions of items whose name or id contains all words.

        Args:
            words: In lower case, without blanks.
            accepts: Whether a position is wanted.
            limit: The maximum number of results.
        """
        if self._joined_names is None:
            self._joined_names = _join_texts([_name_text(item) for item in self.items])
        return _find_texts(self._joined_names, words, accepts, limit)

    def find_described(
        self, words: Sequence[str], accepts: Callable[[int], bool], limit: int
    ) -> list[int]:
        """Search names and descriptions of skills that are in no search index.

        These are shadowed, untrusted and broken skills, and those with tools only.
        """
        if self._unindexed is None:
            positions = [
                position
                for position, item in enumerate(self.items)
                if not isinstance(item, Skill) or item.is_tool or item.state != "active"
            ]
            items = [self.items[position] for position in positions]
            texts = [_name_text(item) + _description_text(item) for item in items]
            self._unindexed = positions, _join_texts(texts)
        positions, joined = self._unindexed
        limit = min(limit, _MAX_DESCRIPTION_RESULTS)
        results = _find_texts(joined, words, lambda number: accepts(positions[number]), limit)
        return [positions[number] for number in results]


def count_problems(item: Item, state: str) -> int:
    """Return the number of errors and warnings; a blocked skill has one more."""
    if not isinstance(item, Skill):
        return 1
    problems = item.head.problems
    count = sum(problem.severity != "note" for problem in problems) if problems else 0
    return count + (state == "blocked")


class _JoinedTexts(NamedTuple):
    """Texts that are searched as one."""

    text: str
    starts: list[int]
    """The offset of each text, and the end of the last one."""


def _join_texts(texts: Sequence[str]) -> _JoinedTexts:
    return _JoinedTexts("".join(texts), [0, *accumulate(map(len, texts))])


def _find_texts(
    joined: _JoinedTexts, words: Sequence[str], accepts: Callable[[int], bool], limit: int
) -> list[int]:
    """Return the numbers of the texts that contain all words."""
    text, starts = joined
    longest_word = max(words, key=len, default="")
    results: list[int] = []
    offset = text.find(longest_word) if longest_word else -1
    probes = 0
    while offset >= 0 and len(results) < limit and probes < _MAX_NAME_PROBES:
        probes += 1
        number = bisect_right(starts, offset) - 1
        start, end = starts[number], starts[number + 1]
        if accepts(number) and all(text.find(word, start, end) >= 0 for word in words):
            results.append(number)
        offset = text.find(longest_word, end)
    return results


_indexes: WeakKeyDictionary[Satchel, SkillIndex] = WeakKeyDictionary()
_build_lock = threading.Lock()
_untrusted_counts: WeakKeyDictionary[Snapshot, int] = WeakKeyDictionary()


def count_untrusted(satchel: Satchel, snapshot: Snapshot) -> int:
    """Return the number of untrusted skills; counted once per snapshot."""
    if satchel.settings.trust == "locked" and not satchel.settings.asks:
        return 0
    count = _untrusted_counts.get(snapshot)
    if count is None:
        count = sum(skill.state == "untrusted" for skill in snapshot.hidden)
        _untrusted_counts[snapshot] = count
    return count


def refresh_if_small(satchel: Satchel) -> bool:
    """Refresh a small library at once; False for a large one.

    A large library is refreshed in the background by `LiveEvents`.
    """
    library = satchel.library
    snapshot = library.snapshot()
    if len(snapshot.skills) + len(snapshot.hidden) > _MAX_REFRESHED_SKILLS:
        return False
    library.invalidate()
    library.refresh()
    return True


def index_of(satchel: Satchel, *, wait: bool = False) -> SkillIndex:
    """Return the index of a library; the same object until something changes.

    The index of a large library is built again in the background; the previous one is returned
    meanwhile, unless `wait` is set.
    """
    is_small = refresh_if_small(satchel)
    cached = _indexes.get(satchel)
    if cached is not None and cached.snapshot is satchel.library.snapshot():
        return cached
    if is_small or wait or cached is None:
        return _build(satchel, is_small=is_small)
    if not _build_lock.locked():
        threading.Thread(target=_build, args=(satchel,), daemon=True).start()
    return cached


def _build(satchel: Satchel, *, is_small: bool = False) -> SkillIndex:
    """Build the index, and for a large library everything that its first search needs."""
    with _build_lock:  # concurrent requests build it once
        snapshot, previous = satchel.library.snapshot(), _indexes.get(satchel)
        if previous is not None and previous.snapshot is snapshot:
            return previous
        locked = satchel.settings.trust == "locked" and not satchel.settings.asks
        account = satchel.preview(snapshot=snapshot).account
        index = SkillIndex(snapshot, account, satchel.library.locations, locked=locked)
        if not is_small:
            index.warm_up()
            if previous is not None:  # else `LibraryLoader` builds the search index
                _warm_up_search(satchel)
            gc.freeze()  # else a collection stops all requests for 0.2 s
        _indexes[satchel] = index
    return index


def _warm_up_search(satchel: Satchel) -> None:
    for query in _WARM_UP_SEARCHES:
        satchel.search(query, 1, reasons=False)


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
        is_small = len(self._satchel.library.snapshot().skills) <= _MAX_REFRESHED_SKILLS
        return is_small or _is_done(self.indexing, INDEX_WAIT_S)

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
        self._satchel.prepare(lambda completed: report(completed, total))
        _warm_up_search(self._satchel)
        gc.freeze()
        return True


def _is_done(job: BackgroundJob[bool], wait_s: float) -> bool:
    """Whether a job has ended, after a wait if it still runs; starts it if it never ran."""
    if not job.state.ran and (job.start() or job.state.running):
        job.wait(wait_s)
    return job.state.ran or bool(job.state.trouble)


def count_unusable(satchel: Satchel) -> int:
    """Return the number of broken and blocked skills, as far as they were checked."""
    return sum(
        count
        for (_, state, _), count in index_of(satchel).counts.items()
        if state in ("broken", "blocked", "unverified")
    )


class _SkillOrder(NamedTuple):
    """The skills of a library in the order of the list."""

    offered: list[Skill]
    """Offered skills, built-in ones last, each followed by those it shadows."""
    others: list[Skill]
    """Skills that are not offered."""
    shadowed: dict[str, list[Skill]]
    """Name of an offered skill -> skills that it shadows."""


def _order_skills(snapshot: Snapshot, tools: ToolSnapshot) -> _SkillOrder:
    tool_skills = [tool_skill.skill for tool_skill in tools.without_document()]
    offered: list[Skill] = list(snapshot.skills)
    offered_tool_skills = [skill for skill in tool_skills if skill.state == "active"]
    if offered_tool_skills:
        builtin = (position for position, skill in enumerate(offered) if skill.source == "builtin")
        first_builtin = next(builtin, len(offered))
        offered[first_builtin:first_builtin] = offered_tool_skills
    shadowed: dict[str, list[Skill]] = {}
    others: list[Skill] = []
    for skill in (*snapshot.hidden, *(skill for skill in tool_skills if skill.state != "active")):
        if skill.state == "shadowed" and snapshot.get(skill.name) is not None:
            shadowed.setdefault(skill.name, []).append(skill)
        else:
            others.append(skill)
    if shadowed:
        offered = [
            listed for skill in offered for listed in (skill, *shadowed.get(skill.head.name, ()))
        ]
    return _SkillOrder(offered, others, shadowed)


def _description_text(item: Item) -> str:
    text = item.description if isinstance(item, Skill) else item.problem.message
    return f"{text[:_MAX_DESCRIPTION_CHARS]}\n".lower()


def _name_text(item: Item) -> str:
    name = item.name
    if isinstance(item, Skill) and item.head.id != name:
        return f"{name}\n{item.head.id}\n".lower()
    return f"{name}\n".lower()
