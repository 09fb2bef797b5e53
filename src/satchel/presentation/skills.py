"""Records of the skill list, and lookup of a skill by its reference."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple
from weakref import WeakKeyDictionary

from satchel._fs import is_inside
from satchel.errors import Blocked, InvalidInput, NotFound, SatchelError
from satchel.i18n import language, say
from satchel.library.locations import source_words
from satchel.library.snapshot import BrokenSkill
from satchel.presentation.skill_index import (
    ACTIVE,
    ALL_SKILLS,
    CHECK_S,
    SORTS,
    SOURCES,
    STATES,
    count_problems,
    index_of,
    refresh_if_small,
)
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill
from satchel.tools.framing import encodable, printable
from satchel.tools.selection import search

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.presentation.skill_index import Item, SkillFilter, SkillIndex
    from satchel.satchel import Satchel
    from satchel.store.store import Store
    from satchel.store.workdir import Name

SCOPES: tuple[Name, ...] = ("project", "global")


class ScopeShown(NamedTuple):
    """One scope."""

    name: Name
    title: str
    place: str
    """The folder of its skills; empty when it cannot be opened."""
    store: Store | None
    """None when it cannot be opened."""
    trouble: str = ""
    """Why it cannot be opened."""
    hint: str = ""


def show_scopes(satchel: Satchel) -> tuple[ScopeShown, ...]:
    """Return both scopes, also those that cannot be opened."""
    return tuple(_shown(satchel, name) for name in SCOPES)


def _shown(satchel: Satchel, name: Name) -> ScopeShown:
    try:
        store = satchel.store(name)
    except SatchelError as exc:
        return ScopeShown(name, scope_words(name), "", None, exc.message, exc.hint)
    return ScopeShown(name, scope_words(name), scope_place(store), store)


def scope_words(name: str) -> str:
    """Return the label of a scope."""
    return say("All projects") if name == "global" else say("This project")


def scope_place(store: Store) -> str:
    """Return the folder of a scope, shortened."""
    folder, home = store.scope.folder, os.path.expanduser("~")
    if store.scope.boundary:
        return os.path.relpath(folder, store.scope.boundary).replace(os.sep, "/")
    return folder.replace(home, "~", 1) if folder.startswith(home + os.sep) else folder


MAX_ROWS_PER_PAGE = 50
MAX_SEARCH_RESULTS = 200
MAX_SEARCH_CHARS = 400
_MAX_DESCRIPTION_CHARS = 260


class SkillRow(NamedTuple):
    """One row of the list."""

    ref: str
    """Empty when it cannot be part of a URL."""
    key: str
    """Identifies the row within a page."""
    name: str
    id: str
    """Empty when it equals the name."""
    description: str
    source: str
    place: str
    state: str
    by: str
    """The ref of the skill that shadows it."""
    modified: bool = False
    tools: bool = False
    used: str = ""
    """The day it was last used."""
    problems: int = 0


class SkillList(NamedTuple):
    """One page of the list."""

    rows: tuple[SkillRow, ...]
    total: int
    page: int
    pages: int
    words: str
    wanted: SkillFilter
    sort: str
    sources: tuple[tuple[str, int], ...]
    """The values of the filter, each with its number of rows."""
    states: tuple[tuple[str, int], ...]
    with_tools: int
    most: bool
    """There may be more results."""
    untrusted: int
    first: bool
    """There are only built-in skills."""
    opened: str = ""
    """The key of a new or changed row."""


def find_skill(satchel: Satchel, ref: str) -> Skill:
    """Return the skill with a `ref`, else with that name, id or path.

    Raises:
        NotFound: there is no such skill.
    """
    found = skills_called(satchel, ref) if ref else []
    if not found and ref and refresh_if_small(satchel):  # it may be new
        found = skills_called(satchel, ref)
    if found:
        return found[0]
    raise NotFound(
        say("There is no skill `{name}`", name=encodable(ref) or "?"),
        say("Search for it in the list"),
    )


def find_checked(satchel: Satchel, ref: str) -> Skill:
    """Return a skill after a check of its folder, so that a blocked one has that state.

    Raises:
        NotFound: there is no such skill.
    """
    skill = find_skill(satchel, ref)
    if skill.state == "active" and not skill.origin.remote:
        try:
            satchel.library.integrity.check(skill, clean=False)
        except Blocked:
            return skill._replace(state="blocked")
        except SatchelError:
            pass  # shown by the page
    return skill


def skills_called(satchel: Satchel, word: str) -> list[Skill]:
    """Return the skills with a ref, name, id or path, in this order; offered ones first.

    Unlike `Library.find`, it needs no table of all ids and paths, which takes a second to build in
    a large library.
    """
    library = satchel.library
    exact = library.by_ref(word)
    found = [exact] if exact is not None else library.named(word)
    folder = os.path.dirname(word) if word.endswith(("/SKILL.md", "/skill.yaml")) else word
    for place in () if found else library.locations:
        below = os.path.relpath(folder, place.path) if is_inside(folder, place.path) else folder
        id_ = "" if below == "." else below.replace(os.sep, "/")
        skill = library.by_ref(f"{place.origin.label}/{id_}")
        found += [skill] if skill is not None else []
    return sorted(found, key=lambda skill: skill.state != "active")


def own_scope(satchel: Satchel, skill: Skill) -> Literal["project", "global", ""]:
    """Return the scope in which a skill can be changed; empty when it cannot."""
    try:
        return satchel.store_of(skill).scope.name
    except SatchelError:  # raised when a change is tried
        return ""


def list_skills(
    satchel: Satchel,
    *,
    words: str = "",
    wanted: SkillFilter = ALL_SKILLS,
    sort: str = "",
    page: int = 1,
    opened: str = "",
    indexed: bool = True,
) -> SkillList:
    """Return one page of the list.

    Args:
        satchel: The project's skills.
        words: The search; empty for all skills.
        wanted: The filters.
        sort: One of `SORTS`, with `-` in front for descending; empty for the order of the library,
            or of the search.
        page: From 1; a number beyond the last page means the last one.
        opened: The ref of a skill to mark: without a search, its page is shown.
        indexed: Whether the search index can be used; else only names are searched.

    Raises:
        InvalidInput: the search is too long, or another value is unknown.
    """
    words = words.strip()
    _check(words, wanted, sort)
    index, used = index_of(satchel), _last_used(satchel)
    index.check_all(satchel)
    counts: Counter[tuple[str, str, bool]] = index.counts
    most = False
    if words:
        found = _search(satchel, index, words, wanted, indexed=indexed)
        # Counted before the filters, so that other values of a filter can be chosen.
        counts = Counter(map(index.facets, found))
        most = len(found) > MAX_SEARCH_RESULTS
        kept = {at for at in found[:MAX_SEARCH_RESULTS] if index.matches(at, wanted)}
        places: Sequence[int] = [at for at in found if at in kept]
        if sort:
            places = [at for at in index.select(wanted, sort, used) if at in kept]
    else:
        places = index.select(wanted, sort, used)
        if opened:
            page = _page_of(index, places, opened) or page
    total = len(places)
    pages, page = _paged(total, page)
    here = places[(page - 1) * MAX_ROWS_PER_PAGE : page * MAX_ROWS_PER_PAGE]
    # A search while typing is not delayed at all.
    if not index.check(satchel, here, 0.0 if words else CHECK_S):
        index.check_later(satchel, here)
    return SkillList(
        tuple(_row(index.items[at], index.states[at], index, used) for at in here),
        total, page, pages, words, wanted, sort,
        tuple(_options(SOURCES, 0, counts, wanted)),
        tuple(_options(STATES, 1, counts, wanted)),
        sum(n for key, n in counts.items() if key[2] and wanted.matches(*key[:2], tools=True)),
        most,
        sum(count for key, count in index.counts.items() if key[1] == "untrusted"),
        all(key[0] == "builtin" for key, count in index.counts.items() if count),
        key_of(opened) if opened else "",
    )  # fmt: skip


_used: WeakKeyDictionary[Satchel, tuple[tuple[int, ...], dict[str, float]]] = WeakKeyDictionary()


def _last_used(satchel: Satchel) -> dict[str, float]:
    """Name of a skill -> when it was last loaded or run; read again when the trace changes."""
    mark = satchel.trace.mark()
    kept = _used.get(satchel)
    if kept is None or kept[0] != mark:
        found: dict[str, float] = {}
        for row in satchel.trace.history():  # the newest first
            if row.get("kind") in ("loaded", "ran"):
                for name in row.get("skills") or ():
                    found.setdefault(str(name), float(row["t"]))
        kept = _used[satchel] = (mark, found)
    return kept[1]


def day_of(stamp: float | None) -> str:
    """Return a time as a day; empty when it is unknown."""
    try:
        return time.strftime("%Y-%m-%d", time.localtime(stamp)) if stamp else ""
    except (OverflowError, OSError, ValueError):
        return ""  # a file may have any time


def highlight(text: str, words: str) -> list[tuple[str, bool]]:
    """Split a text into parts, each with whether the search matches it.

    A long word also matches other forms of it: `analyse` matches `analysis`.
    """
    *first, last = words.split() or [""]
    kept = [*(word for word in first if len(word) > 2 or not word.isascii()), last]
    stems = [re.escape(word[: max(4, len(word) - 2)]) for word in kept if word]
    if not stems:
        return [(text, False)]
    pattern = rf"((?<![a-zA-Z0-9])(?:{'|'.join(stems)})[a-zA-Z0-9]*)"
    parts = re.split(pattern, text, flags=re.IGNORECASE)
    return [(part, at % 2 == 1) for at, part in enumerate(parts) if part]


def match_reason(satchel: Satchel, ref: str, words: str) -> str:
    """Return why a search finds a skill."""
    skill = find_skill(satchel, ref)
    place = None if skill.is_tool else satchel.place(skill, words)
    match = place.match if place is not None and place.rank else None
    return printable(match.reason) if match is not None else say("Name")


def broken_at(satchel: Satchel, path: str) -> BrokenSkill | None:
    """Return the broken file at a path; None for all others."""
    return index_of(satchel).broken.get(path)


def find_file(satchel: Satchel, ref: str) -> Skill:
    """Return a skill to edit or to remove; also a broken file.

    Of a broken file only the path is known, which is enough to change it.

    Raises:
        NotFound: there is no such skill.
    """
    item = broken_at(satchel, ref) if os.path.isabs(ref) else None
    found = _as_skill(satchel, item) if item is not None else None
    return found or find_skill(satchel, ref)


def _as_skill(satchel: Satchel, item: BrokenSkill) -> Skill | None:
    """A placeholder for a broken file, so that it can be edited; None for other files."""
    folder, file = os.path.split(item.problem.path)
    if file.lower() not in ("skill.md", "skill.yaml"):
        return None
    places = [one for one in satchel.library.locations
              if one.supplier is None and is_inside(folder, one.path)]  # fmt: skip
    if not places:
        return None
    place = max(places, key=lambda one: len(one.path))
    inside = os.path.relpath(folder, place.path).replace(os.sep, "/")
    head = SkillHeader(item.name, "", "" if inside == "." else inside, file, 0, 0, 0)
    return Skill(head, place.origin, "excluded")


def row_of(satchel: Satchel, skill: Skill) -> SkillRow:
    """Return the row of one skill."""
    index = index_of(satchel)
    return _row(skill, index.check_one(satchel, skill), index, _last_used(satchel))


def broken_row(item: BrokenSkill) -> SkillRow:
    """Return the row of a broken file."""
    return _row(item, "broken")


def source_label(source: str) -> str:
    """Return the label of a source."""
    return label(source_words(source))


def state_words(state: str) -> tuple[str, str, str]:
    """Return label, explanation and tone of a state."""
    return _state_words(state, language())


def listing_words(state: str) -> str:
    """Return how much of a skill the catalogue contains."""
    parts = {"full": say("full"), "shortened": say("truncated"), "named": say("name only")}
    return label(parts[state]) if state in parts else state_words(state)[0]


@cache
def _state_words(state: str, _reader: str) -> tuple[str, str, str]:
    """Cached, since every row of every list needs it."""
    active = say("active")
    word, about, tone = {
        "active": (active, "", "good"),
        "full": (active, say("Models see its full description"), "good"),
        "shortened": (active, say("Models see a part of its description"), "good"),
        "named": (active, say("Models see only its name"), "good"),
        "unlisted": (say("search only"), say("It does not fit the budget; searches find it"), ""),
        "withheld": (say("user only"), say("`disable-model-invocation` is set"), "info"),
        "tools": (active, say("Models can call its tools"), "good"),
        "untrusted": (
            say("untrusted"), say("Models do not see it: its folder is not trusted"), "warn",
        ),
        "unpinned": (say("not locked"), say("The lockfile does not contain this content"), "warn"),
        "blocked": (say("blocked"), say("Models do not see it: the scan blocks it"), "bad"),
        "unverified": (say("unverified"), say("The lockfile beside it is damaged"), "bad"),
        "broken": (say("broken"), say("It is not a valid skill"), "bad"),
        "shadowed": (say("shadowed"), say("Another skill has the same name"), ""),
        "excluded": (say("excluded"), say("A filter in the settings excludes it"), ""),
    }[state]  # fmt: skip
    return label(word), about, tone


def label(word: str) -> str:
    """Return a word as a label, with a capital letter."""
    return word[:1].upper() + word[1:]


def _check(words: str, wanted: SkillFilter, sort: str) -> None:
    if len(words) > MAX_SEARCH_CHARS:
        raise InvalidInput(
            say(
                "{field} has more than {most} characters",
                field=say("Search"),
                most=MAX_SEARCH_CHARS,
            ),
            say("Use fewer words"),
        )
    for value, known in (
        (wanted.source, SOURCES), (wanted.state, STATES), (sort.removeprefix("-"), SORTS),
    ):  # fmt: skip
        if value and value not in known:
            raise InvalidInput(
                say("`{name}` is not valid", name=encodable(value)[:80]), say("Choose another")
            )


def _search(
    satchel: Satchel, index: SkillIndex, words: str, wanted: SkillFilter, *, indexed: bool
) -> list[int]:
    """Skills of this name, then offered skills by rank, then names that contain the words.

    Each is followed by those it shadows. A search while typing often ends in half a word, which is
    in no index but in a name.
    """
    enough = MAX_SEARCH_RESULTS + 1
    # The skills of this index: those of a newer snapshot may not be in the search index yet.
    look, text = index.snapshot, encodable(words)
    places = map(index.place_of, look.named(text))
    found: dict[int, None] = {at: None for at in places if at is not None}
    ranked = search(satchel.detector, text, look.skills, enough, reasons=False) if indexed else ()
    for match in ranked:
        for item in (match.skill, *index.behind.get(match.name, ())):
            at = index.place_of(item)
            if at is not None:
                found[at] = None
    for find in (index.find_named, index.find_described):
        if len(found) < enough:
            rest = enough - len(found)
            for at in find(
                words.lower().split(),
                lambda at: at not in found and index.matches(at, wanted),
                rest,
            ):
                found[at] = None
    return list(found)


def _page_of(index: SkillIndex, places: Sequence[int], ref: str) -> int:
    """The page of one skill, 0 when it is not listed."""
    last = ref.rpartition("/")[2]
    for number, at in enumerate(places):
        item = index.items[at]
        # Comparing the end of the id first is cheap and rules out most skills.
        if isinstance(item, Skill) and item.head.id.endswith(last) and item.ref == ref:
            return number // MAX_ROWS_PER_PAGE + 1
    return 0


def _paged(total: int, page: int) -> tuple[int, int]:
    """The number of pages, and the page shown."""
    pages = max(1, -(-total // MAX_ROWS_PER_PAGE))
    return pages, min(max(page, 1), pages)


def _options(
    keys: Iterable[str], part: int, counts: Counter[tuple[str, str, bool]], wanted: SkillFilter
) -> Iterable[tuple[str, int]]:
    """The values of a filter, with counts under the other filters."""
    others = wanted._replace(source="") if part == 0 else wanted._replace(state="")
    chosen = wanted.source if part == 0 else wanted.state
    sums: Counter[str] = Counter()
    for key, count in counts.items():
        if others.matches(*key[:2], tools=key[2]):
            sums[key[0] if part == 0 else key[1]] += count
    sums["active"] = sum(sums[key] for key in ACTIVE)
    sums["full"] = sums["tools"] = 0
    for key in keys:
        if sums[key] or key == chosen:
            yield key, sums[key]


def _row(
    item: Item, state: str, index: SkillIndex | None = None, used: Mapping[str, float] | None = None
) -> SkillRow:
    problems = count_problems(item, state)
    if isinstance(item, BrokenSkill):
        path, words = item.problem.path, item.problem.message
        return SkillRow(
            _address(path), key_of(path), printable(item.name), "", _cut(words), item.source,
            printable(path), state, "", problems=problems,
        )  # fmt: skip
    ref = item.ref
    return SkillRow(
        _address(ref), key_of(ref), printable(item.name),
        printable(item.id) if item.id != item.name else "", _cut(item.description),
        item.source, printable(item.origin.remote or item.origin.label), state,
        printable(item.shadowed_by),
        modified=index is not None and ref in index.modified,
        tools=index is not None and index.snapshot.tools.of(item) is not None,
        used="" if state == "shadowed" else day_of((used or {}).get(item.name)),
        problems=problems,
    )  # fmt: skip


def key_of(text: str) -> str:
    """Return a short digest of a text, for ids in a page."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _address(text: str) -> str:
    """A text as part of a URL; empty when a browser could not send it back."""
    return text if encodable(text) == text else ""


def _cut(text: str) -> str:
    text = printable(" ".join(text.split()))
    if len(text) <= _MAX_DESCRIPTION_CHARS:
        return text
    return f"{text[: _MAX_DESCRIPTION_CHARS - 1].rstrip()}…"
