"""Budget allocation of the catalogue.

    1. Everything in full, if that fits.
    2. All descriptions cut to one common length; short ones stay complete.
    3. If even stubs do not fit for all: every name, and stubs for the first of them.
    4. If not even the names fit: as many names as fit, and the rest as a count.

A larger budget never describes fewer skills, nor with fewer characters. Each step needs more room
than those below it, and within a step skills are described in a fixed order until one does not fit.
No text of a skill depends on the budget otherwise.

Pinned skills come first, and in full up to `MAX_PINNED_CHARS`. All others keep the given order,
which is the order of the locations. Usage is ignored: a skill that was never used must stay
findable, and a block that follows usage would change from turn to turn and invalidate the
provider's prompt cache.

The time is bounded by the skills that could be listed.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from posixpath import normpath
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel.catalogue.render import CatalogueEntry, ListedCounts, clean, note
from satchel.errors import InvalidInput
from satchel.i18n import say
from satchel.skill.model import DEPENDENCIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.catalogue.render import CatalogueForm
    from satchel.skill.model import Skill

Standing = Literal["full", "shortened", "named", "unlisted", "withheld"]
MAX_NAME_CHARS = 256
"""Longer names are not listed; libraries do not read them, since folder names end there too."""
MIN_STUB_CHARS = 24
"""A shorter description is less useful than the name alone."""
MAX_PINNED_CHARS = 1_024
"""Of a pinned skill before others are described: what the format allows."""
ELLIPSIS = "…"
_TOKEN_CHARS = 4
_MAX_ID_CHARS = 200
_MAX_HINT_CHARS = 60
_MAX_READ_CHARS = 8_192
"""Of a description. The same for every budget, so that no entry becomes shorter in a larger one."""
_MIN_KEPT_SHARE = 0.6
"""Cut at a sentence end only if this share of the room is kept."""
_FULL_LENGTH = sys.maxsize
_NAME_ONLY_CHARS = 0
_SENTENCE_END = re.compile(r"[.!?](?=\s)(?<!e\.g\.)(?<!i\.e\.)(?<!\svs\.)(?<!\setc\.)|[。！？]")
_UNSPACED_CHARACTER = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\U0010ffff]")
"""A character of a script that writes no spaces between words."""
_DANGLING_SIGNS = " ,;:-–—(\"'“‘[{/、，；：（「"
"""Signs that are removed from the end of a shortened text."""


class Budget(NamedTuple):
    """The size limit of a catalogue, in characters.

    Example:
        from satchel import Budget, Satchel

        budget = Budget.share(0.02, 200_000)  # 2 % of the context window
        assert budget == Budget.tokens(4_000) == Budget.of(16_000)
        catalogue = Satchel.for_project(".").catalogue(budget)
    """

    amount: int
    """The number of characters."""

    @classmethod
    def of(cls, characters: int) -> Budget:
        """A number of characters.

        Args:
            characters: The number; 0 lists nothing.

        Raises:
            InvalidInput: it is negative.
        """
        if characters < 0:
            raise InvalidInput(
                f"A budget cannot be less than nothing: `{characters}`", "Write 12000"
            )
        return cls(characters)

    @classmethod
    def tokens(cls, amount: int) -> Budget:
        """A number of tokens, as four characters each.

        Args:
            amount: The number of tokens.
        """
        return cls.of(amount * _TOKEN_CHARS)

    @classmethod
    def share(cls, part: float, window: int) -> Budget:
        """A share, such as 0.02, of a context window in tokens.

        Args:
            part: A number from 0 to 1.
            window: The size of the context window, in tokens.

        Raises:
            InvalidInput: the part is not between 0 and 1.
        """
        if not 0 <= part <= 1:
            raise InvalidInput(
                f"A share of the window lies between 0 and 1, and `{part}` does not",
                "Write 0.02 for two per cent",
            )
        return cls.tokens(int(part * window))


class Account(NamedTuple):
    """How every skill is listed. The five parts together are `total`."""

    budget: int
    """The size limit, in characters."""
    used: int
    """The size of the text, in characters."""
    total: int
    """The number of skills."""
    full: tuple[str, ...] = ()
    """Listed with the whole description."""
    shortened: tuple[str, ...] = ()
    """Listed with a truncated description."""
    named: tuple[str, ...] = ()
    """Listed by name only."""
    unlisted: int = 0
    """Not listed; the block states their number and how to find them."""
    withheld: tuple[str, ...] = ()
    """Hidden from models by `disable-model-invocation`."""
    unknown_pins: tuple[str, ...] = ()
    """Pinned names that no listable skill has."""
    rules: bool = True
    """Whether the block explains when and how to load a skill; False where only names fit."""

    def standing(self, name: str) -> Standing:
        """Return how a skill of the catalogue is listed.

        Args:
            name: The name of the skill.
        """
        if name in self.full:
            return "full"
        if name in self.shortened:
            return "shortened"
        if name in self.named:
            return "named"
        return "withheld" if name in self.withheld else "unlisted"

    def summary(self) -> str:
        """Return a summary in one sentence, without empty parts."""
        room = say("{used} of {budget} characters", used=self.used, budget=self.budget)
        if not self.total:
            return say("no skills; {room}", room=room)
        if len(self.full) == self.total and self.rules:
            if self.total == 1:
                return say("1 skill, listed in full; {room}", room=room)
            return say("{total} skills, all listed in full; {room}", total=self.total, room=room)
        parts = (
            (len(self.full), say("{count} in full", count=len(self.full))),
            (len(self.shortened), say("{count} shortened", count=len(self.shortened))),
            (len(self.named), say("{count} by name", count=len(self.named))),
            (self.unlisted, say("{count} not listed", count=self.unlisted)),
            (len(self.withheld), say("{count} withheld from models", count=len(self.withheld))),
            (not self.rules, say("without the rules")),
        )
        joined = say(", ").join(phrase for count, phrase in parts if count)
        if self.total == 1:
            return say("1 skill: {parts}; {room}", parts=joined, room=room)
        return say("{total} skills: {parts}; {room}", total=self.total, parts=joined, room=room)


class Description:
    """The entry of one skill at any length."""

    __slots__ = (
        "_ends",
        "_form",
        "_frame",
        "_frame_cost",
        "_is_complete",
        "_needs_no_quoting",
        "text",
    )

    def __init__(self, skill: Skill, label: str, form: CatalogueForm) -> None:
        hint, identity = clean(skill.argument_hint), clean(skill.id)
        hint_part = shorten(hint, _MAX_HINT_CHARS, ())
        is_label = identity == label
        id_part = "" if is_label else shorten(identity, _MAX_ID_CHARS, ())
        full_text = f"{skill.description} {skill.when_to_use}"
        self.text = clean(full_text[:_MAX_READ_CHARS])
        has_whole_id = is_label or (id_part == identity != "")
        self._is_complete = hint_part == hint and has_whole_id
        if len(full_text) > _MAX_READ_CHARS:
            self.text += ELLIPSIS
            self._is_complete = False
        self._form = form
        origin, path = clean(skill.origin.remote), file_path(skill) if form.with_paths else ""
        self._frame = form.frame(CatalogueEntry(label, id_part, hint_part, origin, path=path))
        self._frame_cost = len("".join(self._frame) + form.between)
        self._ends = sentence_ends(self.text)
        self._needs_no_quoting = form.text(self.text) == self.text
        """Whether quoting changes nothing, so that the length is known without it."""

    def cost(self, limit: int) -> int:
        """Return the size of the entry with at most `limit` characters of description."""
        text = shorten(self.text, limit, self._ends)
        return self._frame_cost + len(text if self._needs_no_quoting else self._form.text(text))

    def write(self, limit: int) -> str:
        """Return the entry."""
        start, end = self._frame
        return f"{start}{self._form.text(shorten(self.text, limit, self._ends))}{end}"

    def is_full(self, limit: int) -> bool:
        """Whether the description is complete at this length."""
        return self._is_complete and len(self.text) <= limit


class Candidate:
    """A skill that may be listed."""

    __slots__ = (
        "_description",
        "_form",
        "_label",
        "min_chars",
        "name",
        "name_cost",
        "pinned",
        "skill",
    )

    def __init__(self, skill: Skill, name: str, form: CatalogueForm, *, pinned: bool) -> None:
        self.skill = skill
        self.pinned = pinned
        self.min_chars = MAX_PINNED_CHARS if pinned else MIN_STUB_CHARS
        """Length to which its description is not truncated, if it has one."""
        self._label = name
        # A bare name must not imitate one of ours either.
        origin = skill.origin.remote
        label = (form.with_paths and file_path(skill)) or name
        self.name = form.name(f"{label} [{clean(origin)}]" if origin else label)
        self.name_cost = len(self.name + form.names_between)
        self._form = form
        self._description: Description | None = None

    @property
    def description(self) -> Description:
        """Computed lazily: most candidates of a large library are never described."""
        if self._description is None:
            self._description = Description(self.skill, self._label, self._form)
        return self._description


def file_path(skill: Skill) -> str:
    """Return the path of its SKILL.md for ReadFile; empty for a remote skill."""
    if skill.origin.remote:
        return ""
    if skill.source == "builtin" or skill.source in DEPENDENCIES:
        return clean(skill.path)
    return clean(normpath(f"{skill.ref}/{skill.head.file}"))


def shown_name(skill: Skill) -> str:
    """Return the name as listed; empty when it cannot be listed."""
    name = skill.head.name
    return clean(name) if len(name) <= MAX_NAME_CHARS else ""


def sentence_ends(text: str) -> list[int]:
    """Return the positions right after each sentence."""
    return [match.end() for match in _SENTENCE_END.finditer(text)]


def shorten(text: str, limit: int, ends: Sequence[int]) -> str:
    """Shorten `text` to `limit` characters, including the `…`; never less for a higher limit.

    Args:
        text: One line.
        limit: More than two.
        ends: `sentence_ends(text)`, computed once by the caller.
    """
    if len(text) <= limit:
        return text
    index = bisect_right(ends, limit - 2)
    words = text[: _find_word_end(text, limit - 1)].rstrip(_DANGLING_SIGNS)
    if index and (ends[index - 1] >= limit * _MIN_KEPT_SHARE or ends[index - 1] >= len(words)):
        return f"{text[: ends[index - 1]]} {ELLIPSIS}"
    return words + ELLIPSIS


def _find_word_end(text: str, stop: int) -> int:
    """The last position up to `stop` at which no word is cut."""
    end = text.rfind(" ", 0, stop + 1)
    if not text[max(end, 0) : stop + 1].isascii():  # scripts without spaces
        end = next(
            (position for position in range(stop, max(end, 0), -1) if _is_unspaced(text, position)),
            end,
        )
    # A single long word, such as an address, is cut in the middle.
    return _find_character_end(text, end if end * 2 >= stop else stop)


def _is_unspaced(text: str, position: int) -> bool:
    """Whether the script before or after a position writes no spaces between words."""
    return _UNSPACED_CHARACTER.search(text, position - 1, position + 1) is not None


def _find_character_end(text: str, stop: int) -> int:
    """Step back so that no mark or part of a joined emoji remains."""
    if text[stop - 1 : stop + 1].isascii():
        return stop
    from unicodedata import category

    first = max(1, stop - 16)
    while stop > first and (
        category(text[stop])[0] == "M" or text[stop] == "\u200d" or text[stop - 1] == "\u200d"
    ):
        stop -= 1
    return stop


class CatalogueChoice(NamedTuple):
    """The parts of the block and the listed skills."""

    entries: list[str]
    names: list[str]
    note: str
    full: tuple[str, ...]
    shortened: tuple[str, ...]
    named: tuple[str, ...]
    unlisted: int


class CatalogueChooser:
    """Allocates the budget for one set of skills."""

    def __init__(
        self,
        skills: Sequence[Skill],
        pinned: Sequence[Skill],
        offered: int,
        form: CatalogueForm,
        budget: int,
        names_only: int = 0,
    ) -> None:
        """Create an allocation.

        Args:
            skills: All skills, including those hidden from models.
            pinned: Skills to list first; none of them hidden.
            offered: The number of skills that are not hidden.
            form: The output form.
            budget: Maximum characters.
            names_only: Further characters that only names may use.
        """
        self._skills = skills
        self._pinned = pinned
        self._pinned_names = frozenset(skill.head.name for skill in pinned)
        self._offered = offered
        self._form = form
        self._budget = budget
        self._names_only = names_only
        self._names_frame = len(form.names_head + form.names_tail)

    def choose(self) -> CatalogueChoice | None:
        """Return the best block that fits; None when intro and counts alone do not fit."""
        candidates: list[Candidate] = []
        unlistable_count = spent = 0
        room = self._compute_room(unlisted=False)
        for candidate in self._candidates():
            if candidate is None:
                unlistable_count += 1
                room = self._compute_room(unlisted=True)
            else:
                candidates.append(candidate)
                spent += candidate.name_cost
            if spent + unlistable_count > room + self._names_only:
                return self._choose_some(candidates)
        limits = self._share_out(candidates, room) if spent + unlistable_count <= room else None
        if limits is None:
            return self._choose_some(candidates)
        return self._write(list(zip(candidates, limits, strict=True)))

    def _compute_room(self, *, unlisted: bool) -> int:
        """Return the room for entries and names; counts are reserved at their widest."""
        offered = self._offered
        counts = ListedCounts(offered, offered, offered, offered if unlisted else 0)
        tail = self._form.tail(note(counts, self._form.find))
        return self._budget - len(self._form.head + self._form.entries_head + tail)

    def _candidates(self) -> Iterator[Candidate | None]:
        """Yield the offered skills; None for one that cannot be listed."""
        for pinned, skills in ((True, self._pinned), (False, self._skills)):
            for skill in skills:
                if pinned or not self._is_skipped(skill):
                    name = shown_name(skill)
                    yield Candidate(skill, name, self._form, pinned=pinned) if name else None

    def _is_skipped(self, skill: Skill) -> bool:
        """Whether a skill is listed as a pinned one already, or hidden from models."""
        return skill.head.name in self._pinned_names or not skill.for_model

    def _share_out(self, candidates: Sequence[Candidate], room: int) -> list[int] | None:
        """Return a description length for every candidate, 0 for the name alone.

        None when not even the names fit.
        """
        if _total_cost(candidates, _FULL_LENGTH, room) <= room:
            return [_FULL_LENGTH] * len(candidates)
        if _total_cost(candidates, MIN_STUB_CHARS, room) <= room:
            level = _find_common_length(candidates, room)
            return [max(level, candidate.min_chars) for candidate in candidates]
        pinned = [candidate for candidate in candidates if candidate.pinned]
        others = candidates[len(pinned) :]
        spent = self._names_frame + sum(candidate.name_cost for candidate in others)
        spent += _total_cost(pinned, MIN_STUB_CHARS, room)
        if spent > room:
            return None
        described = len(pinned)
        for candidate in others:
            spent += candidate.description.cost(MIN_STUB_CHARS) - candidate.name_cost
            if spent > room:
                break
            described += 1
        names = [_NAME_ONLY_CHARS] * (len(candidates) - described)
        return [candidate.min_chars for candidate in candidates[:described]] + names

    def _choose_some(self, candidates: Sequence[Candidate]) -> CatalogueChoice | None:
        """List pinned skills, then names, then a count of the rest."""
        room = self._compute_room(unlisted=True)
        if room < 0:
            return None
        spent = described = 0
        for candidate in candidates:
            if not candidate.pinned:
                break
            cost = candidate.description.cost(candidate.min_chars)
            if spent + cost > room:
                break
            spent += cost
            described += 1
        limits = [(candidate, candidate.min_chars) for candidate in candidates[:described]]
        spent += self._names_frame
        for candidate in candidates[described:]:
            spent += candidate.name_cost
            if spent > room + self._names_only:
                break
            limits.append((candidate, _NAME_ONLY_CHARS))
        return self._write(limits)

    def _write(self, limits: Sequence[tuple[Candidate, int]]) -> CatalogueChoice:
        entries: list[str] = []
        names: list[str] = []
        full: list[str] = []
        shortened: list[str] = []
        named: list[str] = []
        for candidate, limit in limits:
            name = candidate.skill.head.name
            if limit == _NAME_ONLY_CHARS:
                names.append(candidate.name)
                named.append(name)
            else:
                entries.append(candidate.description.write(limit))
                (full if candidate.description.is_full(limit) else shortened).append(name)
        unlisted = self._offered - len(limits)
        counts = ListedCounts(len(full), len(shortened), len(named), unlisted)
        return CatalogueChoice(
            entries=entries,
            names=names,
            note=note(counts, self._form.find),
            full=tuple(full),
            shortened=tuple(shortened),
            named=tuple(named),
            unlisted=unlisted,
        )


def _total_cost(candidates: Sequence[Candidate], limit: int, room: int) -> int:
    """Return the size of all entries at one length; stops adding beyond `room`."""
    spent = 0
    for candidate in candidates:
        spent += candidate.description.cost(max(limit, candidate.min_chars))
        if spent > room:
            break
    return spent


def _find_common_length(candidates: Sequence[Candidate], room: int) -> int:
    """Return the greatest common length that fits; a stub does."""
    lengths = (len(candidate.description.text) for candidate in candidates)
    low, high = MIN_STUB_CHARS, max(lengths, default=MIN_STUB_CHARS)
    while low < high:
        middle = (low + high + 1) // 2
        if _total_cost(candidates, middle, room) <= room:
            low = middle
        else:
            high = middle - 1
    return max(low, MIN_STUB_CHARS)
