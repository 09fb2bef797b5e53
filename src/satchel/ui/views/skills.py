"""The rows of the list of skills, and one skill by its address."""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._fs import is_inside
from satchel._language import language, say
from satchel.errors import Blocked, InvalidInput, NotFound, SatchelError
from satchel.library.snapshot import Broken
from satchel.skill.model import Head, Skill
from satchel.tools.frame import encodable, printable
from satchel.ui.views.shelf import OFFERED, SOURCES, STATES, look_now, shelf_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from satchel.facade import Satchel
    from satchel.store.scope import Name
    from satchel.store.store import Store
    from satchel.ui.views.shelf import Item, Shelf

SCOPES: tuple[Name, ...] = ("project", "global")


class ScopeShown(NamedTuple):
    """One scope."""

    name: Name
    title: str
    place: str
    """Where its skills are; empty when it cannot be opened."""
    store: Store | None
    """None when it cannot be opened."""
    trouble: str = ""
    """Why not."""
    hint: str = ""


def show_scopes(satchel: Satchel) -> tuple[ScopeShown, ...]:
    """Both of them: one that cannot be opened is no reason to hide the other."""
    return tuple(_shown(satchel, name) for name in SCOPES)


def _shown(satchel: Satchel, name: Name) -> ScopeShown:
    try:
        store = satchel.store(name)
    except SatchelError as exc:
        return ScopeShown(name, scope_words(name), "", None, exc.message, exc.hint)
    return ScopeShown(name, scope_words(name), scope_place(store), store)


def scope_words(name: str) -> str:
    """A scope as people call it."""
    return say("All your projects") if name == "global" else say("This project")


def scope_place(store: Store) -> str:
    """Where the skills of a scope are, as people write it."""
    folder, home = store.scope.folder, os.path.expanduser("~")
    if store.scope.boundary:
        return os.path.relpath(folder, store.scope.boundary).replace(os.sep, "/")
    return folder.replace(home, "~", 1) if folder.startswith(home + os.sep) else folder


ROWS = 50
"""Rows of a page."""
FOUND = 200
"""Skills that a search finds at most; who wants others says more words."""
LONGEST = 400
"""Characters that a search may have."""
_SHOWN = 260
"""Characters of a description in a row; its tooltip has the rest."""
_TOOLTIP = 4_000


class Row(NamedTuple):
    """One line of the list."""

    ref: str
    """Its address; empty when no address can say it."""
    key: str
    """Names the row within a page, whatever the skill is called."""
    name: str
    id: str
    """Only where it is another than the name."""
    description: str
    whole: str
    """The description for a tooltip: how much of it a row shows is up to the window."""
    source: str
    place: str
    """Where it lies, as people name it."""
    is_system: bool
    state: str
    by: str
    """The ref of the skill that hides it."""
    mark: str
    """Another one means that the skill is another than it was."""
    modified: bool = False
    """It was installed, and edited since."""


class Chip(NamedTuple):
    """A filter and how many rows it leaves."""

    key: str
    number: int | None
    """None while something is searched: nobody counts all that would fit."""
    chosen: bool


class Listing(NamedTuple):
    """One page of the list."""

    rows: tuple[Row, ...]
    total: int
    """Rows on all pages."""
    page: int
    pages: int
    words: str
    source: str
    state: str
    sources: tuple[Chip, ...]
    states: tuple[Chip, ...]
    most: bool
    """There may be more than were found."""
    untrusted: int
    """Skills whose folder is not trusted yet."""
    first: bool
    """Nobody has put a skill here yet."""
    opened: str = ""
    """The key of the row that is open from the beginning."""


def find_skill(satchel: Satchel, ref: str) -> Skill:
    """The skill of an address: the very one whose `ref` it is, else by name, id or path.

    Raises:
        NotFound: there is none, or no more.
    """
    # `Library.find` makes a table of everything a skill can be called, which takes seconds where
    # there are many. A stranger may call a skill by another one's ref: the ref counts first.
    skill = satchel.library.by_ref(ref) or _called(satchel, ref) if ref else None
    if skill is None and ref and look_now(satchel):  # it may have come a moment ago
        satchel.library.tools(refresh=True)
        skill = satchel.library.by_ref(ref) or _called(satchel, ref)
    if skill is not None:
        return skill
    raise NotFound(
        say("There is no skill `{name}`", name=encodable(ref) or "?"),
        say("Go back to the list of skills"),
    )


def find_checked(satchel: Satchel, ref: str) -> Skill:
    """The same after a check of its folder: what the scan blocks is known as blocked.

    Raises:
        NotFound: there is none, or no more.
    """
    skill = find_skill(satchel, ref)
    if skill.state == "active" and not skill.origin.remote:
        try:
            satchel.library.seals.check(skill, clean=False)
        except Blocked:
            satchel.library.tools(refresh=True)
            return satchel.library.by_ref(skill.ref) or skill
        except SatchelError:
            pass  # the page says why
    return skill


def _called(satchel: Satchel, word: str) -> Skill | None:
    """A skill by its path, its name or its id; an offered one first."""
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
    """Where a skill may be changed; empty when it may not."""
    try:
        return satchel.store_of(skill).scope.name
    except SatchelError:  # said to whoever tries all the same
        return ""


def list_skills(
    satchel: Satchel,
    *,
    words: str = "",
    source: str = "",
    state: str = "",
    page: int = 1,
    opened: str = "",
) -> Listing:
    """One page of the list.

    Args:
        satchel: Whose skills.
        words: What is searched; empty means all in their order.
        source: Only from there.
        state: Only in that state.
        page: Which page, from 1; one behind the last is the last.
        opened: The ref of a skill whose row is to be open: without a search, its page is shown.

    Raises:
        InvalidInput: there is no such source or state, or the words are too many.
    """
    _check(words, source, state)
    shelf = shelf_of(satchel)
    shelf.check_all(satchel)
    words = words.strip()
    counts: dict[tuple[str, str], int] = dict(shelf.counts)
    if words:
        # One more than is shown says whether there is a next page.
        enough = 1 + (FOUND if source or state else min(FOUND, max(page, 1) * ROWS))
        found = _search(satchel, shelf, words, (source, state), enough)
        most = len(found) == enough
        pages, page = _paged(min(len(found), FOUND), page)
        total = len(found) - most
        shown = found[(page - 1) * ROWS : page * ROWS]
    else:
        places = shelf.pick(source, state)
        total, most = len(places), False
        if opened:
            page = _page_of(shelf, places, opened) or page
        pages, page = _paged(total, page)
        here = places[(page - 1) * ROWS : page * ROWS]
        shelf.check(satchel, here)
        counts = dict(shelf.counts)
        shown = [(shelf.items[at], shelf.states[at]) for at in here]
    return Listing(
        tuple(_row(item, now, shelf) for item, now in shown),
        total, page, pages, words, source, state,
        tuple(_chips(SOURCES, 0, counts, (source, state), numbered=not words)),
        tuple(_chips(STATES, 1, counts, (source, state), numbered=not words)),
        most,
        sum(count for (_, now), count in shelf.counts.items() if now == "untrusted"),
        all(one[0] == "builtin" for one, count in shelf.counts.items() if count),
        key_of(opened) if opened else "",
    )  # fmt: skip


def broken_at(satchel: Satchel, path: str) -> Broken | None:
    """The file that should be a skill and is none, by its very path; None for all others."""
    return shelf_of(satchel).broken.get(path)


def find_file(satchel: Satchel, ref: str) -> Skill:
    """A skill to edit or to remove; also a file that should be one and is none.

    Of such a file nothing is known but where it lies, and that is all that changing it takes.

    Raises:
        NotFound: there is none, or no more.
    """
    item = broken_at(satchel, ref) if os.path.isabs(ref) else None
    found = _as_skill(satchel, item) if item is not None else None
    return found or find_skill(satchel, ref)


def _as_skill(satchel: Satchel, item: Broken) -> Skill | None:
    """What stands for a file that is no skill, so that it can be mended; None where none could."""
    folder, file = os.path.split(item.problem.path)
    if file.lower() not in ("skill.md", "skill.yaml"):
        return None
    places = [one for one in satchel.library.locations
              if one.supplier is None and is_inside(folder, one.path)]  # fmt: skip
    if not places:
        return None
    place = max(places, key=lambda one: len(one.path))
    inside = os.path.relpath(folder, place.path).replace(os.sep, "/")
    head = Head(item.name, "", "" if inside == "." else inside, file, 0, 0, 0)
    return Skill(head, place.origin, "excluded")


def row_of(satchel: Satchel, skill: Skill) -> Row:
    """The line of one skill."""
    shelf = shelf_of(satchel)
    return _row(skill, shelf.look_at(satchel, skill), shelf)


def find_name(satchel: Satchel, ref: str) -> str:
    """What the skill of an address is called, or the file that should be one."""
    item = broken_at(satchel, ref)
    return printable(item.name if item is not None else find_skill(satchel, ref).name)


def broken_row(item: Broken) -> Row:
    """The line of a file that should be a skill and is none."""
    return _row(item, "broken")


def source_words(source: str) -> str:
    """A source in people's words."""
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
    """A state in people's words, what it means, and its mood: good, warn, bad, info or none."""
    return _state_words(state, language())


@cache
def _state_words(state: str, _reader: str) -> tuple[str, str, str]:
    """Kept, since every row of every list asks; all the sentences are said for one of them."""
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
    if len(words) > LONGEST:
        raise InvalidInput(
            say("A search has at most {most} characters", most=LONGEST), say("Use fewer words")
        )


def _search(
    satchel: Satchel, shelf: Shelf, words: str, chosen: tuple[str, str], enough: int
) -> list[tuple[Item, str]]:
    """Offered ones as the detector ranks them, then whose names contain the words.

    Each has those behind it that it hides. Somebody who types has half a word most of the time: no
    index knows it, the names do.
    """
    source, state = chosen
    found: list[tuple[Item, str]] = []
    seen: set[str] = set()

    def take(item: Item, now: str) -> None:
        if source in ("", item.source) and state in ("", now):
            found.append((item, now))

    if not state or state in OFFERED:
        for match in satchel.search(encodable(words), enough, reasons=False):
            if match.name not in seen:
                seen.add(match.name)
                take(match.skill, shelf.state_of(match.skill))
                for other in shelf.behind.get(match.name, ()):
                    take(other, "shadowed")

    def wanted(at: int) -> bool:
        item = shelf.items[at]
        known = isinstance(item, Skill) and item.state in {"active", "shadowed"}
        return not (known and item.name in seen) and shelf.fits(at, source, state)

    if len(found) < enough:
        more = shelf.named(words.lower().split(), wanted, enough - len(found))
        if len(found) + len(more) < enough:
            known = set(more)
            more += shelf.described(
                words.lower().split(),
                lambda at: at not in known and wanted(at),
                enough - len(found) - len(more),
            )
        found += [(shelf.items[at], shelf.states[at]) for at in more]
    return found[:enough]


def _page_of(shelf: Shelf, places: Sequence[int], ref: str) -> int:
    """The page of one skill, 0 when it is not among them. Only after something was added."""
    last = ref.rpartition("/")[2]
    for number, at in enumerate(places):
        item = shelf.items[at]
        # Most are another one by the end of their id alone, which costs little to see.
        if isinstance(item, Skill) and item.head.id.endswith(last) and item.ref == ref:
            return number // ROWS + 1
    return 0


def _paged(total: int, page: int) -> tuple[int, int]:
    """How many pages there are, and the one that is shown."""
    pages = max(1, -(-total // ROWS))
    return pages, min(max(page, 1), pages)


def _chips(
    keys: Iterable[str],
    part: int,
    counts: dict[tuple[str, str], int],
    chosen: tuple[str, str],
    *,
    numbered: bool,
) -> Iterable[Chip]:
    """The filters of one kind; counts are of those that the other kind leaves."""
    other = chosen[1 - part]
    sums: dict[str, int] = {}
    for pair, count in counts.items():
        if other in ("", pair[1 - part]):
            sums[pair[part]] = sums.get(pair[part], 0) + count
    for key in keys:
        if sums.get(key) or key == chosen[part]:
            yield Chip(key, sums.get(key, 0) if numbered else None, key == chosen[part])


def _row(item: Item, state: str, shelf: Shelf | None = None) -> Row:
    if isinstance(item, Broken):
        path, words = item.problem.path, item.problem.message
        return Row(
            _address(path), key_of(path), printable(item.name), "", *_cut(words),
            item.source, printable(path), is_system=False, state=state, by="",
            mark=key_of(words),
        )  # fmt: skip
    head = item.head
    ref = item.ref
    modified = shelf is not None and ref in shelf.modified
    mark = (
        f"{ref}\0{modified}\0{head.mtime_ns}\0{head.ctime_ns}\0{head.size}\0{state}\0{item.winner}"
    )
    return Row(
        _address(ref), key_of(ref), printable(item.name),
        printable(item.id) if item.id != item.name else "", *_cut(item.description),
        item.source, printable(item.origin.remote or item.origin.label), item.is_system, state,
        printable(item.winner), key_of(mark), modified,
    )  # fmt: skip


def key_of(text: str) -> str:
    """A short name for a text that is no part of an address or an id by itself."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _address(text: str) -> str:
    """A text as part of an address; nothing when a browser could not send it back."""
    return text if encodable(text) == text else ""


def _cut(text: str) -> tuple[str, str]:
    text = printable(" ".join(text.split()))
    short = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1].rstrip()}…"
    return short, text if len(text) <= _TOOLTIP else f"{text[: _TOOLTIP - 1].rstrip()}…"
