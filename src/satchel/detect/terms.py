"""Which terms does a text have, and what is each worth in a goal?

    Latin and other spaced scripts    words in lower case, `camelCase` apart, English ones stemmed
    Chinese, Japanese, Korean, Thai   single signs, pairs of signs, words where a cutter is there

Skills and goals are cut alike, or nothing would ever be found. What a term weighs is decided on the
goal's side alone, so that the index need not change with it: words that say nothing are left out,
where whole words of a dense script are known its pairs only help out, and of a very long goal the
beginning and the end count most: people paste a log between two sentences.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from satchel._optional import available
from satchel.detect.index.base import FIELDS, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from satchel.detect.index.base import Stamp
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
IDLE = frozenset(f"{_GRAMMAR} {_ASKING}".split())
"""English words that say nothing about what is wanted."""
NEVER_NAMES = frozenset(("i", "id", "ill", "im", "ive"))
"""Those that are always written with a capital."""
_LINKS = (
    "a an and are as at be by can do for from how i in is it my not of on or our so that the then "
    "this to up use via we what when which with you your"
)
LINKS = frozenset(_LINKS.split())
"""Those that link the words of a name, such as `write-a-skill`, and name nothing."""

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
IDLE_WORDS = frozenset(_EASTERN.split())
"""The same in Chinese, and the commonest pairs of Japanese and Korean grammar."""

IDLE_SIGNS = frozenset(
    "的了是我你您他她它们在和与或及也就都要想请帮给把被让这那哪什么么吗呢吧呀啊有没不很还再又能可会用以于"
    "のをにはがとでもへやかなてたですますしらりれるいうこそあ은는이가을를에도의와과로고요"
)
"""Signs that grammar is made of; a pair of two of them says nothing."""


_LOWER = bytes(code + 32 if 65 <= code <= 90 else code for code in range(256))
BORDER = bytes(code > 127 or not chr(code).isalnum() for code in range(256))
"""1 for the bytes that let a word beside them be whole. A sign beyond ASCII does: `使用pdf工具` has
the word `pdf`."""
_SPACED = bytes(32 if code < 128 and not chr(code).isalnum() else code for code in range(256))
_LOWER_SPACED = _LOWER.translate(_SPACED)
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
_LONGEST_RUN = 8
_IDLE = 2

_IDLE_WORDS = (
    "a an and any are as at be by can do does for from get has have help how i in into is it its "
    "me my need needs of on or our please should skill skills so some that the their them then "
    "there these they this to use used uses using want was we what when where which who will with "
    "would you your"
)
STOP = frozenset(_IDLE_WORDS.split())
"""English words that say nothing about what is wanted."""


class Word(NamedTuple):
    """One thing to look for."""

    data: bytes
    shown: str
    bordered: bool
    """Whether its script puts something between words, so that a whole word can be told."""


def even(text: str) -> str:
    """One spelling for what Unicode spells in several ways; ASCII is left to `lower`."""
    if text.isascii():
        return text
    if _SPELT_OTHERWISE(text):
        text = unicodedata.normalize("NFKC", text)
    return text.lower()


def lower(data: bytes) -> bytes:
    """ASCII letters to lower case."""
    return data.translate(_LOWER)


def spaced(data: bytes) -> bytes:
    """Words with single spaces between them and at both ends, whatever stood between them."""
    return b" " + b" ".join(data.translate(_SPACED).split()) + b" "


def query_bytes(text: str) -> bytes:
    """The comparable form of a query."""
    if text.isascii():  # a million names are
        return b" " + b" ".join(text.encode().translate(_LOWER_SPACED).split()) + b" "
    return spaced(lower(even(text).translate(_SIGNS).encode("utf-8", "replace")))


def words_of(query: bytes) -> list[Word]:
    """What to look for, in the order of the query, each once.

    Words that say nothing are left out unless there are no others.
    """
    found: dict[bytes, Word] = {}
    idle: dict[bytes, Word] = {}
    for piece in query.decode("utf-8", "replace").split():
        for part in _DENSE_RUN.split(piece):
            if not part:
                continue
            if _DENSE_RUN.match(part):
                for run in _dense_pieces(part):
                    found.setdefault(run.encode(), Word(run.encode(), run, bordered=False))
            else:
                table = idle if part in STOP else found
                table.setdefault(part.encode(), Word(part.encode(), part, bordered=True))
    if found:
        return list(found.values())
    return sorted(idle.values(), key=lambda word: -len(word.data))[:_IDLE]


def _dense_pieces(run: str) -> list[str]:
    """A run without spaces: itself when short enough to be one word, and its pairs."""
    if len(run) <= 2:
        return [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [run, *pairs] if len(run) <= _LONGEST_RUN else pairs


_VOWELS = frozenset("aeiouy")
_ENDINGS = (
    ("ization", "iz"),
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
"""Endings that make one word of another, and what stays of them."""
_CORE = 4
"""Letters that must be left, or the ending was none."""
_NO_PLURALS = frozenset(("axis", "iris", "onus", "opus", "plus", "this", "thus"))
"""Words of four letters in `is` and `us` that are one; the others are several: APIs, CPUs, GUIs."""
_PLURALS = frozenset(("emojis", "kiwis", "menus", "taxis", "wikis"))
"""Longer words in `is` and `us` that mean several all the same."""
_APART = frozenset(("stats",))
"""What would be one with a word of another meaning: the `state` of a thing."""


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The core of a word in lower case."""
    if word in _PLURALS:
        return word[:-1]
    if len(word) < _CORE or word in _APART or not word.isascii() or not word.isalpha():
        return word
    word = _singular(word)
    word = _undone(word)
    for ending, rest in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _CORE:
            word = word[: -len(ending)] + rest
            break
    else:
        if word.endswith("ement") and len(word) > 2 * _CORE + 1:
            word = word[:-5]
    # `site` is no `sit`, and `note` is no `not`.
    if len(word) > _CORE and word[-1] == "e":
        word = word[:-1]
    if len(word) >= _CORE and word[-1] == "y":
        word = word[:-1] + "i"
    return word


def _singular(word: str) -> str:
    if word.endswith(("sses", "xes")):
        return word[:-2]
    if word.endswith("ies") and len(word) > _CORE:
        return word[:-2]
    if word[-1] != "s" or word[-2] == "s":
        return word
    if word[-2] in "ui" and (len(word) > _CORE or word in _NO_PLURALS):
        return word  # status, redis, analysis
    return word[:-1]


def _undone(word: str) -> str:
    """Without `ing` and `ed`, and without the letter that they doubled."""
    if word.endswith("ing") and len(word) > 5:
        core = word[:-3]
    elif word.endswith("ed") and not word.endswith("eed") and len(word) > _CORE:
        core = word[:-2]
    else:
        return word
    if _VOWELS.isdisjoint(core):
        return word
    if len(core) >= _CORE and core[-1] == core[-2] and core[-1] not in "lsz":
        return core[:-1]
    # Nothing was doubled, so that there was an `e`: `coding` is of `code`, `running` of `run`.
    if len(core) == _CORE - 1 and _is_closed(core):
        return core + "e"
    return core


def _is_closed(core: str) -> bool:
    """Whether three letters are a vowel between two consonants."""
    first, middle, last = core
    return middle in _VOWELS and first not in _VOWELS and last not in _VOWELS and last not in "wx"


MOST_TERMS = 256
"""Distinct terms of a goal that are looked for."""
LONGEST = 40
"""Characters of one term: a hash or a line of base64 is no word."""
_PAIR_BESIDE_WORDS = 0.15
_SIGN = 0.3
"""A single sign of a dense script; a word of one sign is no more."""
_LONG = 3_000
"""Characters from which on the middle of a goal counts less."""
_EDGE = 1_000
"""Characters of its beginning and of its end that count whole."""
_MIDDLE = 0.4
_AS_NAME = 0.8
"""A word that says nothing, written like a name."""
_IDLE_WEIGHT, _IDLE_MOST = 0.1, 2
"""What a word weighs that says nothing, where there are no others, and how many are looked for."""
_MAX_CLAUSES = 12
_MIN_CLAUSE_CHARS = 4
_AND_THEN = (
    "and|then|also|finally|next|after that|afterwards|然后|再|最后|并且|并|同时|接着|そして|그리고"
)
_CLAUSE_ENDS = re.compile(
    rf"(?<=[.!?;])\s+|(?<=[。！？；])|\n+|[,，、]\s*(?:{_AND_THEN})\s*",
)
WORD = "="
"""Before a word that a cutter found, since a pair of signs may be spelt the same."""

# Thai, Lao, Myanmar, Khmer, and everything from the CJK radicals to Hangul.
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3040-\u312f\u3130-\u318f"
    "\u31a0-\u31ff\u3400-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowels and other marks that stand on or beside a letter are part of its word: whatever composes
# with Latin, Greek and Cyrillic, Devanagari and its neighbours to the south, Tibetan.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u0f71-\u0f84"
    "\u0980-\u0983\u09bc-\u09cd\u0a01-\u0a03\u0a3c-\u0a4d\u0a81-\u0a83\u0abc-\u0acd\u0b01-\u0b03"
    "\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0c00-\u0c04\u0c3e-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d4d\u0dca-\u0ddf"
)
_PIECES = re.compile(rf"[{_DENSE}]+|[^\W_{_DENSE}](?:[^\W_{_DENSE}]|[{_MARKS}])*")
_UNWRITTEN = re.compile("[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]")
"""Hebrew and Arabic signs that most people leave out when they write."""
_IS_DENSE = re.compile(rf"[{_DENSE}]").match
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])(?![A-Z]s(?![a-z]))")
_HAS_HUMP = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]").search
_RUN = re.compile(r"[A-Za-z0-9]+")
SIGNED = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", ".net": "dotnet"}
"""Names that are told apart by their signs, and how they are spelt without: in a skill's name."""
_SIGNED = re.compile(r"(?<![a-z0-9_.])(?:c\+\+(?![a-z+])|[cf]#(?![a-z0-9#])|\.net(?![a-z0-9_]))")
# A capital after a small word: `my Go code`, but neither `Go on` nor `DO NOT` nor `How To Go`.
_NAMED = re.compile(r"\b[a-z]+,?\s([A-Z][a-z]+|IT)\b")


def terms_of(text: str) -> list[str]:
    """The terms of a skill's text, in order, as often as they stand there."""
    found: list[str] = []
    for piece in _pieces(text):
        if piece.isascii() or not _IS_DENSE(piece):
            if len(piece) <= LONGEST:
                found.append(stem(piece))
            continue
        found += piece
        found += [piece[at : at + 2] for at in range(len(piece) - 1)]
        found += [WORD + word for word in _cut(piece)]
    return found


def goal_terms(text: str, most: int = MOST_TERMS) -> dict[str, float]:
    """The distinct terms of a goal and what each weighs, in the order of the goal."""
    weights: dict[str, float] = {}
    if len(text) <= _LONG:
        _weigh(text, 1.0, weights, most)
        for word in _NAMED.findall(text):
            low = word.lower()
            if low in IDLE and low not in NEVER_NAMES:
                weights.setdefault(stem(low), _AS_NAME)
    else:
        _weigh(text[:_EDGE], 1.0, weights, most)
        _weigh(text[-_EDGE:], 1.0, weights, most)
        _weigh(text[_EDGE:-_EDGE], _MIDDLE, weights, most)
    return weights


def idle_words(text: str) -> list[str]:
    """The words of a short goal that say nothing, each once."""
    if len(text) > _LONG:
        return []
    return list(dict.fromkeys(piece for piece in _pieces(text) if piece in IDLE))


def pieces_of(text: str) -> list[str]:
    """The words of a text in lower case, and its runs of signs, as they stand there."""
    return _pieces(text)


def idle_terms(text: str) -> dict[str, float]:
    """The longest terms of a goal whose words all say nothing, for who searches for such words."""
    found: dict[str, float] = {}
    for piece in _pieces(text):
        if _IS_DENSE(piece):
            pairs = [piece[at : at + 2] for at in range(len(piece) - 1)]
            found.update(dict.fromkeys(pairs or [piece], _IDLE_WEIGHT))
        elif len(piece) <= LONGEST:
            found[stem(piece)] = _IDLE_WEIGHT
    return {term: found[term] for term in sorted(found, key=lambda term: -len(term))[:_IDLE_MOST]}


def _weigh(text: str, share: float, weights: dict[str, float], most: int) -> None:
    """Add the terms of a part of a goal; `share` is what the part counts."""
    for piece in _pieces(text):
        if len(weights) >= most:
            break
        if piece.isascii() or not _IS_DENSE(piece):
            if len(piece) <= LONGEST and piece not in IDLE:
                term = stem(piece)
                weights[term] = max(share, weights.get(term, 0.0))
            continue
        for term, weight in _dense_terms(piece):
            if len(weights) < most or term in weights:
                weights[term] = max(weight * share, weights.get(term, 0.0))


def _dense_terms(run: str) -> Iterator[tuple[str, float]]:
    """The terms of a run of signs, and what each weighs."""
    words = _cut(run)
    for word in words:
        if word not in IDLE_WORDS:
            yield WORD + word, 1.0 if len(word) > 1 else _SIGN
    pair = _PAIR_BESIDE_WORDS if words else 1.0
    for at in range(len(run) - 1):
        both = run[at : at + 2]
        if both not in IDLE_WORDS and not (both[0] in IDLE_SIGNS and both[1] in IDLE_SIGNS):
            yield both, pair
    if not words:
        for sign in run:
            if sign not in IDLE_SIGNS:
                yield sign, _SIGN


def spelt_terms(text: str) -> Iterator[tuple[str, str]]:
    """The terms of a text and how each is spelt there: people know no stems and no half words.

    Of a dense run that a cutter knows come its words alone, else its pairs.
    """
    for piece in _pieces(text):
        if not _IS_DENSE(piece):
            if len(piece) <= LONGEST:
                yield stem(piece), piece
        elif words := _cut(piece):
            for word in words:
                yield WORD + word, word
        else:
            for at in range(len(piece) - 1):
                yield piece[at : at + 2], piece[at : at + 2]
            if len(piece) == 1:
                yield piece, piece


def is_dense(term: str) -> bool:
    """Whether a term is of a script that writes no spaces."""
    return _IS_DENSE(shown(term)) is not None


def shown(term: str) -> str:
    """A term as people see it."""
    return term.removeprefix(WORD)


def words_shown(text: str, terms: Iterable[str]) -> dict[str, str]:
    """For each term the word of the text that it stands for: people know no stems."""
    wanted = set(terms)
    found: dict[str, str] = {}
    for piece in _pieces(text):
        if not _IS_DENSE(piece) and len(piece) <= LONGEST:
            core = stem(piece)
            if core in wanted:
                found.setdefault(core, piece)
    for term in wanted:
        found.setdefault(term, shown(term))
    return found


def cutter() -> str:
    """Who cuts Chinese into words; nobody is empty. Other cutters make other terms.

    Its dictionary is read for the answer, which takes a fifth of a second: ask late.
    """
    return "rjieba" if _cutter() is not None else ""


def spelt_out(name: str) -> str:
    """A name as one would say it: `getTeamStats` and `get_team_stats` are `get Team Stats`."""
    return " ".join(_HUMP.sub(" ", name).replace("_", " ").replace("-", " ").split())


def _pieces(text: str) -> list[str]:
    if not text.isascii():
        text = _UNWRITTEN.sub("", unicodedata.normalize("NFKC", text))
    if _HAS_HUMP(text):
        # `SQLite` is found by `sqlite`, `HTMLPage` by `page`: such words stand whole and apart.
        text = _RUN.sub(_whole_and_apart, text)
    return _PIECES.findall(unsigned(text.lower()).replace("'", "").replace("\u2019", ""))


def unsigned(low: str) -> str:
    """A text in lower case with `c#` and its like spelt in letters, as skills are named."""
    if "c++" not in low and "#" not in low and ".net" not in low:
        return low
    return _SIGNED.sub(lambda found: f" {SIGNED[found[0]]} ", low)


def _whole_and_apart(found: re.Match[str]) -> str:
    word = found[0]
    if len(word) > 2 * LONGEST or not _HAS_HUMP(word):
        return word
    apart = _HUMP.sub(" ", word)
    return word if apart == word else f"{word.lower()} {apart}"  # `PDFs` is one word


def _cut(run: str) -> list[str]:
    """The words of a run of signs, long ones also in parts; none without a cutter."""
    cut = _cutter()
    # Kana and Hangul are other languages: a Chinese dictionary would only cut them at random.
    if cut is None or not _is_chinese(run):
        return []
    return [word for word in cut(run) if not word.isspace()]


_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7ff\u0e00-\u17ff]").search


def _is_chinese(run: str) -> bool:
    return _KANA_OR_HANGUL(run) is None


@cache
def _cutter() -> Callable[[str], list[str]] | None:
    module = available("rjieba")
    return getattr(module, "cut_for_search", None)  # of half a package there may be only a folder


def clauses(goal: str) -> list[str]:
    """The sentences of a goal, at most `_MAX_CLAUSES`; the goal itself when it is one."""
    parts = [part.strip() for part in _CLAUSE_ENDS.split(goal) if part]
    found = [part for part in parts if len(part) >= _MIN_CLAUSE_CHARS]
    return found[:_MAX_CLAUSES] or [goal.strip()]


_LIMITS = {"name": 200, "description": 2_000, "when": 2_000, "triggers": 1_000, "body": 8_000}
"""Characters of each field that are indexed."""
_NAME, _DESCRIPTION = _LIMITS["name"], _LIMITS["description"]
_TRIGGER_KEYS = ("triggers", "keywords")
"""Fields that authors write words into that should call the skill; `tags` are known to the scan."""


def stamp_of(skill: Skill) -> Stamp:
    """What tells one state of the skill's file from another."""
    head = skill.head
    return (head.mtime_ns, head.ctime_ns, head.size)


def head_texts(skill: Skill) -> dict[str, str]:
    """The fields that need no look at the disk, as written."""
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
    """Every field, with the body read now.

    Raises:
        SatchelError: the file cannot be read.
    """
    texts = head_texts(skill)
    if skill.is_tool or skill.origin.remote:  # nothing of a server is fetched before it is loaded
        return texts
    document = skill.read()
    words = [texts.get("triggers", "")]
    words += [_joined(document.fields.get(key)) for key in _TRIGGER_KEYS]
    triggers = " ".join(word for word in words if word)
    if triggers:
        texts["triggers"] = triggers[: _LIMITS["triggers"]]
    texts["body"] = document.body[: _LIMITS["body"]]
    return texts


def row_of(skill: Skill, texts: dict[str, str]) -> Row:
    """A skill as the index keeps it."""
    cut = tuple(" ".join(terms_of(texts[field])) if field in texts else "" for field in FIELDS)
    return Row(skill.path, stamp_of(skill), cut)


def make_row(skill: Skill) -> Row:
    """The row of a skill, its file read now.

    Raises:
        SatchelError: the file cannot be read.
    """
    return row_of(skill, texts_of(skill))


def head_row(skill: Skill) -> Row:
    """The row of what the scan kept, without the body: nothing is read."""
    return row_of(skill, head_texts(skill))


def for_vectors(skill: Skill) -> tuple[str, str]:
    """What a model is given: the name, and the name with what the skill says it does."""
    texts = head_texts(skill)
    name = spelt_out(texts.get("name", ""))
    about = ". ".join(text for text in (texts.get("description"), texts.get("when")) if text)
    return name, f"{name}: {about}" if name else about


def _joined(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return " ".join(item for item in cast("list[Any]", value) if isinstance(item, str))
    return ""
