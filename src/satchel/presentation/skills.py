"""The list of skills: its rows, its filters, and the labels of states and sources."""

from __future__ import annotations

import re
import time
from collections import Counter
from functools import cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple
from weakref import WeakKeyDictionary

from satchel.detect.hybrid import HybridDetector
from satchel.diagnosis.selection import fit_text, move_weak_matches, threshold_text
from satchel.errors import InvalidInput
from satchel.i18n import language, render, say
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
)
from satchel.presentation.skill_lookup import find_skill
from satchel.skill.model import Skill
from satchel.tools.framing import encodable, printable
from satchel.tools.selection import search

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from satchel.detect import Detection
    from satchel.presentation.skill_index import Item, SkillFilter, SkillIndex
    from satchel.satchel import Satchel

MAX_ROWS_PER_PAGE = 50
MAX_SEARCH_RESULTS = 200
MAX_SEARCH_CHARS = 400
_MAX_DESCRIPTION_CHARS = 260
_last_used_cache: WeakKeyDictionary[Satchel, tuple[tuple[int, ...], dict[str, float]]] = (
    WeakKeyDictionary()
)


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
    location: str
    """The label of its location; the address of a skill of a server; the path of a broken file."""
    state: str
    shadowed_by: str
    """The ref of the skill that shadows it."""
    modified: bool = False
    has_tools: bool = False
    last_used: str = ""
    """The day it was last used."""
    problems: int = 0
    missing: str = ""
    """What it needs, in the state `needs setup`."""
    fit: str = ""
    """How well it fits the search, as `satchel search` says it; empty for words alone."""
    fits: bool = False


class SkillList(NamedTuple):
    """One page of the list."""

    rows: tuple[SkillRow, ...]
    total: int
    page: int
    pages: int
    query: str
    filters: SkillFilter
    sort: str
    sources: tuple[tuple[str, int], ...]
    """The values of the filter, each with its number of rows."""
    states: tuple[tuple[str, int], ...]
    with_tools_count: int
    has_more: bool
    """There may be more results."""
    untrusted: int
    only_builtin: bool
    """There are only built-in skills."""
    marked_key: str = ""
    """The key of a new or changed row."""
    threshold: str = ""
    """How close the best result is, where none fits the search."""
    has_use: bool = False
    """Whether the use of a skill is recorded."""


class _Results(NamedTuple):
    """The results of a search, best first."""

    positions: list[int]
    fits: Mapping[int, tuple[str, bool]]
    """Position -> how well it fits, and whether that is enough."""
    threshold: str


def list_skills(
    satchel: Satchel,
    *,
    query: str = "",
    filters: SkillFilter = ALL_SKILLS,
    sort: str = "",
    page: int = 1,
    marked_ref: str = "",
    use_index: bool = True,
) -> SkillList:
    """Return one page of the list.

    Args:
        satchel: The project's skills.
        query: The search; empty for all skills.
        filters: The filters.
        sort: One of `SORTS`, with `-` in front for descending; empty for the order of the library,
            or of the search.
        page: From 1; a number beyond the last page means the last one.
        marked_ref: The ref of a skill to mark: without a search, its page is shown.
        use_index: Whether the search index can be used; else only names are searched.

    Raises:
        InvalidInput: the search is too long, or another value is unknown.
    """
    query = query.strip()
    _require_valid(query, filters, sort)
    index, last_used = index_of(satchel), _last_used(satchel)
    index.check_all(satchel)
    counts: Counter[tuple[str, str, bool]] = index.counts
    results = _Results([], {}, "")
    if query:
        results = _search(satchel, index, query, filters, use_index=use_index)
        # Counted before the filters, so that other values of a filter can be chosen.
        counts = Counter(map(index.facets, results.positions))
        positions = _matching_positions(index, results.positions, filters, sort, last_used)
    else:
        positions = index.select(filters, sort, last_used)
        if marked_ref:
            page = _page_of(index, positions, marked_ref) or page
    pages = max(1, -(-len(positions) // MAX_ROWS_PER_PAGE))
    page = min(max(page, 1), pages)
    page_positions = positions[(page - 1) * MAX_ROWS_PER_PAGE : page * MAX_ROWS_PER_PAGE]
    # A search while typing is not delayed at all.
    if not index.check(satchel, page_positions, 0.0 if query else CHECK_S):
        index.check_later(satchel, page_positions)
    return SkillList(
        rows=tuple(
            _row(index.items[position], index.states[position], index, last_used)._replace(
                **dict(zip(("fit", "fits"), results.fits.get(position, ()), strict=False))
            )
            for position in page_positions
        ),
        total=len(positions),
        page=page,
        pages=pages,
        query=query,
        filters=filters,
        sort=sort,
        sources=tuple(_filter_options("source", SOURCES, counts, filters)),
        states=tuple(_filter_options("state", STATES, counts, filters)),
        with_tools_count=sum(
            count
            for (source, state, has_tools), count in counts.items()
            if has_tools and filters.matches(source, state, tools=True)
        ),
        has_more=len(results.positions) > MAX_SEARCH_RESULTS,
        untrusted=sum(
            count for (_, state, _), count in index.counts.items() if state == "untrusted"
        ),
        only_builtin=index.has_only_builtin(),
        marked_key=row_key(marked_ref) if marked_ref else "",
        threshold=results.threshold,
        has_use=bool(last_used),
    )


def _matching_positions(
    index: SkillIndex,
    results: Sequence[int],
    filters: SkillFilter,
    sort: str,
    last_used: Mapping[str, float],
) -> Sequence[int]:
    """Return the best results that pass the filters, in the order of `sort` if there is one."""
    matching = [
        position for position in results[:MAX_SEARCH_RESULTS] if index.matches(position, filters)
    ]
    if not sort:
        return matching
    members = frozenset(matching)
    return [position for position in index.select(filters, sort, last_used) if position in members]


def _last_used(satchel: Satchel) -> dict[str, float]:
    """Name of a skill -> when it was last loaded or run; read again when the trace changes."""
    file_stamps = satchel.trace.file_stamps()
    cached = _last_used_cache.get(satchel)
    if cached is not None and cached[0] == file_stamps:
        return cached[1]
    last_used: dict[str, float] = {}
    for event in satchel.trace.history():  # the newest first
        if event.get("kind") in ("loaded", "ran"):
            for name in event.get("skills") or ():
                last_used.setdefault(str(name), float(event["t"]))
    _last_used_cache[satchel] = (file_stamps, last_used)
    return last_used


def day_of(stamp: float | None) -> str:
    """Return a time as a day; empty when it is unknown."""
    try:
        return time.strftime("%Y-%m-%d", time.localtime(stamp)) if stamp else ""
    except (OverflowError, OSError, ValueError):
        return ""  # a file may have any time


def highlight(text: str, query: str) -> list[tuple[str, bool]]:
    """Split a text into parts, each with whether the search matches it.

    A long word also matches other forms of it: `analyse` matches `analysis`.
    """
    *first_words, last_word = query.split() or [""]
    search_words = [word for word in first_words if len(word) > 2 or not word.isascii()]
    search_words.append(last_word)
    stems = [re.escape(word[: max(4, len(word) - 2)]) for word in search_words if word]
    if not stems:
        return [(text, False)]
    pattern = rf"((?<![a-zA-Z0-9])(?:{'|'.join(stems)})[a-zA-Z0-9]*)"
    parts = re.split(pattern, text, flags=re.IGNORECASE)
    return [(part, index % 2 == 1) for index, part in enumerate(parts) if part]


def match_reason(satchel: Satchel, ref: str, query: str) -> str:
    """Return why a search finds a skill."""
    skill = find_skill(satchel, ref)
    explanation = None if skill.is_tool else satchel.place(skill, query)
    match = explanation.match if explanation is not None and explanation.rank else None
    return printable(match.reason) if match is not None else say("Name")


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
    listings = {"full": say("full"), "shortened": say("truncated"), "named": say("name only")}
    return label(listings[state]) if state in listings else state_words(state)[0]


@cache
def _state_words(state: str, _language: str) -> tuple[str, str, str]:
    """Cached for each language, since every row of every list needs it."""
    active = say("active")
    word, explanation, tone = {
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
        "needs setup": (
            say("needs setup"), say("Models do not see it: a requirement is not met"), "warn",
        ),
        "blocked": (say("blocked"), say("Models do not see it: the scan blocks it"), "bad"),
        "unverified": (say("unverified"), say("The lockfile beside it is damaged"), "bad"),
        "broken": (say("broken"), say("It is not a valid skill"), "bad"),
        "shadowed": (say("shadowed"), say("Another skill has the same name"), ""),
        "excluded": (say("excluded"), say("A filter in the settings excludes it"), ""),
    }[state]  # fmt: skip
    return label(word), explanation, tone


def label(word: str) -> str:
    """Return a word as a label, with a capital letter."""
    return word[:1].upper() + word[1:]


def _require_valid(query: str, filters: SkillFilter, sort: str) -> None:
    if len(query) > MAX_SEARCH_CHARS:
        raise InvalidInput(
            say(
                "{field} has more than {most} characters",
                field=say("Search"),
                most=MAX_SEARCH_CHARS,
            ),
            say("Use fewer words"),
        )
    for value, allowed in (
        (filters.source, SOURCES), (filters.state, STATES), (sort.removeprefix("-"), SORTS),
    ):  # fmt: skip
        if value and value not in allowed:
            raise InvalidInput(
                say("`{name}` is not valid", name=encodable(value)[:80]), say("Choose another")
            )


def _search(
    satchel: Satchel, index: SkillIndex, query: str, filters: SkillFilter, *, use_index: bool
) -> _Results:
    """Return skills of this name, then those of `satchel search`, then others by rank and by words.

    Each is followed by those it shadows. A search while typing often ends in half a word, which is
    in no index but in a name.
    """
    result_limit = MAX_SEARCH_RESULTS + 1
    # The skills of this index: those of a newer snapshot may not be in the search index yet.
    snapshot, text = index.snapshot, encodable(query)
    same_name = map(index.position_of, snapshot.named(text))
    positions: dict[int, None] = {position: None for position in same_name if position is not None}
    fits: dict[int, tuple[str, bool]] = {}
    threshold = ""
    if use_index:
        matches = search(satchel.detector, text, snapshot.skills, result_limit, reasons=False)
        if isinstance(satchel.detector.detector, HybridDetector):  # others may ask a model
            answer = move_weak_matches(satchel.which(text, record=False))
            matches = [*answer.matches, *answer.runners_up, *matches]
            fits, threshold = _fits(index, answer)
        items = (
            item for match in matches for item in (match.skill, *index.shadowed.get(match.name, ()))
        )
        ranked_positions = map(index.position_of, items)
        positions.update((position, None) for position in ranked_positions if position is not None)
    for find in (index.find_named, index.find_described):
        if len(positions) < result_limit:
            for position in find(
                query.lower().split(),
                lambda position: position not in positions and index.matches(position, filters),
                result_limit - len(positions),
            ):
                positions[position] = None
    return _Results(list(positions), fits, threshold)


def _fits(index: SkillIndex, answer: Detection) -> tuple[dict[int, tuple[str, bool]], str]:
    """Return the positions of the skills of `satchel search` with their fit, and the threshold."""
    count = len(answer.matches)
    is_unfit = answer.runners_up and not count and answer.threshold
    fits = {
        position: (fit_text(match, answer), rank < count)
        for rank, match in enumerate((*answer.matches, *answer.runners_up))
        if (position := index.position_of(match.skill)) is not None
    }
    return fits, threshold_text(answer) if is_unfit else ""


def _page_of(index: SkillIndex, positions: Sequence[int], ref: str) -> int:
    """Return the page of one skill, 0 when it is not listed."""
    id_end = ref.rpartition("/")[2]
    for number, position in enumerate(positions):
        item = index.items[position]
        # Comparing the end of the id first is cheap and rules out most skills.
        if isinstance(item, Skill) and item.head.id.endswith(id_end) and item.ref == ref:
            return number // MAX_ROWS_PER_PAGE + 1
    return 0


def _filter_options(
    field: Literal["source", "state"],
    values: Iterable[str],
    counts: Counter[tuple[str, str, bool]],
    filters: SkillFilter,
) -> Iterable[tuple[str, int]]:
    """Yield the values of a filter, with counts under the other filters."""
    is_source = field == "source"
    other_filters = filters._replace(source="") if is_source else filters._replace(state="")
    selected = filters.source if is_source else filters.state
    sums: Counter[str] = Counter()
    for (source, state, has_tools), count in counts.items():
        if other_filters.matches(source, state, tools=has_tools):
            sums[source if is_source else state] += count
    sums["active"] = sum(sums[state] for state in ACTIVE)
    sums["full"] = sums["tools"] = 0
    for value in values:
        if sums[value] or value == selected:
            yield value, sums[value]


def _row(
    item: Item,
    state: str,
    index: SkillIndex | None = None,
    last_used: Mapping[str, float] | None = None,
) -> SkillRow:
    problems = count_problems(item, state)
    if isinstance(item, BrokenSkill):
        path = item.problem.path
        return SkillRow(
            ref=_url_ref(path),
            key=row_key(path),
            name=printable(item.name),
            id="",
            description=_short_description(item.problem.message),
            source=item.source,
            location=printable(path),
            state=state,
            shadowed_by="",
            problems=problems,
        )
    ref = item.ref
    unmet = item.setup_problem if state == "needs setup" else None
    return SkillRow(
        ref=_url_ref(ref),
        key=row_key(ref),
        name=printable(item.name),
        id=printable(item.id) if item.id != item.name else "",
        description=_short_description(item.description),
        source=item.source,
        location=printable(item.origin.remote or item.origin.label),
        state=state,
        shadowed_by=printable(item.shadowed_by),
        modified=index is not None and ref in index.modified,
        has_tools=index is not None and index.snapshot.tools.of(item) is not None,
        last_used="" if state == "shadowed" else day_of((last_used or {}).get(item.name)),
        problems=problems,
        missing=printable(render(unmet.values["what"])) if unmet else "",
    )


def row_key(text: str) -> str:
    """Return a short digest of a text, for ids in a page."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _url_ref(text: str) -> str:
    """Return a text as part of a URL; empty when a browser could not send it back."""
    return text if encodable(text) == text else ""


def _short_description(text: str) -> str:
    text = printable(" ".join(text.split()))
    if len(text) <= _MAX_DESCRIPTION_CHARS:
        return text
    return f"{text[: _MAX_DESCRIPTION_CHARS - 1].rstrip()}…"
