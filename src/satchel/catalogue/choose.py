"""Which skills fit, which are shortened, and what is said about the rest?

    1. Everything in full, if that fits.
    2. All descriptions cut to one common length; short ones stay whole.
    3. If even stubs do not fit for all: every name, and descriptions for the first of them.
    4. If not even the names fit: as many names as fit, and the rest as a count.

Pinned skills come first and in full. All others keep the order they are given in, which is the
order of the locations. How often a skill was used plays no part: a skill that was never used must
stay findable, or it never will be; and a block that follows usage changes from turn to turn, which
costs the provider's prompt cache.

Nothing here looks at more skills than could be listed, plus one fixed sample.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from posixpath import normpath
from typing import TYPE_CHECKING, Literal, NamedTuple

from satchel._language import say
from satchel.catalogue.render import TOPICS, Counts, Entry, clean, note
from satchel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from satchel.catalogue.render import Form
    from satchel.skill.model import Skill

Unit = Literal["characters", "tokens"]
Standing = Literal["full", "shortened", "named", "unlisted", "withheld"]

_NOT_ASCII = re.compile("[^\x00-\x7f]")
_WIDE = re.compile("[^\x00-\u07ff]")


class Budget(NamedTuple):
    """The size that a catalogue may have.

    Tokens are estimated, because every model counts differently and a catalogue must not need a
    tokenizer: four ASCII characters are one token, two of the other alphabets (Latin with accents,
    Greek, Cyrillic, Hebrew, Arabic) are one, and each Chinese, Japanese, Korean, Indic or Thai
    character and each emoji is one. English prose comes out a little high, which is the safe side.
    """

    amount: int
    unit: Unit = "characters"

    @classmethod
    def of(cls, characters: int) -> Budget:
        """A number of characters."""
        return cls(characters).checked()

    @classmethod
    def tokens(cls, amount: int) -> Budget:
        """A number of tokens, as estimated."""
        return cls(amount, "tokens").checked()

    @classmethod
    def share(cls, part: float, window: int) -> Budget:
        """A part, such as 0.02, of a context window in tokens.

        Raises:
            InvalidInput: the part is not between 0 and 1.
        """
        if not 0 <= part <= 1:
            raise InvalidInput(
                f"A share of the window lies between 0 and 1, and `{part}` does not",
                "Write 0.02 for two per cent",
            )
        return cls(int(part * window), "tokens").checked()

    def checked(self) -> Budget:
        """The budget itself.

        Raises:
            InvalidInput: it is less than nothing, or in an unknown unit.
        """
        if self.amount < 0:
            raise InvalidInput(
                f"A budget cannot be less than nothing: `{self.amount}`", "Write 12000"
            )
        if self.unit not in ("characters", "tokens"):
            raise InvalidInput(
                f"A budget is counted in characters or tokens, not in `{self.unit}`",
                "Write `tokens`",
            )
        return self

    @property
    def room(self) -> int:
        """The amount in the units of `weigh`."""
        return self.amount * 4 if self.unit == "tokens" else self.amount

    def weigh(self, text: str) -> int:
        """What `text` takes of `room`: characters, or quarters of a token.

        Parts can be weighed one by one: the whole weighs exactly their sum.
        """
        if self.unit == "characters" or text.isascii():
            return len(text)
        return len(text) + len(_NOT_ASCII.findall(text)) + 2 * len(_WIDE.findall(text))

    def measure(self, text: str) -> int:
        """How large `text` is in the unit of the budget, rounded up."""
        weight = self.weigh(text)
        return (weight + 3) // 4 if self.unit == "tokens" else weight


class Account(NamedTuple):
    """Where every skill went. The five parts together are `total`."""

    budget: int
    used: int
    total: int
    full: tuple[str, ...] = ()
    """Listed with their whole description."""
    shortened: tuple[str, ...] = ()
    """Listed with a part of it."""
    named: tuple[str, ...] = ()
    """Listed by name only."""
    unlisted: int = 0
    """Not listed; the block says how many there are and how to find them."""
    withheld: tuple[str, ...] = ()
    """Not for models: their authors set `disable-model-invocation`."""
    unit: Unit = "characters"
    unknown_pins: tuple[str, ...] = ()
    """Names that were to be pinned and that no listable skill has."""
    rules: bool = True
    """Whether the block says when and how to load a skill; False where only names had room."""

    def standing(self, name: str) -> Standing:
        """How the skill of that name stands in the block. Ask only about skills it was made of."""
        if name in self.full:
            return "full"
        if name in self.shortened:
            return "shortened"
        if name in self.named:
            return "named"
        return "withheld" if name in self.withheld else "unlisted"

    def summary(self) -> str:
        """The account in one sentence, for people. What there is none of is not named."""
        used = {"used": self.used, "budget": self.budget}
        room = (
            say("about {used} of {budget} tokens", **used)
            if self.unit == "tokens"
            else say("{used} of {budget} characters", **used)
        )
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
        named = say(", ").join(words for count, words in parts if count)
        if self.total == 1:
            return say("1 skill: {parts}; {room}", parts=named, room=room)
        return say("{total} skills: {parts}; {room}", total=self.total, parts=named, room=room)


LONGEST_NAME = 256
"""A longer name cannot be shown. Libraries read none: folders end there too."""
_LONGEST_ID = 200
_LONGEST_HINT = 60


class Description:
    """What is said about one skill, at any length."""

    __slots__ = ("_ends", "_form", "_frame", "_frame_cost", "_scale", "_simple", "_whole", "text")

    def __init__(self, skill: Skill, shown: str, form: Form, scale: Budget) -> None:
        hint, identity = clean(skill.argument_hint), clean(skill.id)
        hint_part = shorten(hint, _LONGEST_HINT, ())
        same = identity == shown
        id_part = "" if same else shorten(identity, _LONGEST_ID, ())
        raw = f"{skill.description} {skill.when_to_use}"
        self.text = clean(raw[: scale.room])
        self._whole = hint_part == hint and (same or (id_part == identity != ""))
        if len(raw) > scale.room:  # more cannot fit, so it was not looked at
            self.text += MORE
            self._whole = False
        self._form = form
        self._scale = scale
        origin, path = clean(skill.origin.remote), file_path(skill) if form.with_paths else ""
        self._frame = form.frame(Entry(shown, id_part, hint_part, origin, path=path))
        self._frame_cost = scale.weigh("".join(self._frame) + form.between)
        self._ends = sentence_ends(self.text)
        # Text that needs no quoting and counts one a character is weighed by its length.
        self._simple = scale.unit == "characters" and form.text(self.text) == self.text

    def cost(self, limit: int) -> int:
        """The price of an entry with at most `limit` characters of description."""
        text = shorten(self.text, limit, self._ends)
        weight = len(text) if self._simple else self._scale.weigh(self._form.text(text))
        return self._frame_cost + weight

    def write(self, limit: int) -> str:
        """The entry."""
        start, end = self._frame
        return f"{start}{self._form.text(shorten(self.text, limit, self._ends))}{end}"

    def is_full(self, limit: int) -> bool:
        """Whether nothing is missing at this length."""
        return self._whole and len(self.text) <= limit


class Candidate:
    """A skill that may be listed."""

    __slots__ = ("_description", "_form", "_scale", "_shown", "name", "name_cost", "place", "skill")

    def __init__(self, skill: Skill, shown: str, place: int, form: Form, scale: Budget) -> None:
        """Take a skill.

        Args:
            skill: The skill.
            shown: Its `shown_name`.
            place: Where it stands among all; -1 when it is pinned.
            form: How it is written.
            scale: How it is weighed.
        """
        self.skill = skill
        self.place = place
        self._shown = shown
        # A name alone must not pass for one of ours either.
        origin = skill.origin.remote
        label = (form.with_paths and file_path(skill)) or shown
        self.name = form.name(f"{label} [{clean(origin)}]" if origin else label)
        self.name_cost = scale.weigh(self.name + form.names_between)
        self._form = form
        self._scale = scale
        self._description: Description | None = None

    @property
    def description(self) -> Description:
        """Worked out when asked for: most candidates of a large library never are."""
        if self._description is None:
            self._description = Description(self.skill, self._shown, self._form, self._scale)
        return self._description


def file_path(skill: Skill) -> str:
    """The path of its SKILL.md as ReadFile takes it; empty for one that lies on a server."""
    if skill.origin.remote:
        return ""
    return clean(
        skill.path if skill.source == "builtin" else normpath(f"{skill.ref}/{skill.head.file}")
    )


def shown_name(skill: Skill) -> str:
    """The name as it stands in a block; empty when it cannot stand there."""
    name = skill.head.name
    return clean(name) if len(name) <= LONGEST_NAME else ""


MORE = "…"
_KEEPS = 0.6
"""A sentence end must keep this share of the room: half a line of good text beats a short one."""

_SENTENCE = re.compile(r"[.!?](?=\s)(?<!e\.g\.)(?<!i\.e\.)(?<!\svs\.)(?<!\setc\.)|[。！？]")
_DANGLING = " ,;:-–—(\"'“‘[{/、，；：（「"


def sentence_ends(text: str) -> list[int]:
    """The positions right after each sentence."""
    return [match.end() for match in _SENTENCE.finditer(text)]


def shorten(text: str, limit: int, ends: Sequence[int]) -> str:
    """At most `limit` characters of `text`, the `…` included.

    Args:
        text: One line.
        limit: More than two.
        ends: `sentence_ends(text)`, which the caller keeps because it asks more than once.
    """
    if len(text) <= limit:
        return text
    at = bisect_right(ends, limit - 2)
    if at and ends[at - 1] >= limit * _KEEPS:
        return f"{text[: ends[at - 1]]} {MORE}"
    return text[: _word_end(text, limit - 1)].rstrip(_DANGLING) + MORE


def _word_end(text: str, stop: int) -> int:
    """The last position up to `stop` where a word ends."""
    if text[stop] == " ":
        return stop
    here = text[stop - 1 : stop + 1]
    space = text.rfind(" ", 0, stop)
    if not here.isascii() and any(map(_unspaced, here)):
        return _whole_character(text, stop)
    # One endless word, such as an address, is cut in its middle.
    return space if space * 2 >= stop else _whole_character(text, stop)


def _unspaced(char: str) -> bool:
    """Whether the script of `char` writes no spaces between words."""
    return (
        char >= "\u2e80" or "\u0e00" <= char <= "\u0eff" or "\u1000" <= char <= "\u109f"
        or "\u1780" <= char <= "\u17ff"
    )  # fmt: skip


def _whole_character(text: str, stop: int) -> int:
    """Step back so that no mark or half of a joined emoji is left alone."""
    if text[stop - 1 : stop + 1].isascii():
        return stop
    from unicodedata import category

    first = max(1, stop - 16)
    while stop > first and (
        category(text[stop])[0] == "M" or text[stop] == "\u200d" or text[stop - 1] == "\u200d"
    ):
        stop -= 1
    return stop


STUB = 24
"""Shorter than this, a description says nothing and the name alone is better."""
_FULL = sys.maxsize
_NAME = 0
_TOPIC_ROOM = 160
_TOPIC_SHARE = 50
"""Topics take at most a fiftieth of the budget."""
_TOPIC_LEAST = 12
"""And none are named where not even one word would fit."""


class Choice(NamedTuple):
    """The block's parts, ready to be joined, and whose they are."""

    entries: list[str]
    names: list[str]
    note: str
    full: tuple[str, ...]
    shortened: tuple[str, ...]
    named: tuple[str, ...]
    unlisted: int


class Chooser:
    """Decides for one set of skills, one budget and one form."""

    def __init__(
        self,
        skills: Sequence[Skill],
        pinned: Sequence[Skill],
        offered: int,
        form: Form,
        scale: Budget,
    ) -> None:
        """Take what there is to choose from.

        Args:
            skills: All skills, those withheld from models among them.
            pinned: Those that come first; none of them withheld.
            offered: How many of `skills` are not withheld.
            form: How the block is written.
            scale: How much room there is.
        """
        self._skills = skills
        self._pinned = pinned
        self._pinned_names = frozenset(skill.head.name for skill in pinned)
        self._offered = offered
        self._form = form
        self._scale = scale
        self._names_frame = scale.weigh(form.names_head + form.names_tail)

    def choose(self) -> Choice | None:
        """The best block that fits; None when the intro and the counts alone are too much."""
        candidates: list[Candidate] = []
        unshown = spent = 0
        room = self._room(unlisted=False)
        for candidate in self._candidates():
            if candidate is None:
                unshown += 1
                room = self._room(unlisted=True)
            else:
                candidates.append(candidate)
                spent += candidate.name_cost
            if spent + unshown > room:
                return self._choose_some(candidates)
        limits = self._share_out(candidates, room)
        if limits is None:
            return self._choose_some(candidates)
        return self._write(list(zip(candidates, limits, strict=True)), ())

    def _room(self, *, unlisted: bool) -> int:
        """What is left for entries and names; the counts are reserved at their widest."""
        most = self._offered
        counts = Counts(most, most, most, most if unlisted else 0)
        tail = self._form.tail(note(counts, (), self._form.find))
        return self._scale.room - self._scale.weigh(
            self._form.head + self._form.entries_head + tail
        )

    def _candidates(self) -> Iterator[Candidate | None]:
        """The offered skills in order; None for one whose name cannot be shown."""
        for place, skill in self._in_order():
            shown = shown_name(skill)
            yield Candidate(skill, shown, place, self._form, self._scale) if shown else None

    def _in_order(self) -> Iterator[tuple[int, Skill]]:
        for skill in self._pinned:
            yield -1, skill
        for place, skill in enumerate(self._skills):
            if not self._skip(skill):
                yield place, skill

    def _skip(self, skill: Skill) -> bool:
        return skill.head.name in self._pinned_names or not skill.for_model

    def _share_out(self, candidates: Sequence[Candidate], room: int) -> list[int] | None:
        """A length for every candidate's description, 0 for the name alone.

        None when not even the names fit.
        """
        if _total(candidates, _FULL, room) <= room:
            return [_FULL] * len(candidates)
        start = STUB
        spent = _total(candidates, STUB, room)
        if spent > room:
            start = _NAME
            spent = self._names_frame + sum(candidate.name_cost for candidate in candidates)
            if spent > room:
                return None
        limits = [start] * len(candidates)
        for at, candidate in enumerate(candidates):
            if candidate.place < 0:
                spent, limits[at] = _improve(candidate, start, _FULL, spent, room)
        for at, candidate in enumerate(candidates):
            if limits[at] == _NAME:
                spent, limits[at] = _improve(candidate, _NAME, STUB, spent, room)
                if limits[at] == _NAME:
                    break
        stubs = [candidate for at, candidate in enumerate(candidates) if limits[at] == STUB]
        level = _level(stubs, room - spent + _total(stubs, STUB, room))
        return [level if limit == STUB else limit for limit in limits]

    def _choose_some(self, candidates: Sequence[Candidate]) -> Choice | None:
        """Pinned skills in full, then names, then a count and a few words about the rest."""
        room = self._room(unlisted=True)
        if room < 0:
            return None
        topic_room = self._topic_room(room)
        left = room - topic_room
        spent = 0
        chosen: list[tuple[Candidate, int]] = []
        rest: list[Candidate] = []
        for candidate in candidates:
            if candidate.place < 0 and spent + candidate.description.cost(_FULL) <= left:
                spent += candidate.description.cost(_FULL)
                chosen.append((candidate, _FULL))
            else:
                rest.append(candidate)
        spent += self._names_frame
        begin = len(self._skills)
        for candidate in rest:
            spent += candidate.name_cost
            if spent > left:
                begin = max(candidate.place, 0)
                break
            chosen.append((candidate, _NAME))
        return self._write(chosen, self._topics(begin, topic_room))

    def _topic_room(self, room: int) -> int:
        """What the words about the rest may take."""
        most = min(_TOPIC_ROOM, self._scale.room // _TOPIC_SHARE, room)
        return most if most >= self._scale.weigh(TOPICS) + _TOPIC_LEAST else 0

    def _topics(self, begin: int, room: int) -> list[str]:
        """Words about what is not listed, as many as there is room for."""
        words: list[str] = []
        if not room:
            return words
        room -= self._scale.weigh(f"{TOPICS}.")
        for word in topics(self._skills, begin, self._skip, self._scale.room):
            room -= self._scale.weigh(f"{word}, ")
            if room < 0:
                break
            words.append(word)
        return words

    def _write(self, chosen: Sequence[tuple[Candidate, int]], words: Sequence[str]) -> Choice:
        entries: list[str] = []
        names: list[str] = []
        full: list[str] = []
        shortened: list[str] = []
        named: list[str] = []
        for candidate, limit in chosen:
            name = candidate.skill.head.name
            if limit == _NAME:
                names.append(candidate.name)
                named.append(name)
            else:
                entries.append(candidate.description.write(limit))
                (full if candidate.description.is_full(limit) else shortened).append(name)
        unlisted = self._offered - len(chosen)
        counts = Counts(len(full), len(shortened), len(named), unlisted)
        return Choice(
            entries,
            names,
            note(counts, words, self._form.find),
            tuple(full),
            tuple(shortened),
            tuple(named),
            unlisted,
        )


def _total(candidates: Sequence[Candidate], limit: int, enough: int) -> int:
    """The price of all entries at one length; counting stops beyond `enough`."""
    spent = 0
    for candidate in candidates:
        spent += candidate.description.cost(limit)
        if spent > enough:
            break
    return spent


def _improve(candidate: Candidate, old: int, new: int, spent: int, room: int) -> tuple[int, int]:
    """Describe a candidate at a greater length if that fits: the new total and its length."""
    description = candidate.description
    before = candidate.name_cost if old == _NAME else description.cost(old)
    total = spent - before + description.cost(new)
    return (total, new) if total <= room else (spent, old)


def _level(candidates: Sequence[Candidate], room: int) -> int:
    """The greatest common length that fits; a stub is known to."""
    low, high = STUB, max((len(item.description.text) for item in candidates), default=STUB)
    while low < high:
        middle = (low + high + 1) // 2
        if _total(candidates, middle, room) <= room:
            low = middle
        else:
            high = middle - 1
    return max(low, STUB)


MOST = 8
SAMPLE = 500
_WORD = re.compile(r"[^\W\d_][^\W_]{1,23}")
# fmt: off
_EMPTY = frozenset((
    "ai", "skill", "skills", "agent", "agents", "agentic", "tool", "tools", "helper", "guide",
    "guidelines", "expert", "best", "practices", "practice", "pattern", "patterns",
    "specialist", "workflow", "workflows", "manager", "management", "builder", "creator",
    "generator", "generate", "create", "development", "developer", "engineer", "engineering",
    "use", "using", "used", "usage", "how", "what", "when", "my", "your", "our", "this", "that",
    "the", "and", "for", "with", "from", "into", "about", "all", "any", "an", "as", "at", "by",
    "in", "is", "it", "of", "on", "or", "to", "up", "via", "vs", "no", "not", "new", "old",
    "get", "set", "run", "make", "add", "do", "one", "two", "co", "re", "de",
))
# fmt: on
"""Words that say nothing about a subject."""


def topics(
    skills: Sequence[Skill], start: int, skip: Callable[[Skill], bool], most: int = SAMPLE
) -> list[str]:
    """The most frequent telling words in the names from `start` on; at most eight.

    Args:
        skills: All of them.
        start: The first one that is not listed.
        skip: True for skills that the model is not told about or that are listed.
        most: Look at no more names than this, and never at more than `SAMPLE`.
    """
    step = max(1, -(-(len(skills) - start) // max(1, min(most, SAMPLE))))
    count: dict[str, int] = {}
    for at in range(start, len(skills), step):
        skill = skills[at]
        if skip(skill):
            continue
        for word in dict.fromkeys(_WORD.findall(skill.head.name[:200].lower())):
            count[word] = count.get(word, 0) + 1
    telling = ((-number, word) for word, number in count.items() if word not in _EMPTY)
    return [word for _, word in sorted(telling)[:MOST]]
