"""The object callers hold: locations in, snapshots out.

library = Library([Location("skills")])
library.snapshot()      # what is there; reads the disk the first time
library.refresh()       # reads only what changed; the same object when nothing did
library.tools()         # the tool skills among them, found when somebody asks
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from satchel._fs import is_inside
from satchel._language import Message
from satchel.errors import LockBroken, NotFound
from satchel.library.index import WORTH_IT
from satchel.library.locations import Location
from satchel.library.snapshot import Filter, Snapshot
from satchel.library.trust import TrustBook
from satchel.library.walk import (
    OWN_FOLDERS,
    Bounds,
    Shelf,
    find_repeated,
    read_shelf,
    revise_shelf,
    without,
)
from satchel.skill.model import Skill
from satchel.skill.problems import Problem
from satchel.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from satchel.library.index import Index
    from satchel.library.seal import Seals
    from satchel.library.supply import Supply
    from satchel.library.survey import ScanCache
    from satchel.library.tool_shelf import ToolShelf, ToolSnapshot
    from satchel.library.trust import LocationTrust, TrustRecord
    from satchel.library.watch import Watcher
    from satchel.skill.model import Head, Origin, State

_new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
_SMALL = 2_000
"""The index of so many skills is written in a few milliseconds."""
_EACH = 200
"""Up to this many skills, a scan is traced skill by skill; beyond it, as a count."""


class Library:
    """Finds the skills of some locations, and decides which are offered."""

    def __init__(
        self,
        locations: Iterable[Location | str],
        *,
        bounds: Bounds | None = None,
        wanted: Filter | None = None,
        trust: TrustBook | None = None,
        scans: ScanCache | None = None,
        index: Index | None = None,
        trace: Trace | None = None,
        problems: Sequence[Problem] = (),
    ) -> None:
        """Make a library; nothing is read yet.

        Args:
            locations: Where to look, first wins; a server never wins over a folder. A text is a
                folder that is trusted.
            bounds: How far to search.
            wanted: Which skills this agent is meant to have.
            trust: Decides about locations whose `trusted` is None; without it they are not offered.
            scans: Scans a skill before its first use, and remembers contents that were not blocked.
            index: Remembers large locations between processes.
            trace: Where events go.
            problems: Problems found before, such as refused settings; every snapshot carries them.
        """
        places = [
            Location(os.path.abspath(os.path.expanduser(item)))
            if isinstance(item, str)
            else item._replace(path=os.path.abspath(item.path))
            for item in locations
        ]
        served = [place for place in places if place.supplier is not None]
        if served:
            places = [place for place in places if place.supplier is None] + served
        self.locations = tuple(places)
        self._supplies: dict[str, Supply] = _supplies(served) if served else {}
        self.trust = trust or TrustBook(None)
        self.trace = trace or Trace()
        self._bounds = bounds or Bounds()
        self._wanted = wanted or Filter()
        self._index = index
        self._given = tuple(problems)
        self._lock = threading.RLock()
        self._shelves: list[Shelf] = []
        self._scans = scans
        self._trusted: TrustRecord | None = None
        self._locks: dict[str, tuple[int, ...]] = {}
        self._seals: Seals | None = None
        self._snapshot: Snapshot | None = None
        self._watcher: Watcher | None = None
        self._index_problems: list[Problem] = []
        self._tools: ToolShelf | None = None
        self.notify: Callable[[Snapshot], None] | None = None
        """Called with each new snapshot."""
        self._looks = 0
        self._doubted = False
        self._tools_at = (-1, self._trusted)

    def snapshot(self) -> Snapshot:
        """The skills as of the last refresh; the first call reads the disk.

        Nobody waits here for a look that is under way, once there was one.
        """
        kept = self._snapshot
        return kept if kept is not None and not self._doubted else self.refresh()

    def refresh(self) -> Snapshot:
        """Search the disk for changes; returns the same snapshot when there are none."""
        with self._lock:
            if (
                self._watcher is not None
                and self._snapshot is not None
                and not self._watcher.changed()
                and self.trust.read() is self._trusted
                and not any(supply.is_new() for supply in self._supplies.values())
            ):
                return self._snapshot
            self._looks += 1
            self._doubted = False
            # Thousands of small records at once: collecting garbage meanwhile finds none.
            collecting = gc.isenabled()
            gc.disable()
            try:
                changed = self._revise() if self._shelves else self._read()
                decided = self.trust.read()
                locks = self._lock_stamps()
                if (
                    changed
                    or self._snapshot is None
                    or decided is not self._trusted
                    or locks != self._locks
                    or self._usable_again(decided.blocked)
                ):
                    self._trusted = decided
                    self._locks = locks
                    before = self._snapshot
                    self._snapshot = self._assemble()
                    self._tell(before, self._snapshot)
                return self._snapshot
            finally:
                if collecting:
                    gc.enable()

    discover = scan = refresh_if_stale = refresh
    """Names that some hosts expect."""

    def doubt(self) -> None:
        """Let the next call look for changes, also where a watcher has noticed nothing yet.

        For code that has just changed something: a watcher is notified a moment later.
        """
        with self._lock:
            self._doubted = True
            if self._watcher is not None:
                self._watcher.doubt()

    def tools(self, *, refresh: bool = False) -> ToolSnapshot:
        """The tool skills (folders with a `skill.yaml`) as of the last look; the first call looks.

        Args:
            refresh: Look for changes; the very same object comes back when there are none. Without
                it nobody waits here for a look that is under way, once there was one.
        """
        refresh = refresh or self._doubted
        kept = self._tools
        last = kept.last if kept is not None else None
        if last is not None and not refresh:
            return last
        with self._lock:
            kept = self._tools
            if kept is not None and kept.last is not None and not refresh:
                return kept.last
            self.refresh() if refresh else self.snapshot()
            kept = self._tools  # `notify` may have asked for it meanwhile
            if kept is None:
                from satchel.library.tool_shelf import ToolShelf

                kept = self._tools = ToolShelf(lambda: self.seals, self.trace)
            at = (self._looks, self._trusted)
            if kept.last is None or self._watcher is None or at != self._tools_at:
                self._tools_at = at
                return kept.look(self._shelves, self._state_in, self._wanted.compile())
            return kept.last

    @property
    def files_read(self) -> int:
        """How many files the last look opened: none, when nothing changed."""
        tools = self._tools.reads if self._tools is not None else 0
        return tools + sum(shelf.reads for shelf in self._shelves)

    def list_skills(self, *, hidden: bool = False) -> list[Skill]:
        """The offered skills; with `hidden` also those that are shadowed, untrusted or excluded."""
        snapshot = self.snapshot()
        return [*snapshot.skills, *snapshot.hidden] if hidden else list(snapshot.skills)

    def get_skill(self, name: str) -> Skill | None:
        """The offered skill of that name, or by its id or path."""
        snapshot = self.snapshot()
        found = snapshot.get(name)
        if found is None:
            found = next((skill for skill in snapshot.find(name, hidden=False)), None)
        return found

    def every(self) -> list[Skill]:
        """All that is known, offered or not: skills, and folders that have tools alone."""
        snapshot = self.snapshot()
        tools = [one.skill for one in self.tools().only()]
        return [*snapshot.skills, *snapshot.hidden, *tools]

    def unmatched(self, patterns: Iterable[str] | None = None) -> list[str]:
        """Patterns that match no skill, offered or not; those of `include` when None."""
        from satchel.library.snapshot import unmatched

        left = unmatched(self._wanted.include if patterns is None else patterns, self._heads())
        return unmatched(left, (one.skill.head for one in self.tools().only())) if left else left

    def strays(self) -> list[Problem]:
        """Folders and Markdown files in the locations that look like skills and are none."""
        from satchel.library.walk import find_strays

        self.snapshot()
        return [problem for shelf in self._shelves for problem in find_strays(shelf)]

    def _heads(self) -> Iterator[Head]:
        snapshot = self.snapshot()
        return (skill.head for skill in (*snapshot.skills, *snapshot.hidden))

    def waiting(self) -> list[Skill]:
        """Those that are not trusted yet."""
        if all(location.trusted is True for location in self.locations):
            return []
        return [
            skill
            for skill in self.every()
            if skill.state == "untrusted" and not self.is_unpinned(skill)
        ]

    def waiting_line(self) -> str:
        """How many skills wait for trust and what to do, in one line; empty when none does."""
        count = len(self.waiting())
        if count == 1:
            return Message(
                "1 skill of this folder is not trusted yet: the user can run `satchel trust`",
                people="1 skill of this folder is not trusted yet: run `satchel trust`",
            )
        if not count:
            return ""
        return Message(
            "{count} skills of this folder are not trusted yet: the user can run `satchel trust`",
            people="{count} skills of this folder are not trusted yet: run `satchel trust`",
            count=count,
        )

    def modified(self, skills: Iterable[Skill]) -> list[Skill]:
        """Those whose files are not what the lockfile has; only what it has is read."""
        found: list[Skill] = []
        for skill in skills:
            with suppress(LockBroken):  # among the problems
                found += [skill] if self.seals.modified(skill) else []
        return found

    def is_unpinned(self, skill: Skill) -> bool:
        """Whether an untrusted skill lies in a trusted folder, and only no lockfile pins it."""
        if not self.trust.locked:
            return False
        location = next((one for one in self.locations if one.origin == skill.origin), None)
        return (
            location is None
            or location.trusted is True
            or self.trust.trusts(skill.base_dir, location.boundary)
        )

    def by_ref(self, ref: str) -> Skill | None:
        """The very skill of a ref as of the last look, offered or not, one with tools alone too.

        How many skills there are costs something at the first question after a change only.
        """
        found = self.snapshot().by_ref(ref)
        if found is None:
            tool = self.tools().by_ref(ref)
            found = tool.skill if tool is not None else None
        return found

    def at_path(self, path: str) -> Skill | None:
        """The skill of an absolute folder or of its own file, as `by_ref` finds it."""
        for location in self.locations:
            if location.supplier is not None or not is_inside(path, location.path):
                continue
            below = path[len(location.path) :].strip(os.sep).replace(os.sep, "/")
            for skill_id in (below, below.rpartition("/")[0]):
                skill = self.by_ref(f"{location.origin.label}/{skill_id}")
                if skill is not None and path.rstrip(os.sep) in (skill.base_dir, skill.path):
                    return skill
        return None

    def named(self, name: str) -> list[Skill]:
        """All skills of that name, the offered one first; as `by_ref` finds them."""
        only = (one.skill for one in self.tools().only())
        return [*self.snapshot().named(name), *(one for one in only if one.head.name == name)]

    def find(self, reference: str) -> list[Skill]:
        """Skills by name, id, ref or path, offered or not, those that have tools alone too."""
        found = self.snapshot().find(reference)
        found += [one.skill for one in self.tools().find(reference) if one.skill.is_tool]
        return found

    def load_content(self, name: str) -> str:
        """The body of a skill, read now.

        Raises:
            NotFound: there is no such skill.
            SatchelError: it may not be used as it is (`Seals.check`).
        """
        waits = (one for one in self.find(name) if one.state in ("untrusted", "blocked"))
        skill = self.get_skill(name) or next(waits, None)  # of which the check says why it waits
        if skill is None:
            raise NotFound(
                Message("There is no skill `{name}`", name=name),
                "Run `satchel list` to see what there is",
            )
        return self.seals.read(skill).body

    @property
    def seals(self) -> Seals:
        """Decides whether a skill may be used as it is now."""
        if self._seals is None:
            from satchel.library.seal import Seals

            self._seals = Seals(
                self.locations,
                self.trust,
                self.trace,
                supplies=self._supplies,
                scans=self._scans,
            )
        return self._seals

    def served(self, path: str) -> tuple[Skill, str] | None:
        """The served skill in whose folder an absolute path lies, and the path below it.

        Its state says whether it is offered. The file may not be there yet: see `bring`.
        """
        for root in self._supplies:
            # Also by its real name: the project may lie around the cache.
            for base in dict.fromkeys((root, os.path.realpath(root))):
                if not is_inside(path, base):
                    continue
                skill_id, _, below = path[len(base) :].strip(os.sep).partition(os.sep)
                look = self.snapshot()
                for skill in (*look.skills, *look.hidden):
                    if skill.origin.root == root and skill.head.id == skill_id:
                        return skill, below.replace(os.sep, "/")
        return None

    def supply_of(self, skill: Skill) -> Supply | None:
        """What supplies the files of a skill; None when they lie here."""
        return self._supplies.get(skill.origin.root) if skill.origin.remote else None

    def supply_at(self, path: str) -> Supply | None:
        """What supplies the skills of the location with this path."""
        return self._supplies.get(path)

    def close(self) -> None:
        """End connections to servers, and the watcher."""
        for supply in self._supplies.values():
            supply.supplier.close()
        watcher, self._watcher = self._watcher, None  # without the lock: a look may hang
        if watcher is not None:
            watcher.close()

    def holders(self, real: str) -> Iterator[Skill]:
        """The skills in whose folders a real path lies, offered or not: one in each location."""
        self.snapshot()
        for shelf in self._shelves:
            if not shelf.heads:
                continue
            location = shelf.location
            roots = {os.path.realpath(location.path): "", **shelf.followed}
            for root, via in roots.items():
                if not is_inside(real, root):
                    continue
                below = real[len(root) :].strip(os.sep).replace(os.sep, "/")
                if location.single:
                    head = shelf.heads.get("")
                    own = head is not None and (
                        below == head.file or below.split("/", 1)[0] in OWN_FOLDERS
                    )
                    if head is not None and own:
                        yield Skill(head, location.origin)
                    continue
                skill_id = f"{via}/{below}".strip("/")
                while skill_id and skill_id not in shelf.heads:
                    skill_id = skill_id.rpartition("/")[0]
                if skill_id:
                    yield Skill(shelf.heads[skill_id], location.origin)

    def wants(self, folder: str) -> bool:
        """Whether the filter lets a folder's name pass, whatever is in it."""
        sieve = self._wanted.compile()
        return sieve is None or sieve.passes(*names_of(folder, self.locations))

    def watch(self) -> Watcher:
        """Watch the locations, so that `refresh` costs nothing while nothing changes.

        Raises:
            MissingExtra: the `watch` extra is not installed.
        """
        with self._lock:
            if self._watcher is None:
                self._watcher = self.new_watcher()
            return self._watcher

    def new_watcher(self) -> Watcher:
        """A watcher of one's own, which `refresh` does not use.

        Raises:
            MissingExtra: the `watch` extra is not installed.
        """
        from satchel.library.watch import Watcher

        here = [place for place in self.locations if place.supplier is None]
        files = [os.path.join(place.path, "SKILL.md") for place in here if place.single]
        return Watcher([place.path for place in here if not place.single], files)

    def _read(self) -> bool:
        """The first look: from the index where it serves, else from the disk."""
        self._index_problems = []
        shelves: list[Shelf] = []
        for supply in self._supplies.values():
            supply.supplier.prepare()
        for location in self.locations:
            shelf = None
            if location.supplier is not None:
                shelf = Shelf(location, self._bounds)
                shelf.begin()
                self._supplies[location.path].fill(shelf)
                shelves.append(shelf)
                continue
            if self._index is not None and not location.single:
                shelf, damage = self._index.load(location, self._bounds)
                if damage:
                    values = {"reason": damage}
                    self._index_problems.append(
                        Problem("index-damaged", location.path, values=values)
                    )
            if shelf is None:
                shelf = read_shelf(location, self._bounds)
                self._save(shelf)
            else:
                revise_shelf(shelf)
                if shelf.reads and _worth_saving(shelf):
                    self._save(shelf)
            shelves.append(shelf)
        self._shelves = shelves  # all or none: an interrupted look is made again
        return True

    def _revise(self) -> bool:
        changed = False
        for shelf in self._shelves:
            if shelf.location.supplier is not None:
                changed |= self._supplies[shelf.location.path].fill(shelf)
            elif revise_shelf(shelf):
                changed = True
                if _worth_saving(shelf):
                    self._save(shelf)
        return changed

    def _save(self, shelf: Shelf) -> None:
        if self._index is None or shelf.location.single or len(shelf.heads) < WORTH_IT:
            return
        reason = self._index.save(shelf)
        if reason:
            self._index_problems.append(
                Problem("index-unsaved", shelf.location.path, values={"reason": reason})
            )
            self._index = None

    def _assemble(self) -> Snapshot:
        """Decide for every skill whether it is offered."""
        by_name: dict[str, Skill] = {}
        rest: list[tuple[Head, Origin, State]] = []
        lost: list[tuple[Head, Origin, str]] = []
        problems: list[Problem] = [*self._given, *self._index_problems, *self._lock_problems()]
        sieve = self._wanted.compile()
        outdone: list[Skill] = []
        repeated = find_repeated(self._shelves, lambda at: self._shelves[at].heads)
        for at, shelf in enumerate(self._shelves):
            location = shelf.location
            origin = location.origin
            judge = self._trust_in(shelf)
            here: dict[str, Head] = {}
            heads = shelf.heads if location.supplier is None else self._unrivalled(shelf, outdone)
            for skill_id in sorted(without(heads, repeated.get(at))):
                head = heads[skill_id]
                if sieve is not None and not sieve.keeps(head):
                    rest.append((head, origin, "excluded"))
                    continue
                state = self._state(judge, head, origin)
                if state != "active":
                    rest.append((head, origin, state))
                    continue
                earlier = here.get(head.name)
                if earlier is not None:
                    # Twice in one location: the last one wins, and both are named.
                    problems.append(_twice(origin, earlier, head))
                    if by_name[head.name].head is earlier:
                        del by_name[head.name]
                    lost.append((earlier, origin, head.name))
                here[head.name] = head
                if head.name in by_name:
                    lost.append((head, origin, head.name))
                else:
                    by_name[head.name] = _new(Skill, (head, origin, "active", ""))
            for item in shelf.broken.values():
                problems += item.problems
            for notes in shelf.notes.values():
                problems += notes
        hidden = [Skill(head, origin, state) for head, origin, state in rest]
        hidden += outdone
        for head, origin, name in lost:
            winner = by_name[name]
            hidden.append(Skill(head, origin, "shadowed", winner.ref))
        skills = tuple(by_name.values())
        return Snapshot(skills, by_name, tuple(hidden), tuple(problems))

    def _unrivalled(self, served: Shelf, outdone: list[Skill]) -> Mapping[str, Head]:
        """The skills of a server whose names no local skill has, offered or not.

        No server may pose as one, whatever the order of the locations and however the name is
        spelt. Servers among themselves go by that order, as all do.
        """
        from satchel.library.supply import likeness

        if not served.heads:
            return served.heads
        names: dict[str, str] = {}
        for shelf in self._shelves:
            if shelf.location.supplier is None:
                origin = shelf.location.origin
                for head in shelf.heads.values():
                    names.setdefault(likeness(head.name), Skill(head, origin).ref)
        free: dict[str, Head] = {}
        for skill_id, head in served.heads.items():
            ref = names.get(likeness(head.name))
            if ref is None:
                free[skill_id] = head
            else:
                outdone.append(Skill(head, served.location.origin, "shadowed", ref))
        return free

    def _trust_in(self, shelf: Shelf) -> LocationTrust:
        """How the skills of a location stand."""
        return self.trust.of_location(
            shelf.location.path,
            shelf.followed,
            own=shelf.location.trusted,
            project=shelf.location.boundary,
        )

    def _usable_again(self, blocked: Mapping[str, str]) -> bool:
        """Whether a skill that was not pinned, or blocked, at the last look is no more.

        Args:
            blocked: Real path of a skill's folder -> the digest of the blocked content.
        """
        if self._snapshot is None or not (blocked or self.trust.locked):
            return False
        for skill in self._snapshot.hidden:
            if skill.state == "untrusted" and self.trust.locked and self.seals.pins(skill):
                return True
            if skill.state == "blocked":
                digest = blocked.get(os.path.realpath(skill.base_dir), "")
                if not self.seals.blocks(skill, digest):
                    return True
        return False

    def _state_in(self, shelf: Shelf) -> Callable[[Head], State]:
        judge = self._trust_in(shelf)
        return lambda head: self._state(judge, head, shelf.location.origin)

    def _state(self, judge: LocationTrust, head: Head, origin: Origin) -> State:
        """Whether one skill is offered, as far as trust and the scan decide it."""
        if not judge.trusts(head.id):
            return "untrusted"
        blocked = judge.blocked(head.id)
        if blocked and self.seals.blocks(Skill(head, origin), blocked):
            return "blocked"
        if self.trust.locked and not self.seals.pins(Skill(head, origin)):
            return "untrusted"
        return "active"

    def _lock_stamps(self) -> dict[str, tuple[int, ...]]:
        """What tells that a lockfile changed; only places that hold something are asked."""
        stamps: dict[str, tuple[int, ...]] = {}
        for shelf in self._shelves:
            lock = shelf.location.lock if shelf.heads else ""
            if lock and lock not in stamps:
                try:
                    info = os.stat(lock)
                except OSError:
                    continue
                stamps[lock] = (info.st_ctime_ns, info.st_size, info.st_ino)
        return stamps

    def _lock_problems(self) -> list[Problem]:
        """Lockfiles that are damaged. One that was sound at the last start is not read again."""
        index = self._index
        found: list[Problem] = []
        for path, stamp in self._locks.items():
            if index is None or not index.knows_lock(path, stamp):
                problem = self.seals.lock_problem(path)
                if problem is not None:
                    found.append(problem)
                elif index is not None and stamp[0] <= self._shelves[0].settled:
                    index.note_lock(path, stamp)
        return found

    def _tell(self, before: Snapshot | None, after: Snapshot) -> None:
        """Record what the look found."""
        self._tell_changes(before, after)
        self._tell_oddities(after)
        if self.notify is not None:
            self.notify(after)

    def _tell_changes(self, before: Snapshot | None, after: Snapshot) -> None:
        old = {skill.ref: skill.head for skill in before.skills} if before is not None else {}
        fresh = [skill for skill in after.skills if skill.ref not in old] if old else after.skills
        if len(fresh) <= _EACH:
            for skill in fresh:
                self.trace.record("discovered", (skill.name,), ref=skill.ref)
        else:
            self.trace.record("discovered", (), count=len(fresh))
        if old:
            now = {skill.ref: skill for skill in after.skills}
            for ref, head in old.items():
                skill = now.get(ref)
                if skill is None:
                    self.trace.record("removed", (head.name,), ref=ref)
                elif skill.head is not head:
                    self.trace.record("changed", (head.name,), ref=ref)

    def _tell_oddities(self, after: Snapshot) -> None:
        odd = [skill for skill in after.skills if skill.head.problems]
        for skill in odd[:_EACH]:
            for problem in skill.head.problems:
                if problem.severity == "warning":
                    self.trace.record("repaired", (skill.name,), ref=skill.ref, code=problem.code)
        for skill in after.hidden[:_EACH]:
            if skill.state == "shadowed":
                self.trace.record("shadowed", (skill.name,), ref=skill.ref, by=skill.winner)
            elif skill.state in ("untrusted", "blocked"):
                self.trace.record(skill.state, (skill.name,), ref=skill.ref)
        for problem in after.problems[:_EACH]:
            self.trace.record("broken", (), path=problem.path, code=problem.code)


def names_of(folder: str, locations: Iterable[Location]) -> tuple[str, ...]:
    """The last part of a folder's path, and its ids in the locations that hold it."""
    found = [os.path.relpath(folder, one.path) for one in locations if is_inside(folder, one.path)]
    return os.path.basename(folder), *(one.replace(os.sep, "/") for one in found)


def _supplies(served: Sequence[Location]) -> dict[str, Supply]:
    from satchel.library.supply import Supply

    return {
        place.path: Supply(place, os.path.join(os.path.dirname(place.path), "contents"))
        for place in served
    }


def _worth_saving(shelf: Shelf) -> bool:
    """Writing a large index takes longer than reading a few files again at the next start."""
    size = len(shelf.heads)
    return size < _SMALL or shelf.reads > size // 50


def _twice(origin: Origin, first: Head, last: Head) -> Problem:
    values = {
        "name": last.name,
        "first": f"{origin.label}/{first.id}",
        "last": f"{origin.label}/{last.id}",
    }
    return Problem("duplicate-name", os.path.join(origin.root, last.id), values=values)
