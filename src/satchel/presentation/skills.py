"""Records of the skill list, and lookup of a skill by its reference."""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_inside
from satchel.errors import Blocked, InvalidInput, NotFound, SatchelError
from satchel.i18n import language, say
from satchel.library.snapshot import BrokenSkill
from satchel.presentation.skill_index import OFFERED, SOURCES, STATES, index_of, refresh_if_small
from satchel.skill.document import SkillHeader
from satchel.skill.model import Skill
from satchel.tools.framing import encodable, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.presentation.skill_index import Item, SkillIndex
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
    return say("All your projects") if name == "global" else say("This project")


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
_MAX_TOOLTIP_CHARS = 4_000


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
    whole: str
    """The description for a tooltip."""
    source: str
    place: str
    is_system: bool
    state: str
    by: str
    """The ref of the skill that shadows it."""
    mark: str
    """Changes whenever the skill changes."""
    modified: bool = False


class FilterChip(NamedTuple):
    """A filter and its number of rows."""

    key: str
    number: int | None
    """None during a search, which does not count all results."""
    chosen: bool


class SkillList(NamedTuple):
    """One page of the list."""

    rows: tuple[SkillRow, ...]
    total: int
    page: int
    pages: int
    words: str
    source: str
    state: str
    sources: tuple[FilterChip, ...]
    states: tuple[FilterChip, ...]
    most: bool
    """There may be more results."""
    untrusted: int
    first: bool
    """There are only built-in skills."""
    opened: str = ""
    """The key of the row that is opened initially."""


def find_skill(satchel: Satchel, ref: str) -> Skill:
    """Return the skill with a `ref`, else with that name, id or path.

    Raises:
        NotFound: there is no such skill.
    """
    # `Library.find` builds a table of all names, which takes seconds in a large library. A skill
    # may be named like another one's ref, so the ref is looked up first.
    skill = satchel.library.by_ref(ref) or _find_by_name(satchel, ref) if ref else None
    if skill is None and ref and refresh_if_small(satchel):  # it may be new
        satchel.library.tools(refresh=True)
        skill = satchel.library.by_ref(ref) or _find_by_name(satchel, ref)
    if skill is not None:
        return skill
    raise NotFound(
        say("There is no skill `{name}`", name=encodable(ref) or "?"),
        say("Go back to the list of skills"),
    )


def find_checked(satchel: Satchel, ref: str) -> Skill:
    """Return a skill after a check of its folder, so that a blocked one has that state.

    Raises:
        NotFound: there is no such skill.
    """
    skill = find_skill(satchel, ref)
    if skill.state == "active" and not skill.origin.remote:
        try:
            satchel.library.seals.check(skill, clean=False)
        except Blocked:
            satchel.library.tools(refresh=True)
            return satchel.library.by_ref(skill.ref) or skill
        except SatchelError:
            pass  # shown by the page
    return skill


def _find_by_name(satchel: Satchel, word: str) -> Skill | None:
    """A skill by its path, name or id; an offered one first."""
    library = satchel.library
    if os.sep in word:
        there = library.at_path(os.path.abspath(word))
        if there is not None:
            return there
    labels = dict.fromkeys(place.origin.label for place in library.locations)
    ids = (library.by_ref(f"{label}/{word}") for label in labels)
    found = [*library.named(word), *(skill for skill in ids if skill is not None)]
    return min(found, key=lambda skill: skill.state != "active", default=None)


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
    source: str = "",
    state: str = "",
    page: int = 1,
    opened: str = "",
) -> SkillList:
    """Return one page of the list.

    Args:
        satchel: The project's skills.
        words: The search; empty for all skills in their order.
        source: Only skills of this source.
        state: Only skills in this state.
        page: From 1; a number beyond the last page means the last one.
        opened: The ref of a skill to open: without a search, its page is shown.

    Raises:
        InvalidInput: the source or state is unknown, or the search is too long.
    """
    _check(words, source, state)
    index = index_of(satchel)
    index.check_all(satchel)
    words = words.strip()
    counts: dict[tuple[str, str], int] = dict(index.counts)
    if words:
        # One extra result tells whether there is a next page.
        enough = 1 + (
            MAX_SEARCH_RESULTS
            if source or state
            else min(MAX_SEARCH_RESULTS, max(page, 1) * MAX_ROWS_PER_PAGE)
        )
        found = _search(satchel, index, words, (source, state), enough)
        most = len(found) == enough
        pages, page = _paged(min(len(found), MAX_SEARCH_RESULTS), page)
        total = len(found) - most
        shown = found[(page - 1) * MAX_ROWS_PER_PAGE : page * MAX_ROWS_PER_PAGE]
    else:
        places = index.select(source, state)
        total, most = len(places), False
        if opened:
            page = _page_of(index, places, opened) or page
        pages, page = _paged(total, page)
        here = places[(page - 1) * MAX_ROWS_PER_PAGE : page * MAX_ROWS_PER_PAGE]
        index.check(satchel, here)
        counts = dict(index.counts)
        shown = [(index.items[at], index.states[at]) for at in here]
    return SkillList(
        tuple(_row(item, now, index) for item, now in shown),
        total, page, pages, words, source, state,
        tuple(_chips(SOURCES, 0, counts, (source, state), numbered=not words)),
        tuple(_chips(STATES, 1, counts, (source, state), numbered=not words)),
        most,
        sum(count for (_, now), count in index.counts.items() if now == "untrusted"),
        all(one[0] == "builtin" for one, count in index.counts.items() if count),
        key_of(opened) if opened else "",
    )  # fmt: skip


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
    return _row(skill, index.check_one(satchel, skill), index)


def find_name(satchel: Satchel, ref: str) -> str:
    """Return the name of a skill or of a broken file."""
    item = broken_at(satchel, ref)
    return printable(item.name if item is not None else find_skill(satchel, ref).name)


def broken_row(item: BrokenSkill) -> SkillRow:
    """Return the row of a broken file."""
    return _row(item, "broken")


def source_words(source: str) -> str:
    """Return the label of a source."""
    return _source_words(source, language())


@cache
def _source_words(source: str, _reader: str) -> str:
    return {
        "user": say("yours"),
        "project": say("project"),
        "system": say("system"),
        "global": say("global"),
        "extra": say("extra folder"),
        "server": say("server"),
        "builtin": say("built in"),
    }.get(source, "–")


def state_words(state: str) -> tuple[str, str, str]:
    """Return label, explanation and tone of a state."""
    return _state_words(state, language())


@cache
def _state_words(state: str, _reader: str) -> tuple[str, str, str]:
    """Cached, since every row of every list needs it."""
    return {
        "full": (say("listed"), say("The model is told its whole description"), "good"),
        "shortened": (
            say("shortened"),
            say("The model is told a part of its description: the budget has no room for all"),
            "info",
        ),
        "named": (
            say("named only"),
            say("The model is told its name: the budget has no room for its description"),
            "info",
        ),
        "unlisted": (
            say("not listed"),
            say("The budget has no room for it. The model finds it by a search"),
            "",
        ),
        "withheld": (say("people only"), say("Its author keeps it from models"), "info"),
        "tools": (say("tools"), say("The model may call its tools"), "good"),
        "untrusted": (
            say("untrusted"),
            say("It is not offered: the folder of this project is not trusted yet"),
            "warn",
        ),
        "unpinned": (
            say("not pinned"),
            say("It is not offered: no lockfile pins it as it is"),
            "warn",
        ),
        "blocked": (say("blocked"), say("It is not offered: the scan blocks it"), "bad"),
        "broken": (say("broken"), say("It cannot be read as a skill"), "bad"),
        "shadowed": (say("hidden"), say("Another skill of that name goes before it"), ""),
        "excluded": (say("left out"), say("A filter of yours leaves it out"), ""),
    }[state]


def _check(words: str, source: str, state: str) -> None:
    if source and source not in SOURCES:
        raise InvalidInput(
            say("There is no source `{name}`", name=encodable(source)[:80]), say("Take another")
        )
    if state and state not in STATES:
        raise InvalidInput(
            say("There is no state `{name}`", name=encodable(state)[:80]), say("Take another")
        )
    if len(words) > MAX_SEARCH_CHARS:
        raise InvalidInput(
            say("A search has at most {most} characters", most=MAX_SEARCH_CHARS),
            say("Use fewer words"),
        )


def _search(
    satchel: Satchel, index: SkillIndex, words: str, chosen: tuple[str, str], enough: int
) -> list[tuple[Item, str]]:
    """Offered skills by rank, then skills whose names contain the words.

    Each is followed by those it shadows. A search while typing often ends in half a word, which is
    in no index but in a name.
    """
    source, state = chosen
    found: list[tuple[Item, str]] = []
    seen: set[str] = set()

    def add(item: Item, now: str) -> None:
        if source in ("", item.source) and state in ("", now):
            found.append((item, now))

    if not state or state in OFFERED:
        for match in satchel.search(encodable(words), enough, reasons=False):
            if match.name not in seen:
                seen.add(match.name)
                add(match.skill, index.state_of(match.skill))
                for other in index.behind.get(match.name, ()):
                    add(other, "shadowed")

    def wanted(at: int) -> bool:
        item = index.items[at]
        known = isinstance(item, Skill) and item.state in {"active", "shadowed"}
        return not (known and item.name in seen) and index.matches(at, source, state)

    if len(found) < enough:
        more = index.find_named(words.lower().split(), wanted, enough - len(found))
        if len(found) + len(more) < enough:
            known = set(more)
            more += index.find_described(
                words.lower().split(),
                lambda at: at not in known and wanted(at),
                enough - len(found) - len(more),
            )
        found += [(index.items[at], index.states[at]) for at in more]
    return found[:enough]


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


def _chips(
    keys: Iterable[str],
    part: int,
    counts: dict[tuple[str, str], int],
    chosen: tuple[str, str],
    *,
    numbered: bool,
) -> Iterable[FilterChip]:
    """The filters of one kind, with counts under the filter of the other kind."""
    other = chosen[1 - part]
    sums: dict[str, int] = {}
    for pair, count in counts.items():
        if other in ("", pair[1 - part]):
            sums[pair[part]] = sums.get(pair[part], 0) + count
    for key in keys:
        if sums.get(key) or key == chosen[part]:
            yield FilterChip(key, sums.get(key, 0) if numbered else None, key == chosen[part])


def _row(item: Item, state: str, index: SkillIndex | None = None) -> SkillRow:
    if isinstance(item, BrokenSkill):
        path, words = item.problem.path, item.problem.message
        return SkillRow(
            _address(path), key_of(path), printable(item.name), "", *_cut(words),
            item.source, printable(path), is_system=False, state=state, by="",
            mark=key_of(words),
        )  # fmt: skip
    head = item.head
    ref = item.ref
    modified = index is not None and ref in index.modified
    mark = (
        f"{ref}\0{modified}\0{head.mtime_ns}\0{head.ctime_ns}\0{head.size}\0{state}\0{item.winner}"
    )
    return SkillRow(
        _address(ref), key_of(ref), printable(item.name),
        printable(item.id) if item.id != item.name else "", *_cut(item.description),
        item.source, printable(item.origin.remote or item.origin.label), item.is_system, state,
        printable(item.winner), key_of(mark), modified,
    )  # fmt: skip


def key_of(text: str) -> str:
    """Return a short digest of a text, for ids in a page."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _address(text: str) -> str:
    """A text as part of a URL; empty when a browser could not send it back."""
    return text if encodable(text) == text else ""


def _cut(text: str) -> tuple[str, str]:
    text = printable(" ".join(text.split()))
    short = (
        text
        if len(text) <= _MAX_DESCRIPTION_CHARS
        else f"{text[: _MAX_DESCRIPTION_CHARS - 1].rstrip()}…"
    )
    return short, text if len(
        text
    ) <= _MAX_TOOLTIP_CHARS else f"{text[: _MAX_TOOLTIP_CHARS - 1].rstrip()}…"
