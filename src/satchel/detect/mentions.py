"""Finds the skills that a request names, and those that it rules out.

Recognised are `$x`, `/x`, `--skill x`, `--no-skill x`, "use (the) x skill", 使用 x 技能;
"don't use x", "never use x", "without x", 不要用 x. A plain word is a name only where the request
calls it a skill or rules it out; a quoted name and one that looks like a name (`pdf-forms`, `$pdf`)
may follow a bare "use". Everything else is left to the model, which reads the request anyway. Code
fences and quoted lines are skipped, and so is the middle of a very long request.

One pattern finds the anchors; what precedes and follows an anchor is read with patterns that are
bounded and have no nested repetition, so that the time is linear in the length of the request.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect.base import DetectorNote
from satchel.detect.stop_words import STOPWORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill import Skill

MAX_NAME_CHARS = 200
"""Libraries truncate names at the same length."""
_MAX_COMPARED_NAMES = 400
"""For a suggestion."""
_MAX_NAME_TABLES = 2
_KEY_SEPARATORS = str.maketrans({" ": "-", "_": "-", "/": ":"})
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]+")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "‛": "'", "´": "'", "“": '"', "”": '"', "„": '"'})
_BLANKS = re.compile(r"[^\S\n]+")
_MAX_PARSED_CHARS = 20_000
"""At the beginning and at the end of a request; the middle is skipped."""
_NEGATION_WINDOW_CHARS = 40
_MAX_LISTED_NAMES = 40
_MAX_QUOTE_CHARS = 80
_MAX_UNKNOWN_NAMES = 3
"""Unknown names that get their own note."""
_UNSPACED_SCRIPTS = (
    "\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u9fff"
    "\ua960-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Character class of scripts without spaces: CJK, Hangul, Thai and others."""
_CODE_AFTER_NAME = frozenset("/\\[({$%*")
"""Directly after a name with `$` or `/`, these make it a path or a variable: `/usr/bin`."""
_OPERATORS = frozenset("=+<>|")
"""After such a name and blanks, these make it a variable: `$x = 1`."""
_LONG_OPERATORS = frozenset(("->", ":="))
_CLOSING_QUOTES = dict(zip("`\"'「『《【<[", "`\"'」』》】>]", strict=True))
_ARTICLE = "(?:the |an? |my |your |this |any )?"
_VERBS = (
    "use|using|load|loading|run|running|invoke|invoking|apply|applying|call|calling|activate|"
    "execute|try|follow|with|via"
)
_ANCHOR = re.compile(
    # Most positions fail at the first test of each branch.
    r"(?<![\w-])(?:(?P<flag>--(?P<no>no-)?skills?(?:\s?=\s?|\s+))"
    rf"|(?P<without>(?:without|instead of|rather than) (?:using )?{_ARTICLE})"
    rf"|(?P<verb>(?:{_VERBS}) {_ARTICLE}))"
    r"|(?P<sigil>[$/](?<![\w$/\\.~=&%#@:*+<>|)\]}^-][$/])(?=\w))"
    r"|(?P<zh_without>而不是 ?)"
    r"|(?P<zh_verb>使用|调用|加载|运行|用(?![户途例法于量品]))"
)
_VERBS_NEEDING_SKILL = ("try ", "follow ", "with ", "via ")
"""After these a name counts only next to the word *skill*."""
_find_negation = re.compile(
    r"(?:(?<![\w-])(?:(?:do |please )?not|never|without|avoid|stop|dont|cannot)|[a-z]{0,6}n't)"
    r"(?:,? (?:want|you|to|please|ever|even|need|try|again|under any circumstances,?)){0,4} $"
).search
_find_zh_negation = re.compile(
    "(?:不要|不准|不得|禁止|请勿|勿|(?<![得能])不|(?<![特个個分区區告])[别別])[再去]? ?$"
).search
_find_why = re.compile(r"\bwhy\b").search
"""`why not use pdf?` proposes it."""
_match_skill_before = re.compile(r"skills? (?:called |named )?|(?:名为|叫)?技能[: ]?").match
_match_skill_after = re.compile(r" ?(?:skills?(?![\w-])|的?技能)").match
_match_conjunction = re.compile(r" ?(?:, ?(?:and |or )?|、|和|与|或| and | or | & )(?:the )?").match
_match_list_end = re.compile(r"\s*(?:$|[.,;:!?)\n。、]|and |or |和|或|来|來)").match
_match_flag_value = re.compile(r"[^\s,;\"'`]{1,200}").match
_match_command = re.compile(r"[a-z][\w:-]{1,78}(?![\w/\\.@-])(?! ?(?:[=\[({$%*+<>|]|->|:=))").match
_match_token = re.compile(r"[^\W_][\w.:/+#-]{0,78}").match
_match_zh_token = re.compile(
    r" ?([^\s的这那哪各每何你我任所相合什其一技,.;:!?。、]{1,20}) ?技能"
).match
_match_english_token = re.compile(r"([^\W_][\w.:/+#-]{0,78}) skill(?![\w-])").match
_VAGUE_WORDS = (
    "right best appropriate relevant proper correct same following above below available new "
    "existing other another different suitable given necessary needed required own matching "
    "latest special specific certain better language programming coding writing folder file "
    "name list because"
)
_NO_NAMES = STOPWORDS.union(_VAGUE_WORDS.split())
"""Words next to *skill* that are no names."""
_looks_like_name = re.compile(r"^(?=.*[^\W\d_]).*[-_:/\d]").search
_QUOTED_TEXT = re.compile(r"(`{3,20}|~{3,20})[\s\S]*?(?:\1|\Z)|^[ \t]*>.*$", re.MULTILINE)
"""Code fences (an open one extends to the end) and quoted lines."""
_is_unspaced_script = re.compile(f"[{_UNSPACED_SCRIPTS}]").match
_continues_word = re.compile(r"[\w+#]|[-:./\\@]\w").match


class FoldedText(NamedTuple):
    """A text in two spellings of the same length: an offset in one is an offset in the other."""

    text: str
    """Unicode normalised, with single spaces."""
    lower: str


def normalise(text: str) -> FoldedText:
    """Fold a text for comparison with names."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_QUOTES)
    text = _BLANKS.sub(" ", text)
    lower = text.lower()
    if len(lower) != len(text):  # some capitals have two lowercase letters
        lower = "".join(small if len(small := char.lower()) == 1 else char for char in text)
    return FoldedText(text, lower.replace("ς", "σ"))


def make_name_key(name: str) -> str:
    """Return the table key of a name."""
    if name.isascii() and name.isprintable() and " " not in name:
        return name.lower().replace("_", "-").replace("/", ":")
    return normalise(name.strip()).lower.translate(_KEY_SEPARATORS)


class NameTable:
    """The names and ids of some skills."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        """Index every skill by its name and its id."""
        self.skills = skills
        self._positions: dict[str, list[int]] = {}
        """Key -> positions of the skills."""
        self._key_lengths: dict[str, list[int]] = {}
        """First two characters of a key -> lengths of the keys with them, the longest first."""
        unqualified: dict[str, list[int]] = {}
        for position, skill in enumerate(skills):
            name, skill_id = skill.head.name, skill.head.id
            key = make_name_key(name)
            self._positions.setdefault(key, []).append(position)
            if skill_id != name and (id_key := make_name_key(skill_id)) != key:
                self._positions.setdefault(id_key, []).append(position)
            if ":" in name:
                unqualified.setdefault(key.rpartition(":")[2], []).append(position)
        for key, positions in unqualified.items():
            if len(positions) == 1:  # `review` may refer to `acme:review` if to nothing else
                self._positions.setdefault(key, positions)
        self._positions.pop("", None)
        lengths: dict[str, set[int]] = {}
        for key in self._positions:
            if len(key) <= MAX_NAME_CHARS:
                lengths.setdefault(key[:2], set()).add(len(key))
        self._key_lengths = {start: sorted(sizes, reverse=True) for start, sizes in lengths.items()}

    def exact(self, written: str) -> Skill | None:
        """The skill with this name, id or ref."""
        written = written.strip()
        skill = self.find_by_key(make_name_key(written), written)
        if skill is None and "/" in written:
            return next((skill for skill in self.skills if skill.ref == written), None)
        return skill

    def key_lengths(self, start: str) -> tuple[int, ...]:
        """Return the lengths of keys that begin with these two characters, longest first."""
        return (*self._key_lengths.get(start, ()), *self._key_lengths.get(start[:1], ()))

    def find_by_key(self, key: str, written: str) -> Skill | None:
        """Return the skill with this key, preferring the one with this spelling."""
        positions = self._positions.get(key)
        return None if positions is None else self._best_spelling(positions, written)

    def similar_skills(self, word: str) -> tuple[Skill, ...]:
        """Up to three skills whose names are spelled almost like `word`."""
        from difflib import get_close_matches

        key = make_name_key(word)[:MAX_NAME_CHARS]
        pieces = [key[:2], *(piece for piece in re.split("[-:.]", key)[:4] if len(piece) > 2)]
        candidates = [name for name in self._positions if any(piece in name for piece in pieces)]
        candidates.sort(key=lambda name: (abs(len(name) - len(key)), name))
        similar_keys = get_close_matches(key, candidates[:_MAX_COMPARED_NAMES], n=3)
        positions = {self._positions[similar_key][0]: None for similar_key in similar_keys}
        return tuple(self.skills[position] for position in positions)

    def _best_spelling(self, positions: list[int], written: str) -> Skill:
        """Return the skill with this spelling among those with one key, else the first."""
        for position in positions if len(positions) > 1 else ():
            if written in (self.skills[position].head.name, self.skills[position].head.id):
                return self.skills[position]
        return self.skills[positions[0]]


class NameTables:
    """Caches the tables of recent skill tuples."""

    def __init__(self) -> None:
        self._tables: list[NameTable] = []

    def table_for(self, skills: Sequence[Skill]) -> NameTable:
        """Return the table of these skills; cached for tuples only, because a list may change."""
        table = next((cached for cached in self._tables if cached.skills is skills), None)
        if table is None:
            table = NameTable(skills)
        if isinstance(skills, tuple):
            others = [cached for cached in self._tables if cached is not table]
            self._tables = [table, *others][:_MAX_NAME_TABLES]
        return table


class Mention(NamedTuple):
    """A skill that the request names, with the quoted words."""

    skill: Skill
    phrase: str


class UnknownName(NamedTuple):
    """A name in the request that no skill has."""

    name: str
    similar: tuple[Skill, ...] = ()


class Mentions(NamedTuple):
    """The skills that a request names or excludes."""

    wanted: tuple[Mention, ...] = ()
    unwanted: tuple[Mention, ...] = ()
    """Excluded, even if the request also asks for them."""
    unknown: tuple[UnknownName, ...] = ()
    notes: tuple[DetectorNote, ...] = ()
    remaining_request: str | None = None
    """The request without its mentions; None when it has none."""
    unavailable: tuple[Skill, ...] = ()
    """Named skills that are not offered."""

    @property
    def ruled_out(self) -> frozenset[str]:
        """The names of the unwanted skills."""
        return frozenset(mention.skill.name for mention in self.unwanted)


def parse_mentions(
    request: str, names: NameTable, unavailable: NameTable | None = None
) -> Mentions:
    """Parse all mentions of skills in a request.

    Args:
        request: The request.
        names: The offered skills.
        unavailable: Skills that are not offered; the wanted ones are reported by themselves.
    """
    parsed_text, skipped_parts = request, []
    if "```" in request or "~~~" in request or ">" in request:
        parsed_text = _QUOTED_TEXT.sub("\n\n", request)
        skipped_parts = [quotation.group() for quotation in _QUOTED_TEXT.finditer(request)]
    skipped_chars = max(0, len(parsed_text) - 2 * _MAX_PARSED_CHARS)
    if skipped_chars:
        skipped_parts.append(parsed_text[_MAX_PARSED_CHARS:-_MAX_PARSED_CHARS])
        parsed_text = f"{parsed_text[:_MAX_PARSED_CHARS]}\n\n{parsed_text[-_MAX_PARSED_CHARS:]}"
    folded = normalise(parsed_text)
    mentions = _MentionParser(folded, names).parse(skipped_parts, skipped_chars)
    if unavailable is None:
        return mentions
    named = _MentionParser(folded, unavailable).parse((), 0).wanted
    return mentions._replace(unavailable=tuple(mention.skill for mention in named))


class _Name(NamedTuple):
    skill: Skill | None
    word: str
    end: int
    is_marked: bool
    """Quoted, after `$` or `/`, or with a hyphen."""


class _NameList(NamedTuple):
    names: list[_Name]
    end: int
    is_called_skill: bool
    """Whether the word *skill* stands beside them."""


class _NameMatch(NamedTuple):
    skill: Skill
    end: int


class _MentionParser:
    def __init__(self, text: FoldedText, names: NameTable) -> None:
        self._text = text
        self._names = names
        self._wanted: dict[str, Mention] = {}
        self._unwanted: dict[str, Mention] = {}
        self._unknown: dict[str, None] = {}
        self._mention_spans: list[tuple[int, int]] = []

    def parse(self, skipped_parts: Sequence[str], skipped_chars: int) -> Mentions:
        """Parse the text.

        Args:
            skipped_parts: Parts of the request that are not parsed.
            skipped_chars: How many characters of its middle are not parsed.
        """
        parsers = {
            "flag": self._parse_flag,
            "sigil": self._parse_sigil,
            "without": self._parse_without,
            "verb": self._parse_verb,
            "zh_without": self._parse_without,
            "zh_verb": self._parse_verb,
        }
        position, lower = 0, self._text.lower
        while (anchor := _ANCHOR.search(lower, position)) is not None:
            position = max(anchor.end(), parsers[anchor.lastgroup or "flag"](anchor))
        notes = [DetectorNote("unheard", count=skipped_chars)] if skipped_chars else []
        if not self._mention_spans:
            return Mentions(notes=tuple(notes))
        unknown = tuple(
            UnknownName(name, self._names.similar_skills(name))
            for name in [*self._unknown][:_MAX_UNKNOWN_NAMES]
        )
        wanted = [mention for name, mention in self._wanted.items() if name not in self._unwanted]
        return Mentions(
            wanted=tuple(wanted),
            unwanted=tuple(self._unwanted.values()),
            unknown=unknown,
            notes=(*self._notes(unknown), *notes),
            remaining_request=self._text_without_mentions(skipped_parts),
        )

    def _notes(self, unknown: Sequence[UnknownName]) -> list[DetectorNote]:
        """Return the notes on unknown names, and on skills that are ruled out."""
        notes = [_unknown_note(unknown_name) for unknown_name in unknown]
        if len(self._unknown) > len(unknown):
            count = len(self._unknown) - len(unknown)
            notes.append(DetectorNote("unknown-skills-more", count=count))
        notes += [
            DetectorNote("both", name=name) for name in self._wanted if name in self._unwanted
        ]
        notes += [
            DetectorNote("ruled-out", name=name)
            for name in self._unwanted
            if name not in self._wanted
        ]
        return notes

    def _text_without_mentions(self, skipped_parts: Sequence[str]) -> str:
        parts: list[str] = []
        position = 0
        for start, end in sorted(self._mention_spans):
            parts.append(self._text.text[position : max(position, start)])
            position = max(position, end)
        parts += [self._text.text[position:], *skipped_parts]
        return " ".join(part.strip() for part in parts if part.strip())

    def _add(self, names: list[_Name], start: int, end: int, *, is_wanted: bool) -> None:
        """Record names from `start` to `end`; unknown names only where they are wanted."""
        phrase = " ".join(self._text.text[start:end].split())[:_MAX_QUOTE_CHARS]
        table = self._wanted if is_wanted else self._unwanted
        for name in names:
            if name.skill is not None:
                table.setdefault(name.skill.name, Mention(name.skill, phrase))
            elif is_wanted and name.word:
                self._unknown.setdefault(name.word)
        if names:
            self._mention_spans.append((start, end))

    def _add_unknown(self, match: re.Match[str] | None, start: int, group: int = 0) -> bool:
        """Record a word as an unknown name, unless it can be no name."""
        if match is None:
            return False
        word = match[group].rstrip(".:/-")
        if not word or word.lower() in _NO_NAMES:
            return False
        self._unknown.setdefault(word)
        # `the spreadsheet skill`: no skill has this name, but the word is kept for the search.
        keeps_word = group and not _looks_like_name(word)
        spans = [(start, match.start(group)), (match.end(group), match.end())]
        self._mention_spans += spans if keeps_word else [(start, match.end())]
        return True

    def _parse_flag(self, match: re.Match[str]) -> int:
        """`--skill a,b`, `--skill=a`, `--no-skill a`."""
        names: list[_Name] = []
        end = match.end()
        for _ in range(_MAX_LISTED_NAMES):
            name = self._quoted_name(end) or self._flag_value(end)
            if name is None:
                break
            names.append(name)
            end = name.end
            if self._text.text[end : end + 1] != ",":
                break
            end += 1
        self._add(names, match.start(), end, is_wanted=not match["no"])
        return end

    def _flag_value(self, position: int) -> _Name | None:
        token = _match_flag_value(self._text.text, position)
        if token is None:
            return None
        word = token.group().rstrip(".!?:)]}。").lstrip("$/@")
        return _Name(self._names.exact(word), word, token.end(), is_marked=True)

    def _parse_sigil(self, match: re.Match[str]) -> int:
        """`$pdf` anywhere; `/pdf` at the start of a line, `/pdf-forms` anywhere."""
        position, text = match.start(), self._text
        name_match = self._longest_name_at(position + 1)
        line_start = position - (text.text[position - 1 : position] == " ")
        if name_match is None:
            if line_start == 0:
                self._add_unknown(_match_command(text.text, position + 1), position)
            return position + 1
        skill, end = name_match
        word = text.text[position + 1 : end]
        starts_line = line_start == 0 or text.text[line_start - 1] == "\n"
        is_path = text.text[position] == "/" and not starts_line and not _looks_like_name(word)
        if not is_path and not _is_code(word, text.lower[end : end + 3]):
            is_wanted = self._negation_start(position) is None
            name = _Name(skill, word, end, is_marked=True)
            self._add([name], position, end, is_wanted=is_wanted)
        return end

    def _parse_without(self, match: re.Match[str]) -> int:
        """`without pdf`, `without using the pdf skill`, `instead of pdf`."""
        names, end, _ = self._names_after(match.end())
        self._add(names, match.start(), end, is_wanted=False)
        return end if names else match.end()

    def _parse_verb(self, match: re.Match[str]) -> int:
        """`use skill pdf`, `use the pdf skill`, `用 pdf 技能`, `use pdf-forms`, `don't use pdf`."""
        allows_bare_name = not match.group().startswith(_VERBS_NEEDING_SKILL)
        names, end, is_called_skill = self._names_after(match.end())
        negation_start = self._negation_start(match.start())
        if negation_start is not None:
            if is_called_skill or allows_bare_name:
                self._add(names, negation_start, end, is_wanted=False)
            return end if names else match.end()
        if not is_called_skill:
            names = [
                name
                for name in names
                if allows_bare_name and name.is_marked and name.skill is not None
            ]
            end = names[-1].end if names else end
        if names:
            self._add(names, match.start(), end, is_wanted=True)
            return end
        if allows_bare_name:
            self._unknown_after(match.end(), match.start())
        return match.end()

    def _unknown_after(self, position: int, start: int) -> None:
        """`use skill terraform`, `use the terraform skill`, `使用翻译技能`: no such skill."""
        text = self._text.text
        called = _match_skill_before(self._text.lower, position)
        if called is None:
            if not self._add_unknown(_match_english_token(text, position), start, 1):
                self._add_unknown(_match_zh_token(text, position), start, 1)
        elif called.group().startswith("skill "):
            self._add_unknown(_match_token(text, called.end()), start)

    def _negation_start(self, position: int) -> int | None:
        """Return the start of the negation right before `position`; None without one."""
        window_start = max(0, position - _NEGATION_WINDOW_CHARS)
        window = self._text.lower[window_start:position]
        negation = _find_negation(window) or _find_zh_negation(window)
        if negation is None or _find_why(window):
            return None
        return window_start + negation.start()

    def _names_after(self, position: int) -> _NameList:
        """Return the names after a verb."""
        skill_before = _match_skill_before(self._text.lower, position)
        if skill_before is not None:
            name_list = self._parse_name_list(skill_before.end())
            if name_list.names:
                return name_list._replace(is_called_skill=True)
        return self._parse_name_list(position)

    def _parse_name_list(self, position: int) -> _NameList:
        names: list[_Name] = []
        is_called_skill = False
        end = position
        while len(names) < _MAX_LISTED_NAMES:
            name = self._parse_name(position)
            if name is None:
                break
            skill_after = _match_skill_after(self._text.lower, name.end)
            # `use pdf-forms and docx` names two skills, `use pdf-forms and search the web` one.
            is_certain = name.is_marked or skill_after is not None
            if names and not is_certain and not _match_list_end(self._text.lower, name.end):
                break
            names.append(name)
            end = name.end
            if skill_after is not None:
                is_called_skill, end = True, skill_after.end()
            conjunction = _match_conjunction(self._text.lower, end)
            if conjunction is None:
                break
            position = conjunction.end()
        return _NameList(names, end, is_called_skill)

    def _parse_name(self, position: int) -> _Name | None:
        text = self._text.text
        while text[position : position + 1] in {"*", " "}:
            position += 1
        quoted_name = self._quoted_name(position)
        if quoted_name is not None:
            return quoted_name
        has_sigil = text[position : position + 1] in {"$", "/", "@"}
        start = position + has_sigil
        name_match = self._longest_name_at(start)
        if name_match is None:
            return None
        skill, end = name_match
        word = text[start:end]
        return _Name(skill, word, end, has_sigil or _looks_like_name(word) is not None)

    def _longest_name_at(self, position: int) -> _NameMatch | None:
        """Return the skill with the longest name that begins at `position`, and its end."""
        text, lower = self._text
        for size in self._names.key_lengths(
            lower[position : position + 2].translate(_KEY_SEPARATORS)
        ):
            end = position + size
            key = lower[position:end].translate(_KEY_SEPARATORS)
            skill = self._names.find_by_key(key, text[position:end])
            # `pdf` does not end in `pdfs`, `pdf-forms` or `pdf.js`.
            if skill is not None and (
                _is_unspaced_script(lower, end - 1)
                or _is_unspaced_script(lower, end)
                or _continues_word(lower, end) is None
            ):
                return _NameMatch(skill, end)
        return None

    def _quoted_name(self, position: int) -> _Name | None:
        text = self._text.text
        closing = _CLOSING_QUOTES.get(text[position : position + 1])
        if closing is None:
            return None
        end = text.find(closing, position + 1, position + MAX_NAME_CHARS + 2)
        inner = text[position + 1 : end].strip(" *").lstrip("$/@") if end > 0 else ""
        if not inner or "\n" in inner:
            return None
        return _Name(self._names.exact(inner), inner, end + 1, is_marked=True)


def _unknown_note(unknown: UnknownName) -> DetectorNote:
    similar_names = ", ".join(f"`{skill.name}`" for skill in unknown.similar)
    if similar_names:
        return DetectorNote("unknown-skill-near", name=unknown.name, names=similar_names)
    return DetectorNote("unknown-skill", name=unknown.name)


def _is_code(word: str, following: str) -> bool:
    """Whether a name after `$` or `/` is code: `$PATH`, `/usr/bin`, `$x = 1`.

    Args:
        word: The name.
        following: The characters after it.
    """
    if word.isupper() or not any(map(str.isalpha, word)):
        return True
    operator = following.lstrip()
    return (
        following[:1] in _CODE_AFTER_NAME
        or operator[:1] in _OPERATORS
        or operator[:2] in _LONG_OPERATORS
    )
