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
from satchel.detect.tokenizer import STOPWORDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from satchel.skill import Skill

MAX_NAME_CHARS = 200
"""Libraries truncate names at the same length."""
_DENSE = (
    "\u0e00-\u0eff\u1000-\u11ff\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u9fff"
    "\ua960-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Character class of scripts without spaces: CJK, Hangul, Thai and others."""
_MAX_COMPARED_NAMES = 400
"""For a suggestion."""
_MAX_NAME_TABLES = 2
_KEYS = str.maketrans({" ": "-", "_": "-", "/": ":"})
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]+")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "‛": "'", "´": "'", "“": '"', "”": '"', "„": '"'})
_BLANKS = re.compile(r"[^\S\n]+")
_dense = re.compile(f"[{_DENSE}]").match
_goes_on = re.compile(r"[\w+#]|[-:./\\@]\w").match


class FoldedText(NamedTuple):
    """A text in two spellings of the same length: an offset in one is an offset in the other."""

    plain: str
    """Unicode normalised, with single spaces."""
    low: str


def normalise(text: str) -> FoldedText:
    """Fold a text for comparison with names."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_QUOTES)
    text = _BLANKS.sub(" ", text)
    low = text.lower()
    if len(low) != len(text):  # some capitals have two lowercase letters
        low = "".join(small if len(small := char.lower()) == 1 else char for char in text)
    return FoldedText(text, low.replace("ς", "σ"))


def key_of(name: str) -> str:
    """Return the table key of a name."""
    if name.isascii() and name.isprintable() and " " not in name:
        return name.lower().replace("_", "-").replace("/", ":")
    return normalise(name.strip()).low.translate(_KEYS)


class NameTable:
    """The names and ids of some skills."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        """Index every skill by its name and its id."""
        self.skills = skills
        self._table: dict[str, list[int]] = {}
        self._lengths: dict[str, list[int]] = {}
        """First two characters of a key -> lengths of the keys with them, the longest first."""
        short: dict[str, list[int]] = {}
        for at, skill in enumerate(skills):
            name, own_id = skill.head.name, skill.head.id
            key = key_of(name)
            self._table.setdefault(key, []).append(at)
            if own_id != name and (other := key_of(own_id)) != key:
                self._table.setdefault(other, []).append(at)
            if ":" in name:
                short.setdefault(key.rpartition(":")[2], []).append(at)
        for key, found in short.items():
            if len(found) == 1:  # `review` may refer to `acme:review` if to nothing else
                self._table.setdefault(key, found)
        self._table.pop("", None)
        lengths: dict[str, set[int]] = {}
        for key in self._table:
            if len(key) <= MAX_NAME_CHARS:
                lengths.setdefault(key[:2], set()).add(len(key))
        self._lengths = {start: sorted(sizes, reverse=True) for start, sizes in lengths.items()}

    def exact(self, written: str) -> Skill | None:
        """The skill with this name, id or ref."""
        written = written.strip()
        found = self.keyed(key_of(written), written)
        if found is None and "/" in written:
            return next((skill for skill in self.skills if skill.ref == written), None)
        return found

    def lengths(self, start: str) -> tuple[int, ...]:
        """Return the lengths of keys that begin with these two characters, longest first."""
        return (*self._lengths.get(start, ()), *self._lengths.get(start[:1], ()))

    def keyed(self, key: str, written: str) -> Skill | None:
        """Return the skill with this key, preferring the one with this spelling."""
        there = self._table.get(key)
        return None if there is None else self._chosen(there, written)

    def near(self, word: str) -> tuple[Skill, ...]:
        """Up to three skills whose names are spelled almost like `word`."""
        from difflib import get_close_matches

        key = key_of(word)[:MAX_NAME_CHARS]
        pieces = [key[:2], *(piece for piece in re.split("[-:.]", key)[:4] if len(piece) > 2)]
        alike = [name for name in self._table if any(piece in name for piece in pieces)]
        alike.sort(key=lambda name: (abs(len(name) - len(key)), name))
        close = get_close_matches(key, alike[:_MAX_COMPARED_NAMES], n=3)
        found = {self._table[name][0]: None for name in close}
        return tuple(self.skills[at] for at in found)

    def _chosen(self, there: list[int], written: str) -> Skill:
        """Return the skill with this spelling among those with one key, else the first."""
        for at in there if len(there) > 1 else ():
            if written in (self.skills[at].head.name, self.skills[at].head.id):
                return self.skills[at]
        return self.skills[there[0]]


class NameTables:
    """Caches the tables of recent skill tuples."""

    def __init__(self) -> None:
        self._kept: list[NameTable] = []

    def of(self, skills: Sequence[Skill]) -> NameTable:
        """Return the table of these skills; cached for tuples only, because a list may change."""
        table = next((one for one in self._kept if one.skills is skills), None)
        if table is None:
            table = NameTable(skills)
        if isinstance(skills, tuple):
            self._kept = [table, *(one for one in self._kept if one is not table)][
                :_MAX_NAME_TABLES
            ]
        return table


_MAX_PARSED_CHARS = 20_000
"""At the beginning and at the end of a request; the middle is skipped."""
_NEGATION_WINDOW_CHARS = 40
_MAX_LISTED_NAMES = 40
_MAX_QUOTE_CHARS = 80
_MAX_UNKNOWN_NAMES = 3
"""Unknown names that get their own note."""
_CLOSING = dict(zip("`\"'「『《【<[", "`\"'」』》】>]", strict=True))
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
_NEEDS_SKILL = ("try ", "follow ", "with ", "via ")
"""After these a name counts only next to the word *skill*."""
_NEGATION = re.compile(
    r"(?:(?<![\w-])(?:(?:do |please )?not|never|without|avoid|stop|dont|cannot)|[a-z]{0,6}n't)"
    r"(?:,? (?:want|you|to|please|ever|even|need|try|again|under any circumstances,?)){0,4} $"
).search
_ZH_NEGATION = re.compile(
    "(?:不要|不准|不得|禁止|请勿|勿|(?<![得能])不|(?<![特个個分区區告])[别別])[再去]? ?$"
).search
_WHY = re.compile(r"\bwhy\b").search
_SKILL_BEFORE = re.compile(r"skills? (?:called |named )?|(?:名为|叫)?技能[: ]?").match
_SKILL_AFTER = re.compile(r" ?(?:skills?(?![\w-])|的?技能)").match
_AND = re.compile(r" ?(?:, ?(?:and |or )?|、|和|与|或| and | or | & )(?:the )?").match
_LIST_ENDS = re.compile(r"\s*(?:$|[.,;:!?)\n。、]|and |or |和|或|来|來)").match
_FLAG_VALUE = re.compile(r"[^\s,;\"'`]{1,200}").match
_COMMAND = re.compile(r"[a-z][\w:-]{1,78}(?![\w/\\.@-])(?! ?(?:[=\[({$%*+<>|]|->|:=))").match
_TOKEN = re.compile(r"[^\W_][\w.:/+#-]{0,78}").match
_ZH_TOKEN = re.compile(r" ?([^\s的这那哪各每何你我任所相合什其一技,.;:!?。、]{1,20}) ?技能").match
_ENGLISH_TOKEN = re.compile(r"([^\W_][\w.:/+#-]{0,78}) skill(?![\w-])").match
_VAGUE = (
    "right best appropriate relevant proper correct same following above below available new "
    "existing other another different suitable given necessary needed required own matching "
    "latest special specific certain better language programming coding writing folder file "
    "name list because"
)
_NO_NAMES = STOPWORDS.union(_VAGUE.split())
"""Words next to *skill* that are no names."""
_LOOKS_LIKE_NAME = re.compile(r"^(?=.*[^\W\d_]).*[-_:/\d]").search
_QUOTED = re.compile(r"(`{3,20}|~{3,20})[\s\S]*?(?:\1|\Z)|^[ \t]*>.*$", re.MULTILINE)
"""Code fences (an open one extends to the end) and quoted lines."""


class Mention(NamedTuple):
    """A skill that the request names, with the quoted words."""

    skill: Skill
    said: str


class UnknownName(NamedTuple):
    """A name in the request that no skill has."""

    name: str
    near: tuple[Skill, ...] = ()


class Mentions(NamedTuple):
    """The skills that a request names or excludes."""

    wanted: tuple[Mention, ...] = ()
    unwanted: tuple[Mention, ...] = ()
    """Excluded, even if the request also asks for them."""
    unknown: tuple[UnknownName, ...] = ()
    notes: tuple[DetectorNote, ...] = ()
    rest: str | None = None
    """The request without its mentions; None when it has none."""
    unavailable: tuple[Skill, ...] = ()
    """Named skills that are not offered."""

    @property
    def ruled_out(self) -> frozenset[str]:
        """The names of the unwanted skills."""
        return frozenset(one.skill.name for one in self.unwanted)


def parse_mentions(
    request: str, names: NameTable, unavailable: NameTable | None = None
) -> Mentions:
    """Parse all mentions of skills in a request.

    Args:
        request: The request.
        names: The offered skills.
        unavailable: Skills that are not offered; the wanted ones are reported by themselves.
    """
    own, others = request, []
    if "```" in request or "~~~" in request or ">" in request:
        own = _QUOTED.sub("\n\n", request)
        others = [found.group() for found in _QUOTED.finditer(request)]
    skipped = max(0, len(own) - 2 * _MAX_PARSED_CHARS)
    if skipped:
        others.append(own[_MAX_PARSED_CHARS:-_MAX_PARSED_CHARS])
        own = f"{own[:_MAX_PARSED_CHARS]}\n\n{own[-_MAX_PARSED_CHARS:]}"
    text = normalise(own)
    found = _MentionParser(text, names).parse(others, skipped)
    if unavailable is None:
        return found
    named = _MentionParser(text, unavailable).parse((), 0).wanted
    return found._replace(unavailable=tuple(one.skill for one in named))


class _Name(NamedTuple):
    skill: Skill | None
    word: str
    end: int
    marked: bool
    """Quoted, after `$` or `/`, or with a hyphen."""


class _MentionParser:
    def __init__(self, text: FoldedText, names: NameTable) -> None:
        self._text = text
        self._names = names
        self._wanted: dict[str, Mention] = {}
        self._unwanted: dict[str, Mention] = {}
        self._unknown: dict[str, None] = {}
        self._cuts: list[tuple[int, int]] = []

    def parse(self, others: Sequence[str], skipped_chars: int) -> Mentions:
        """Parse the text; `others` are parts of the request that were not parsed."""
        at, low = 0, self._text.low
        read = {
            "flag": self._flag, "sigil": self._sigil, "without": self._without, "verb": self._verb,
            "zh_without": self._without, "zh_verb": self._verb,
        }  # fmt: skip
        while (found := _ANCHOR.search(low, at)) is not None:
            at = max(found.end(), read[found.lastgroup or "flag"](found))
        skipped = (DetectorNote("unheard", count=skipped_chars),) if skipped_chars else ()
        if not self._cuts:
            return Mentions(notes=skipped)
        names = list(self._unknown)
        near_of = self._names.near
        unknown = tuple(UnknownName(name, near_of(name)) for name in names[:_MAX_UNKNOWN_NAMES])
        notes: list[DetectorNote] = []
        for one in unknown:
            near = ", ".join(f"`{skill.name}`" for skill in one.near)
            more = {"names": near} if near else {}
            notes.append(
                DetectorNote(f"unknown-skill{'-near' * bool(near)}", name=one.name, **more)
            )
        if len(names) > _MAX_UNKNOWN_NAMES:
            notes.append(DetectorNote("unknown-skills-more", count=len(names) - _MAX_UNKNOWN_NAMES))
        notes += [
            DetectorNote("both", name=name) for name in self._wanted if name in self._unwanted
        ]
        notes += [
            DetectorNote("ruled-out", name=name)
            for name in self._unwanted
            if name not in self._wanted
        ]
        return Mentions(
            tuple(one for name, one in self._wanted.items() if name not in self._unwanted),
            tuple(self._unwanted.values()),
            unknown,
            (*notes, *skipped),
            self._rest(others),
        )

    def _rest(self, others: Sequence[str]) -> str:
        parts: list[str] = []
        past = 0
        for start, end in sorted(self._cuts):
            parts.append(self._text.plain[past : max(past, start)])
            past = max(past, end)
        parts += [self._text.plain[past:], *others]
        return " ".join(part.strip() for part in parts if part.strip())

    def _add(self, names: list[_Name], start: int, end: int, *, wanted: bool) -> None:
        """Record names from `start` to `end`; unknown names only where they are wanted."""
        said = " ".join(self._text.plain[start:end].split())[:_MAX_QUOTE_CHARS]
        table = self._wanted if wanted else self._unwanted
        for one in names:
            if one.skill is not None:
                table.setdefault(one.skill.name, Mention(one.skill, said))
            elif wanted and one.word:
                self._unknown.setdefault(one.word)
        if names:
            self._cuts.append((start, end))

    def _add_unknown(self, match: re.Match[str] | None, start: int, group: int = 0) -> bool:
        """Record a word as an unknown name, unless it can be no name."""
        if match is None:
            return False
        word = match[group].rstrip(".:/-")
        if not word or word.lower() in _NO_NAMES:
            return False
        self._unknown.setdefault(word)
        # `the spreadsheet skill`: no skill has this name, but the word is kept for the search.
        keeps = group and not _LOOKS_LIKE_NAME(word)
        spans = [(start, match.start(group)), (match.end(group), match.end())]
        self._cuts += spans if keeps else [(start, match.end())]
        return True

    def _flag(self, found: re.Match[str]) -> int:
        """`--skill a,b`, `--skill=a`, `--no-skill a`."""
        names: list[_Name] = []
        end = found.end()
        for _ in range(_MAX_LISTED_NAMES):
            one = self._quoted_name(end) or self._flag_value(end)
            if one is None:
                break
            names.append(one)
            end = one.end
            if self._text.plain[end : end + 1] != ",":
                break
            end += 1
        self._add(names, found.start(), end, wanted=not found["no"])
        return end

    def _flag_value(self, at: int) -> _Name | None:
        token = _FLAG_VALUE(self._text.plain, at)
        if token is None:
            return None
        word = token.group().rstrip(".!?:)]}。").lstrip("$/@")
        return _Name(self._names.exact(word), word, token.end(), marked=True)

    def _sigil(self, found: re.Match[str]) -> int:
        """`$pdf` anywhere; `/pdf` at the start of a line, `/pdf-forms` anywhere."""
        at, text = found.start(), self._text
        hit = self._starting(at + 1)
        before = at - (text.plain[at - 1 : at] == " ")
        starts_line = before == 0 or text.plain[before - 1] == "\n"
        if hit is None:
            if before == 0:
                self._add_unknown(_COMMAND(text.plain, at + 1), at)
            return at + 1
        word, after = text.plain[at + 1 : hit[1]], text.low[hit[1] : hit[1] + 3].lstrip()
        is_code = word.isupper() or not any(map(str.isalpha, word))
        is_code = is_code or text.low[hit[1] : hit[1] + 1] in {*"/\\[({$%*"}
        is_code = is_code or after[:1] in {*"=+<>|"} or after[:2] in {"->", ":="}
        is_path = text.plain[at] == "/" and not starts_line and not _LOOKS_LIKE_NAME(word)
        if not is_code and not is_path:
            name = _Name(hit[0], word, hit[1], marked=True)
            self._add([name], at, hit[1], wanted=self._negation(at) is None)
        return hit[1]

    def _without(self, found: re.Match[str]) -> int:
        """`without pdf`, `without using the pdf skill`, `instead of pdf`."""
        names, end, _ = self._names_after(found.end())
        self._add(names, found.start(), end, wanted=False)
        return end if names else found.end()

    def _verb(self, found: re.Match[str]) -> int:
        """`use skill pdf`, `use the pdf skill`, `用 pdf 技能`, `use pdf-forms`, `don't use pdf`."""
        negated = self._negation(found.start())
        bare = not found.group().startswith(_NEEDS_SKILL)
        names, end, is_called = self._names_after(found.end())
        if negated is not None:
            if is_called or bare:
                self._add(names, negated, end, wanted=False)
            return end if names else found.end()
        if not is_called:
            names = [one for one in names if bare and one.marked and one.skill is not None]
            end = names[-1].end if names else end
        if names:
            self._add(names, found.start(), end, wanted=True)
            return end
        if bare:
            self._unknown_after(found.end(), found.start())
        return found.end()

    def _unknown_after(self, at: int, start: int) -> None:
        """`use skill terraform`, `use the terraform skill`, `使用翻译技能`: no such skill."""
        plain = self._text.plain
        called = _SKILL_BEFORE(self._text.low, at)
        if called is None:
            if not self._add_unknown(_ENGLISH_TOKEN(plain, at), start, 1):
                self._add_unknown(_ZH_TOKEN(plain, at), start, 1)
        elif called.group().startswith("skill "):
            self._add_unknown(_TOKEN(plain, called.end()), start)

    def _negation(self, at: int) -> int | None:
        """Return the start of the negation right before `at`; None without one."""
        begins = max(0, at - _NEGATION_WINDOW_CHARS)
        window = self._text.low[begins:at]
        found = _NEGATION(window) or _ZH_NEGATION(window)
        return None if found is None or _WHY(window) else begins + found.start()

    def _names_after(self, at: int) -> tuple[list[_Name], int, bool]:
        """Return the names after a verb, their end, and whether they are called skills."""
        called = _SKILL_BEFORE(self._text.low, at)
        if called is not None:
            names, end, _ = self._list(called.end())
            if names:
                return names, end, True
        return self._list(at)

    def _list(self, at: int) -> tuple[list[_Name], int, bool]:
        """Return a list of names, its end, and whether they are called skills."""
        names: list[_Name] = []
        is_called = False
        end = at
        while len(names) < _MAX_LISTED_NAMES:
            one = self._name(at)
            if one is None:
                break
            after = _SKILL_AFTER(self._text.low, one.end)
            # `use pdf-forms and docx` names two skills, `use pdf-forms and search the web` one.
            if names and not (one.marked or after or _LIST_ENDS(self._text.low, one.end)):
                break
            names.append(one)
            end = one.end
            if after is not None:
                is_called, end = True, after.end()
            joint = _AND(self._text.low, end)
            if joint is None:
                break
            at = joint.end()
        return names, end, is_called

    def _name(self, at: int) -> _Name | None:
        text = self._text
        while text.plain[at : at + 1] in {"*", " "}:
            at += 1
        quoted = self._quoted_name(at)
        if quoted is not None:
            return quoted
        sigil = text.plain[at : at + 1] in {"$", "/", "@"}
        hit = self._starting(at + sigil)
        if hit is None:
            return None
        word = text.plain[at + sigil : hit[1]]
        return _Name(hit[0], word, hit[1], sigil or _LOOKS_LIKE_NAME(word) is not None)

    def _starting(self, at: int) -> tuple[Skill, int] | None:
        """Return the skill with the longest name that begins at `at`, and the end of the name."""
        plain, low = self._text
        for size in self._names.lengths(low[at : at + 2].translate(_KEYS)):
            end = at + size
            skill = self._names.keyed(low[at:end].translate(_KEYS), plain[at:end])
            # `pdf` does not end in `pdfs`, `pdf-forms` or `pdf.js`.
            if skill is not None and (
                _dense(low, end - 1) or _dense(low, end) or _goes_on(low, end) is None
            ):
                return skill, end
        return None

    def _quoted_name(self, at: int) -> _Name | None:
        plain = self._text.plain
        closing = _CLOSING.get(plain[at : at + 1])
        if closing is None:
            return None
        end = plain.find(closing, at + 1, at + MAX_NAME_CHARS + 2)
        inner = plain[at + 1 : end].strip(" *").lstrip("$/@") if end > 0 else ""
        if not inner or "\n" in inner:
            return None
        return _Name(self._names.exact(inner), inner, end + 1, marked=True)
