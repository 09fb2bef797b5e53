"""Tokenizer: terms of skills and goals, and the weights of goal terms.

    Latin and other spaced scripts    lowercase words, `camelCase` split, English stemmed
    Chinese, Japanese, Korean, Thai   signs, pairs of signs, words if a segmenter is installed

Skills and goals are tokenised alike. Weights apply to goal terms only, so that the index does not
depend on them: stop words are dropped, pairs of signs count less where whole words are known, and
the middle of a very long goal counts less than its ends, because users paste logs between two
sentences.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from satchel._optional import available
from satchel.detect.index.base import FIELDS, IndexRow, file_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from satchel.skill import Skill

_GRAMMAR = (
    "a about above across after again against all almost along already also although always "
    "am among an and another any anyone anything are around as at away be became because "
    "become been before being below between both but by came cannot come could did do does "
    "doing done down during each either else enough etc even ever every everyone everything "
    "few first for from further get gets getting give given gives go goes going got had has "
    "have having he hence her here hers herself him himself his how however i if in indeed "
    "instead into is it its itself just last least less let lets like likely many may maybe "
    "me might mine more most much must my myself neither never next no nobody none nor not "
    "nothing now of off often on once one only onto or other others our ours ourselves out "
    "over own per perhaps quite rather really same second seem seems several shall she should "
    "since so some someone something soon still such than that the their theirs them "
    "themselves then there these they thing things this those though through thus to together "
    "too toward two under until up upon us very via was way we well went were what whatever "
    "when where whether which while who whole whom whose why will with within without would "
    "yes yet you your yours yourself"
)
_ASKING = (
    "able actually again agreed anybody appreciate appreciated arent ask asking assist "
    "assistance bit cant continue cool correct couldnt curious currently didnt doesnt "
    "done dont easily easy exactly fine folks good great guys havent hello help helped "
    "helpful helping helps hey hi hows id idea ill im interested ive kind kindly know lately "
    "looking looks lot love maybe need needed needs nice nope ok okay perfect please possible "
    "possibly proceed quick quickly right skill skills sorry sure tell thank thanks theres "
    "think tried try trying use used uses using wanna want wanted wanting wants "
    "wasnt welcome whats whos wish wonder wondering wont wouldnt yeah yep youre"
)
STOPWORDS = frozenset(f"{_GRAMMAR} {_ASKING}".split())
"""English stop words."""
NEVER_NAMES = frozenset(("i", "id", "ill", "im", "ive"))
"""Stop words that are always capitalised."""
_LINKS = (
    "a an and are as at be by can do for from how i in is it my not of on or our so that the then "
    "this to up use via we what when which with you your"
)
LINKS = frozenset(_LINKS.split())
"""Linking words of names such as `write-a-skill`."""

_EASTERN = (
    "一下 一个 一些 一份 一种 不 与 之后 也 了 什么 今天 他 们 会 但 何 使用 候 再 几 别 到 "
    "即 又 及 只 可 可以 吗 吧 向 告诉 告诉我 呢 呀 和 哪 哪些 啊 在 如 如何 如果 它 对 将 "
    "就 帮 帮助 帮忙 帮我 并 并且 很 怎么 怎样 您 想 想要 我 我们 或 所 所以 把 接下来 接着 "
    "时候 是 更 最 最后 有 来 根据 每 比 没 没有 然后 现在 用 由 的 着 知道 第 给 能 能否 "
    "能够 自己 被 要 让 该 请 请帮 请帮我 请问 谢谢 过 还 还有 这 这个 这些 进行 那 那个 "
    "那些 都 里 需 需要 首先 为 为了 上 下 中 等 以 以及 从 你 你们 同时 于 其 其中 希望 "
    "する した して から まで です ます ください 下さい これ それ あの この その ある いる "
    "こと もの ため 하는 하고 해줘 해주 주세 세요 합니 니다 있는 그리 리고 에서 으로 看看 "
    "这份 那份 一封 一篇 一张 这篇 那篇 一段 我想 我要 麻烦 想让"
)
DENSE_STOPWORDS = frozenset(_EASTERN.split())
"""Chinese stop words, and common pairs of Japanese and Korean grammar."""

STOP_SIGNS = frozenset(
    "的了是我你您他她它们在和与或及也就都要想请帮给把被让这那哪什么么吗呢吧呀啊有没不很还再又能可会用以于"
    "のをにはがとでもへやかなてたですますしらりれるいうこそあ은는이가을를에도의와과로고요"
)
"""Grammatical signs; a pair of two of them is a stop word."""


_SEPARATORS = re.compile("[\x00-/:-@\\[-`{-\x7f]+")
"""ASCII signs. Other characters delimit a word too: `使用pdf工具` contains the word `pdf`."""
_SIGNS = dict.fromkeys((ord(sign) for sign in "«·»‐‑‒–—―‘’“”•…←→−●、。《》「」『』【】・"), " ")
# Thai, Lao, Myanmar, Khmer, and everything from the CJK radicals to the ideographs.
_DENSE_RUN = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+)"
)
# Marks apart from their letters, parts of Hangul, wide and narrow forms, ligatures. Only such texts
# are normalised: it is by far the slowest step.
_SPELT_OTHERWISE = re.compile(
    "[\u0300-\u036f\u1100-\u11ff\u3099\u309a\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\ufb00-\ufb06]"
).search
_MAX_RUN_CHARS = 8
_MAX_STOPWORDS = 2

_KEYWORD_STOPWORDS = (
    "a an and any are as at be by can do does for from get has have help how i in into is it its "
    "me my need needs of on or our please should skill skills so some that the their them then "
    "there these they this to use used uses using want was we what when where which who will with "
    "would you your"
)
KEYWORD_STOPWORDS = frozenset(_KEYWORD_STOPWORDS.split())
"""English stop words of the keyword search."""


class Word(NamedTuple):
    """A search word."""

    text: str
    bordered: bool
    """Whether its script separates words."""


def normalise_unicode(text: str) -> str:
    """Return a text in lower case and in one spelling."""
    if not text.isascii() and _SPELT_OTHERWISE(text):
        text = unicodedata.normalize("NFKC", text)
    return text.lower()


def query_key(text: str) -> str:
    """Return the words of a query or a name, each between single spaces."""
    text = normalise_unicode(text)
    if not text.isascii():
        text = text.translate(_SIGNS)
    return f" {' '.join(_SEPARATORS.sub(' ', text).split())} "


def words_of(query: str) -> list[Word]:
    """Return the unique search words of a query; stop words only if there are no others."""
    found: dict[str, Word] = {}
    idle: dict[str, Word] = {}
    for piece in query.split():
        for part in filter(None, _DENSE_RUN.split(piece)):
            if _DENSE_RUN.match(part):
                found.update((run, Word(run, bordered=False)) for run in _dense_pieces(part))
            else:
                table = idle if part in KEYWORD_STOPWORDS else found
                table[part] = Word(part, bordered=True)
    if found:
        return list(found.values())
    return sorted(idle.values(), key=lambda word: -len(word.text))[:_MAX_STOPWORDS]


def _dense_pieces(run: str) -> list[str]:
    """Return the pairs of a run without spaces, and the run itself if it may be one word."""
    if len(run) <= 2:
        return [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [run, *pairs] if len(run) <= _MAX_RUN_CHARS else pairs


_VOWELS = frozenset("aeiouy")
_ENDINGS = (
    ("ization", "iz"),
    ("isation", "iz"),
    ("mentation", "ment"),
    ("ation", "at"),
    ("ator", "at"),
    ("fulness", "ful"),
    ("iveness", "iv"),
    ("ness", ""),
    ("ally", "al"),
    ("ly", ""),
    ("able", ""),
    ("ible", ""),
    ("ance", ""),
    ("ence", ""),
    ("ion", ""),
)
"""Derivational endings and their replacements."""
_AMERICAN = {"ys": "yz", "is": "iz", "our": "or", "ogu": "og"}
"""Ends of stems that are spelled in two ways: `analyse`, `organise`, `colour`, `catalogue`."""
_BRITISH = re.compile(r"(?:(?<=\w{4})(?:ys|(?<!s)is|ogu)|(?<=\w{3})our)$")
_MIN_STEM_CHARS = 4
"""A shorter rest means that the ending is part of the word."""
_NO_PLURALS = frozenset(("axis", "iris", "onus", "opus", "plus", "this", "thus"))
"""Singular words of four letters in `is` and `us`; others are plural: APIs, CPUs, GUIs."""
_PLURALS = frozenset(("emojis", "kiwis", "menus", "taxis", "wikis"))
"""Longer plural words in `is` and `us`."""
_APART = frozenset(("stats",))
"""Words whose stem would equal that of another word: `state`."""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a lowercase word."""
    if word in _PLURALS:
        return word[:-1]
    if len(word) < _MIN_STEM_CHARS or word in _APART or not word.isascii() or not word.isalpha():
        return word
    word = _singular(word)
    word = _strip_suffix(word)
    for ending, rest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _MIN_STEM_CHARS:
            word = word[: -len(ending)] + rest
            break
    else:
        if word.endswith("ement") and len(word) > 2 * _MIN_STEM_CHARS + 1:
            word = word[:-5]
    # `site` is not `sit`, and `note` is not `not`.
    if len(word) > _MIN_STEM_CHARS and word[-1] == "e":
        word = word[:-1]
    if len(word) >= _MIN_STEM_CHARS and word[-1] == "y":
        word = word[:-1] + "i"
    return _BRITISH.sub(lambda found: _AMERICAN[found[0]], word)


def _singular(word: str) -> str:
    if word.endswith(("sses", "xes")):
        return word[:-2]
    if word.endswith("ies") and len(word) > _MIN_STEM_CHARS:
        return word[:-2]
    if word[-1] != "s" or word[-2] == "s":
        return word
    if word[-2] in "ui" and (len(word) > _MIN_STEM_CHARS or word in _NO_PLURALS):
        return word  # status, redis, analysis
    return word[:-1]


def _strip_suffix(word: str) -> str:
    """Remove `ing` and `ed`, and the doubled letter before them."""
    if word.endswith("ing") and len(word) > 5:
        core = word[:-3]
    elif word.endswith("ed") and not word.endswith("eed") and len(word) > _MIN_STEM_CHARS:
        core = word[:-2]
    else:
        return word
    if _VOWELS.isdisjoint(core):
        return word
    if len(core) >= _MIN_STEM_CHARS and core[-1] == core[-2] and core[-1] not in "lsz":
        return core[:-1]
    # Without a doubled letter there was an `e`: `coding` -> `code`, `running` -> `run`.
    if len(core) == _MIN_STEM_CHARS - 1 and _is_closed(core):
        return core + "e"
    return core


def _is_closed(core: str) -> bool:
    """Whether three letters are consonant, vowel, consonant."""
    first, middle, last = core
    return middle in _VOWELS and first not in _VOWELS and last not in _VOWELS and last not in "wx"


MAX_GOAL_TERMS = 256
MAX_TERM_CHARS = 40
"""Hashes and base64 lines are no words."""
_PAIR_WEIGHT = 0.15
_SIGN_WEIGHT = 0.3
"""A single sign, or a word of one sign, in a dense script."""
MIN_LONG_GOAL_CHARS = 3_000
"""From this length the middle of a goal counts less."""
_MAX_NAME_CHARS = 300
_EDGE_CHARS = 1_000
"""At the beginning and at the end of a long goal."""
_MIDDLE_WEIGHT = 0.4
_CAPITALISED_WEIGHT = 0.8
"""A stop word written like a name."""
_MAX_CLAUSES = 12
_MIN_CLAUSE_CHARS = 4
_AND_THEN = (
    "and|then|also|finally|next|after that|afterwards|然后|再|最后|并且|并|同时|接着|そして|그리고"
)
_CLAUSE_ENDS = re.compile(rf"(?<=[.!?;])\s+|(?<=[。！？；])|\n+|[,，、]\s*(?:{_AND_THEN})\s*")
WORD = "="
"""Prefix of segmented words, since a pair of signs may be spelled the same."""

# Thai, Lao, Myanmar, Khmer, and everything from the CJK radicals to Hangul.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3040-\u312f\u3130-\u318f"
    "\u31a0-\u31ff\u3400-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Combining vowels and marks belong to their word: for Latin, Greek and Cyrillic, Devanagari and the
# Indic scripts south of it, Tibetan.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0f71-\u0f84"
    "\u0980-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d4d\u0dca-\u0ddf"
)
_PIECES = re.compile(rf"[{_DENSE}]+|[^\W_{_DENSE}](?:[^\W_{_DENSE}]|[{_MARKS}])*")
_UNWRITTEN = re.compile("[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]")
"""Optional Hebrew and Arabic signs."""
_IS_DENSE = re.compile(rf"[{_DENSE}]").match
_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7ff\u0e00-\u17ff]").search
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_HAS_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]").search
_HUMPED_RUN = re.compile(
    r"(?<![A-Za-z0-9])[A-Za-z0-9]*?(?:[a-z0-9][A-Z]|[A-Z]{2}[a-z])[A-Za-z0-9]*"
)
SIGNED = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet"}
"""Names with signs, and their spelling in skill names."""
_SIGNED = re.compile(r"(?<![a-z0-9_.])(?:c\+\+(?![a-z+])|[cf]#(?![a-z0-9#])|\.net(?![a-z0-9_]))")
# A capital after a lowercase word: `my Go code`, but not `Go on`, `DO NOT` or `How To Go`.
_NAMED = re.compile(r"\b[a-z]+,?\s([A-Z][a-z]+|IT)\b")


def terms_of(text: str) -> list[str]:
    """Return the terms of a skill's text in order, with repetitions."""
    return terms_in(pieces_of(text))


def terms_in(pieces: Iterable[str]) -> list[str]:
    """Return the terms of the words and runs of signs of a text."""
    found: list[str] = []
    for piece in pieces:
        if piece.isascii() or not _IS_DENSE(piece):
            if len(piece) <= MAX_TERM_CHARS:
                found.append(stem(piece))
            continue
        found += piece
        found += [piece[at : at + 2] for at in range(len(piece) - 1)]
        found += [WORD + word for word in _segment(piece)]
    return found


class GoalText(str):
    """A request with its terms.

    It is tokenised once, when it is created, and accepted wherever a text is.
    """

    __slots__ = ("name_key", "pieces", "terms")
    pieces: list[str]
    """Lowercase words and runs of signs."""
    terms: dict[str, float]
    """Unique terms with their weights."""
    name_key: str
    """The request in the normalised form of names; empty if it is longer than any name."""

    def __new__(cls, text: str) -> Self:
        """Tokenise a request."""
        goal = super().__new__(cls, text)
        weights: dict[str, float] = {}
        if len(text) <= MIN_LONG_GOAL_CHARS:
            goal.pieces = pieces_of(text)
            _weigh(goal.pieces, 1.0, weights)
            for word in () if text[1:].islower() else _NAMED.findall(text):
                low = word.lower()
                if low in STOPWORDS and low not in NEVER_NAMES:
                    weights.setdefault(stem(low), _CAPITALISED_WEIGHT)
        else:
            first, last = pieces_of(text[:_EDGE_CHARS]), pieces_of(text[-_EDGE_CHARS:])
            middle = pieces_of(text[_EDGE_CHARS:-_EDGE_CHARS])
            goal.pieces = first + middle + last
            _weigh(first, 1.0, weights)
            _weigh(last, 1.0, weights)
            _weigh(middle, _MIDDLE_WEIGHT, weights)
        goal.terms = weights
        goal.name_key = query_key(text) if len(text) <= _MAX_NAME_CHARS else ""
        return goal


def _weigh(pieces: Iterable[str], share: float, weights: dict[str, float]) -> None:
    """Add the terms of a part of a goal, scaled by `share`."""
    for piece in pieces:
        if len(weights) >= MAX_GOAL_TERMS:
            break
        if piece in STOPWORDS:
            continue
        if piece.isascii() or not _IS_DENSE(piece):
            if len(piece) <= MAX_TERM_CHARS and weights.get(term := stem(piece), 0.0) < share:
                weights[term] = share
            continue
        for term, weight in _dense_terms(piece):
            if len(weights) < MAX_GOAL_TERMS or term in weights:
                weights[term] = max(weight * share, weights.get(term, 0.0))


def _dense_terms(run: str) -> Iterator[tuple[str, float]]:
    """Yield the terms of a run of signs with their weights."""
    words = _segment(run)
    for word in words:
        if word not in DENSE_STOPWORDS:
            yield WORD + word, 1.0 if len(word) > 1 else _SIGN_WEIGHT
    pair = _PAIR_WEIGHT if words else 1.0
    for at in range(len(run) - 1):
        both = run[at : at + 2]
        if both not in DENSE_STOPWORDS and not (both[0] in STOP_SIGNS and both[1] in STOP_SIGNS):
            yield both, pair
    if not words:
        for sign in run:
            if sign not in STOP_SIGNS:
                yield sign, _SIGN_WEIGHT


def spelt_terms(text: str) -> Iterator[tuple[str, str]]:
    """Yield the terms of a text with their spelling.

    A dense run yields its words, or its pairs without a segmenter.
    """
    for piece in pieces_of(text):
        if not _IS_DENSE(piece):
            if len(piece) <= MAX_TERM_CHARS:
                yield stem(piece), piece
        elif words := _segment(piece):
            for word in words:
                yield WORD + word, word
        else:
            for at in range(len(piece) - 1):
                yield piece[at : at + 2], piece[at : at + 2]
            if len(piece) == 1:
                yield piece, piece


def is_dense(term: str) -> bool:
    """Whether a term is in a script without spaces."""
    return _IS_DENSE(shown(term)) is not None


def shown(term: str) -> str:
    """Return the display form of a term."""
    return term.removeprefix(WORD)


def words_shown(pieces: Iterable[str], terms: Iterable[str]) -> dict[str, str]:
    """Return the word of the text for each term, since stems are not readable."""
    wanted = set(terms)
    found: dict[str, str] = {}
    for piece in pieces:
        if not _IS_DENSE(piece) and len(piece) <= MAX_TERM_CHARS:
            core = stem(piece)
            if core in wanted:
                found.setdefault(core, piece)
    for term in wanted:
        found.setdefault(term, shown(term))
    return found


def segmenter() -> str:
    """Return the name of the Chinese word segmenter; empty without one.

    Loads its dictionary, which takes 0.2 seconds: call late.
    """
    return "rjieba" if _segmenter() is not None else ""


def split_name(name: str) -> str:
    """Split a name into words: `getTeamStats` and `get_team_stats` -> `get Team Stats`."""
    return " ".join(_HUMP.sub(" ", name).replace("_", " ").replace("-", " ").split())


def pieces_of(text: str) -> list[str]:
    """Return the lowercase words and runs of signs of a text."""
    if not text.isascii():
        text = _UNWRITTEN.sub("", unicodedata.normalize("NFKC", text))
    if _HAS_HUMP(text):
        # `SQLite` is found by `sqlite`, `HTMLPage` by `page`: both forms are kept.
        text = _HUMPED_RUN.sub(_whole_and_apart, text)
    low = text.lower()
    if "#" in low or "c++" in low or ".net" in low:
        low = spell_signs(low)
    return _PIECES.findall(low.replace("'", "").replace("\u2019", ""))


def spell_signs(low: str) -> str:
    """Replace `c#` and similar names in a lowercase text by the spelling of skill names."""
    return _SIGNED.sub(lambda found: f" {SIGNED[found[0]]} ", low)


def _whole_and_apart(found: re.Match[str]) -> str:
    word = found[0]
    if len(word) > 2 * MAX_TERM_CHARS:
        return word
    apart = _HUMP.sub(" ", word)
    return word if apart == word else f"{word.lower()} {apart}"  # `PDFs` is one word


def _segment(run: str) -> list[str]:
    """Return the words of a run of signs, long ones also in parts; none without a segmenter."""
    cut = _segmenter()
    # A Chinese dictionary would split kana and Hangul at random.
    if cut is None or _KANA_OR_HANGUL(run) is not None:
        return []
    return [word for word in cut(run) if not word.isspace()]


@cache
def _segmenter() -> Callable[[str], list[str]] | None:
    module = available("rjieba")
    return getattr(module, "cut_for_search", None)  # a broken installation may leave only a folder


def clauses(goal: str) -> list[str]:
    """Return the sentences of a goal, at most `_MAX_CLAUSES`."""
    parts = [part.strip() for part in _CLAUSE_ENDS.split(goal) if part]
    found = [part for part in parts if len(part) >= _MIN_CLAUSE_CHARS]
    return found[:_MAX_CLAUSES] or [goal.strip()]


_LIMITS = {"name": 200, "description": 2_000, "when": 2_000, "triggers": 1_000, "body": 8_000}
"""Indexed characters per field."""
_NAME, _DESCRIPTION = _LIMITS["name"], _LIMITS["description"]
_TRIGGER_KEYS = ("triggers", "keywords")
"""Frontmatter fields with trigger words; `tags` come with the scan."""


def head_texts(skill: Skill) -> dict[str, str]:
    """Return the fields that the scan has read."""
    head = skill.head
    texts: dict[str, str] = {}
    if head.name:
        texts["name"] = head.name[:_NAME]
    if head.description:
        texts["description"] = head.description[:_DESCRIPTION]
    if head.extra:
        more = {"when": skill.when_to_use, "triggers": " ".join(skill.tags)}
        texts |= {field: text[: _LIMITS[field]] for field, text in more.items() if text}
    return texts


def texts_of(skill: Skill) -> dict[str, str]:
    """Return all fields; reads the body from disk.

    Raises:
        SatchelError: the file cannot be read.
    """
    texts = head_texts(skill)
    if skill.is_tool or skill.origin.remote:  # remote files are not fetched before they are loaded
        return texts
    document = skill.read()
    words = [texts.get("triggers", "")]
    words += [_joined(document.fields.get(key)) for key in _TRIGGER_KEYS]
    triggers = " ".join(word for word in words if word)
    if triggers:
        texts["triggers"] = triggers[: _LIMITS["triggers"]]
    texts["body"] = document.body[: _LIMITS["body"]]
    return texts


def row_of(skill: Skill, texts: dict[str, str]) -> IndexRow:
    """Return the index row of a skill."""
    cut = tuple(" ".join(terms_of(texts[field])) if field in texts else "" for field in FIELDS)
    return IndexRow(skill.path, file_stamp(skill), cut)


def make_row(skill: Skill) -> IndexRow:
    """Return the index row of a skill; reads its file.

    Raises:
        SatchelError: the file cannot be read.
    """
    return row_of(skill, texts_of(skill))


def head_row(skill: Skill) -> IndexRow:
    """Return the index row of a skill without its body; reads nothing."""
    return row_of(skill, head_texts(skill))


def embedding_texts(skill: Skill) -> tuple[str, str]:
    """Return the texts to embed: the name, and the name with the description."""
    texts = head_texts(skill)
    name = split_name(texts.get("name", ""))
    about = ". ".join(text for text in (texts.get("description"), texts.get("when")) if text)
    return name, f"{name}: {about}" if name else about


def _joined(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(item for item in cast("list[Any]", value) if isinstance(item, str))
    return ""
