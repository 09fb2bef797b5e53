"""Which names does a text speak, and does it want them or not?

One pattern finds the places where a skill may be named (a verb, the word *skill*, `$`, `/`, a
flag, a negation); at each of them the table of names is asked. What stands in code fences and in
quoted lines was not said by whoever wrote the text, and is not heard.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel.detect import phrases as say_so
from satchel.detect.idle import IDLE
from satchel.detect.names import LONGEST, spell, wordy
from satchel.detect.words import STOP

if TYPE_CHECKING:
    from satchel.detect.names import Names

MANY = 40
"""Names in one enumeration."""
MOST = 100_000
"""Places that are looked at in one text: far more than any text has that somebody wrote."""
SAID = 80
"""Characters of the text that a call quotes."""
_CLOSE = {
    "`": "`", '"': '"', "'": "'", "<": ">", "[": "]", "{": "}", "«": "»",
    "「": "」", "『": "』", "《": "》", "【": "】",
}  # fmt: skip
_OPEN = {close: opening for opening, close in _CLOSE.items()}
_FENCE = re.compile("`{3,}|^[ \t]*~{3,}", re.MULTILINE)
_QUOTED_LINE = re.compile("^[ \t]*>.*$", re.MULTILINE)
_TOKEN = re.compile(r"[^\W_](?:[\w.:/+#@-]{0,78}[\w+#])?").match
_FLAG_TOKEN = re.compile(r"[^\s,;\"'`]{1,200}").match
_LOOKS_LIKE_ONE = re.compile(r"[-_:/\d]").search


class Item(NamedTuple):
    """One name in a text."""

    at: int
    """The skill's place; -1 when there is none of that name."""
    word: str
    start: int
    end: int
    marked: bool
    """It looks like a name, not like a word: quoted, after `$`, or with a hyphen."""


class Call(NamedTuple):
    """One skill that was named."""

    at: int
    wanted: bool
    said: str
    """The words that named it."""


def parted(goal: str) -> tuple[str, str]:
    """The goal without code fences and quoted lines, and those; an open fence runs to the end."""
    quoted: list[str] = []
    if "```" in goal or "~~~" in goal:
        parts: list[str] = []
        past, opened, fence = 0, 0, ""
        for found in _FENCE.finditer(goal):
            mark = found.group().strip()
            if not fence:
                parts.append(goal[past : found.start()])
                fence, opened = mark, found.end()
            elif mark.startswith(fence):
                quoted.append(goal[opened : found.start()])
                past, fence = found.end(), ""
        (quoted if fence else parts).append(goal[opened if fence else past :])
        goal = "\n\n".join(parts)
    if ">" in goal:
        quoted += _QUOTED_LINE.findall(goal)
        goal = _QUOTED_LINE.sub("\n", goal)
    return goal, "\n".join(quoted)


class Listener:
    """Goes through one text once."""

    def __init__(self, goal: str, names: Names) -> None:
        heard, self._quotes = parted(goal)
        self.text = spell(heard)
        self.names = names
        self.calls: list[Call] = []
        self._begins = len(self.text.plain) - len(self.text.plain.lstrip())
        self.unknown: dict[str, None] = {}
        self.unheard = 0
        """Characters at the end that were not listened to, of a text that is nothing but calls."""
        self.none = False
        """No skill at all is wanted."""
        self._cuts: list[tuple[int, int]] = []

    @property
    def said(self) -> bool:
        """Whether anything was said about skills."""
        return bool(self._cuts or self.calls or self.unknown or self.unheard)

    def rest(self) -> str:
        """What the text says beside its calls: that is what it is about."""
        parts: list[str] = []
        past = 0
        for start, end in sorted(self._cuts):
            parts.append(self.text.plain[past : max(past, start)])
            past = max(past, end)
        parts += [self.text.plain[past:], self._quotes]
        return " ".join(part.strip() for part in parts if part.strip())

    def listen(self) -> None:
        """Find every call."""
        hear = {
            "flag": self._flag,
            "sigil": self._sigil,
            "label": self._label,
            "verb": self._verb,
            "bad": self._bad,
            "back": self._back,
        }
        low = self.text.low
        at = 0
        for _ in range(MOST):
            found = say_so.ANCHOR.search(low, at)
            if found is None:
                break
            at = max(found.end(), hear[found.lastgroup or "flag"](found))
        else:
            self.unheard = len(low) - at
        if say_so.SKILL_WORD(low) and (say_so.NOT_WORDS(low) or not low.isascii()):
            self._nobody()

    def _nobody(self) -> None:
        """`do not use any skill`; what names somebody says something else."""
        from satchel.detect.no_orders import ASKED, EXCEPT, NONE, OF_PEOPLE

        low = self.text.low
        named = sorted(self._cuts)[::-1]
        for found in NONE.finditer(low):
            start, end = found.span()
            while named and named[-1][1] <= start:
                named.pop()
            if named and named[-1][0] < end:
                continue
            of_people = found.group().startswith("with") and OF_PEOPLE(
                low[max(0, start - 20) : start]
            )
            if of_people or ASKED(low[max(0, start - say_so.SPAN) : start]):
                continue
            but = EXCEPT(low, end)
            if but is not None:
                items, after, _ = self._list(self._after_article(but.end()))
                if items:
                    self._tell(items, start, after, wanted=True)
                    continue
                token = _TOKEN(self.text.plain, self._after_article(but.end()))
                if token is not None and _LOOKS_LIKE_ONE(token.group()):
                    self._not_there(token.start(), start)
            self.none = True
            self._cuts.append((start, end))

    # --- the places ---------------------------------------------------------------------------

    def _flag(self, found: re.Match[str]) -> int:
        """`--skill a,b`, `--skill=a`, `--no-skill a`."""
        plain = self.text.plain
        wanted = not found["no"] and not self._not_before(found.start())
        end = found.end()
        for _ in range(MANY):
            item = self._quoted(end) or self._flag_value(end)
            if item is None:
                break
            end = item.end
            self._tell([item], found.start(), end, wanted=wanted)
            if plain[end : end + 1] != ",":
                break
            end += 1
            if plain[end : end + 1] == " ":  # a list goes on, or the sentence does
                end += 1
                if self._one(end) is None:
                    break
        return end

    def _flag_value(self, at: int) -> Item | None:
        """A value as a shell would take it; a name with spaces too, if there is one."""
        token = _FLAG_TOKEN(self.text.plain, at)
        if token is None:
            return None
        word = token.group().rstrip(".!?:)]}。").lstrip("$/@")
        there = self.names.exact(word) if word else None
        if there is None:
            longer = self.names.starting(self.text, at)
            if longer is not None:
                return Item(longer[0], word, at, longer[1], marked=True)
        return Item(-1 if there is None else there, word, at, token.end(), marked=bool(word))

    def _sigil(self, found: re.Match[str]) -> int:
        """`$pdf`, `/pdf`: a name alone, not a variable, a sum of money or a path."""
        at = found.start()
        plain, low = self.text.plain, self.text.low
        hit = self.names.starting(self.text, at + 1)
        if hit is None:
            if at == self._begins:
                self._no_command(at)
            return at + 1
        word = plain[at + 1 : hit[1]]
        after = low[hit[1] : hit[1] + 2]
        if after[:1] in {"=", "/", "\\", "[", "(", "{", "$", "%", "*"} or after == "->":
            return hit[1]
        ok = self._is_command(at, hit[1]) if plain[at] == "/" else _is_no_variable(word)
        if ok and plain[at] == "$" and word.isupper():
            ok = self.names.skills[hit[0]].name == word
        if ok:
            wanted = not self._not_before(at) and not say_so.NOT_AFTER(low, hit[1])
            self._tell([Item(hit[0], word, at, hit[1], marked=True)], at, hit[1], wanted=wanted)
        return hit[1]

    def _no_command(self, at: int) -> None:
        """`$terraform please`: a name that nothing has; not a path, a price or a variable."""
        token = _TOKEN(self.text.plain, at + 1)
        word = token.group() if token is not None else ""
        if token is None or "/" in word or self.text.low[token.end() : token.end() + 1] == "/":
            return
        if self.text.plain[at] == "$":
            after = self.text.low[token.end() : token.end() + 3].lstrip()
            plain_word = word[0].isalpha() and not word.isupper() and "." not in word
            if not plain_word or after[:1] in {*"=[({$%*+<>"} or after[:2] in {"->", ":="}:
                return
        self._not_there(at + 1, at)

    def _is_command(self, at: int, end: int) -> bool:
        low = self.text.low
        if "/" in low[at + 1 : end]:
            return False
        if at == self._begins:
            return True
        before = low[at - 1]
        if before == ":":
            return not wordy(low[at - 2 : at - 1] or " ")
        if before.isalnum() and before not in say_so.SLASH_AFTER:
            return False
        if low[at + 1 : end] in say_so.FOLDERS or say_so.PATH_AFTER(low, end):
            return False
        return say_so.PATH_BEFORE(low[max(0, at - 12) : at]) is None

    def _label(self, found: re.Match[str]) -> int:
        """`skill: pdf`, `技能：pdf`."""
        start = found.start()
        if say_so.MADE(self.text.low[max(0, start - 40) : start]):
            return found.end()
        items, end, _ = self._list(found.end())
        wanted = not self._not_before(start)
        if items:
            wanted = wanted and not say_so.NOT_AFTER(self.text.low, end)
            self._tell(items, start, end, wanted=wanted)
            return end
        if wanted and not found.group().startswith("skills"):
            self._not_there(found.end(), start)
        return found.end()

    def _verb(self, found: re.Match[str]) -> int:
        """`use skill pdf`, `use the pdf skill`, `用 pdf 技能`, `use pdf-forms`."""
        start, low = found.start(), self.text.low
        if found.group() == "用" and (
            low[start - 1 : start] in say_so.PART_BEFORE
            or low[start + 1 : start + 2] in say_so.PART_AFTER
        ):
            return found.end()
        amid = say_so.NOT_AMID(low, found.end())
        past = self._after_article(amid.end() if amid is not None else found.end())
        called = say_so.SKILL_BEFORE(low, past)
        if called is not None:
            items, end, _ = self._list(called.end())
            if not items:
                items, end, _ = self._list(self._after_article(called.end()))
            unwanted = amid is not None or self._not_before(start)
            if items:
                self._tell(items, start, end, wanted=not unwanted)
                return end
            if "skills" not in called.group() and not unwanted:
                self._not_there(called.end(), start)
            return found.end()
        items, end, is_called = self._list(past)
        if not items:
            return self._far(found, past)
        unwanted = amid is not None or self._not_before(start)
        if unwanted or is_called:
            if unwanted and is_called:
                items = self._with_kin(items, found.end(), past, end)
            self._tell(items, start, end, wanted=not unwanted)
            return end
        if found.group() in say_so.BARE:
            items = [item for item in items if item.marked and item.at >= 0]
            if items and not say_so.NOT_AFTER(low, end):
                self._tell(items, start, end, wanted=True)
                return end
        return found.end()

    def _far(self, found: re.Match[str], past: int) -> int:
        """`use the excellent pdf skill`: the name ends where the word *skill* begins."""
        start, low = found.start(), self.text.low
        far = _skill_after(low, past)
        if far is None:
            self._object_first(start, found.end())
            self._ruled_out_anyway(start, past)
            return found.end()
        chinese = far.group(1) not in {"skill", "skills"}
        last = far.end(1) if chinese else far.start(1)
        while last > past and low[last - 1] == " ":
            last -= 1
        hit = self.names.ending(self.text, last, past)
        unwanted = self._not_before(start)
        if hit is not None:
            items = [Item(hit[0], self.text.plain[hit[1] : last], hit[1], last, marked=False)]
            if unwanted:
                items = self._with_kin(items, found.end(), past, far.end())
            self._tell(items, start, far.end(), wanted=not unwanted)
            return far.end()
        if unwanted:
            items = self._kind(past)
            self._tell(items, start, far.end(), wanted=False)
            return far.end() if items else found.end()
        word = self.text.plain[past:last]
        told = False
        if chinese:
            if say_so.ZH_VAGUE.search(word) is None and not self._asked(start):
                self.unknown.setdefault(word)
                told = True
        elif far.group(1) == "skill" and " " not in word:
            told = self._not_there(past, start)
        if told and _LOOKS_LIKE_ONE(word) is None:
            # `the spreadsheet skill`: nothing is called so, but that is what it should be about.
            self._cuts = [cut for cut in self._cuts if cut[0] != start]
            self._cuts += [(start, past), (last, far.end())]
        return found.end()

    def _ruled_out_anyway(self, start: int, past: int) -> None:
        """`never use pdf-join`: nothing is called so, and nothing should be found by it."""
        token = _TOKEN(self.text.plain, past)
        if token is not None and _LOOKS_LIKE_ONE(token.group()) and self._not_before(start):
            self._cut(start, token.end(), wanted=False)

    def _kind(self, at: int) -> list[Item]:
        """`the pdf skills`: whoever has the word in its name."""
        found = say_so.KIND(self.text.low, at)
        if found is None:
            return []
        start, end = found.span(1)
        word = self.text.plain[start:end]
        if word.lower() in IDLE or word.lower() in say_so.VAGUE or word.lower() in STOP:
            return []
        return [Item(one, word, start, end, marked=False) for one in self.names.family(word)]

    def _with_kin(self, items: list[Item], verb: int, past: int, end: int) -> list[Item]:
        """`any pdf skill` and `the pdf skills` are more than the one that is called `pdf`."""
        low = self.text.low
        first = items[0]
        many = "skills" in low[first.end : end] or " any " in low[verb:past]
        if len(items) > 1 or not many or first.at < 0:
            return items
        kin = [at for at in self.names.family(first.word) if at != first.at]
        return [first, *(first._replace(at=at) for at in kin)]

    def _object_first(self, start: int, end: int) -> None:
        """`pdf技能不要用`: what is denied stands before the denial."""
        window = self.text.low[max(0, start - 8) : start]
        denied = say_so.ZH_DENIED(window)
        if denied is not None:
            begins = start - len(denied.group())
            tail = say_so.SKILL_TAIL(self.text.low, max(0, begins - 12), begins)
            items = self._list_before(tail.start() if tail is not None else begins)
            if items:
                self._tell(items, items[0].start, end, wanted=False)

    def _bad(self, found: re.Match[str]) -> int:
        """`without pdf`, `instead of pdf`, `not pdf but docx`."""
        word, start, low = found.group(), found.start(), self.text.low
        past = self._after_article(found.end())
        called = say_so.SKILL_BEFORE(low, past)
        items, end, is_called = self._list(called.end() if called is not None else past)
        is_called = is_called or called is not None
        if items and is_called:
            items = self._with_kin(items, found.end(), past, end)
        elif not items and word not in say_so.ENDS and "skill" in low[past : past + say_so.SPAN]:
            items, is_called = self._kind(past), True
            end = items[0].end if items else end
            after = say_so.SKILL_AFTER(low, end)
            end = after.end() if after is not None else end
        if not items:
            return found.end()
        window = low[max(0, start - say_so.SPAN) : start]
        if word == "without" and say_so.TWICE(window):
            self._tell(items, start, end, wanted=True, only_marked=not is_called)
            return end
        if word in say_so.WILL or word in {"no", "不要"}:
            self._tell(items, start, end, wanted=False, only_marked=not is_called)
        elif word in say_so.ENDS and not is_called:
            if say_so.WHY(window) or low.startswith((" only", " just"), found.end()):
                return found.end()
            ends = say_so.CLAUSE_ENDS(low, end) is not None
            self._tell(items, start, end, wanted=False, only_marked=not ends)
        else:
            self._tell(items, start, end, wanted=False)
        rather = say_so.BUT(low, end)
        if rather is not None:
            items, after, is_called = self._list(self._after_article(rather.end()))
            self._tell(items, rather.start(), after, wanted=True, only_marked=not is_called)
            return max(end, after if items else end)
        return end

    def _back(self, found: re.Match[str]) -> int:
        """`pdfスキルを使って`, `pdf 스킬을 사용`, `the pdf skill must not be used`."""
        start, low = found.start(), self.text.low
        is_called = found.group() in {"スキル", "스킬"}
        end = start
        tail = say_so.SKILL_TAIL(low, max(0, end - 12), end)
        if tail is not None:
            is_called = is_called or bool(tail.group().strip(" というの이라는这个那"))
            end = tail.start()
        items = self._list_before(end)
        after = found.end() if found.group() in {"スキル", "스킬"} else start
        if not items and is_called:
            items, past, _ = self._list(found.end())
            after = max(after, past)
        if not items:
            return found.end()
        if not is_called:
            first = items[0].start
            is_called = say_so.SKILL_BEHIND(low[max(0, first - 16) : first]) is not None
        begins = min(items[0].start, start)
        if say_so.NOT_AFTER(low, after):
            self._tell(items, begins, max(after, found.end()), wanted=False)
        elif say_so.USED_AFTER(low, after) and not self._not_before(begins):
            done = max(after, found.end())
            self._tell(items, begins, done, wanted=True, only_marked=not is_called)
        return max(found.end(), after)

    # --- names --------------------------------------------------------------------------------

    def _list(self, at: int) -> tuple[list[Item], int, bool]:
        """Names one after the other, where they end, and whether they are called skills."""
        items: list[Item] = []
        is_called = False
        end = at
        while len(items) < MANY:
            item = self._one(at)
            if item is None:
                break
            items.append(item)
            end = item.end
            word = say_so.SKILL_AFTER(self.text.low, end)
            if word is not None:
                is_called, end = True, word.end()
            joint = say_so.AND(self.text.low, end)
            if joint is None:
                break
            at = self._after_article(joint.end())
        return items, end, is_called

    def _one(self, at: int) -> Item | None:
        plain = self.text.plain
        while plain[at : at + 1] in {"*", " "}:
            at += 1
        item = self._quoted(at)
        if item is not None:
            return item
        sign = plain[at : at + 1] in {"$", "/", "@"}
        hit = self.names.starting(self.text, at + sign)
        if hit is None:
            return None
        word = plain[at + sign : hit[1]]
        return Item(hit[0], word, at, hit[1], sign or _LOOKS_LIKE_ONE(word) is not None)

    def _quoted(self, at: int) -> Item | None:
        plain = self.text.plain
        close = _CLOSE.get(plain[at : at + 1])
        if close is None:
            return None
        end = plain.find(close, at + 1, at + LONGEST + 2)
        inner = plain[at + 1 : end].strip(" *").lstrip("$/@") if end > 0 else ""
        if not inner or "\n" in inner:
            return None
        there = self.names.exact(inner)
        return Item(-1 if there is None else there, inner, at, end + 1, marked=True)

    def _list_before(self, end: int) -> list[Item]:
        """Names that end at `end`, in the order of the text."""
        items: list[Item] = []
        plain, low = self.text.plain, self.text.low
        while len(items) < MANY:
            while end > 0 and plain[end - 1] in "* ":
                end -= 1
            opening = _OPEN.get(plain[end - 1 : end])
            if opening is not None:
                start = plain.rfind(opening, max(0, end - 2 - LONGEST), end - 1)
                item = self._quoted(start) if start >= 0 else None
            else:
                hit = self.names.ending(self.text, end)
                item = None
                if hit is not None:
                    start = hit[1] - (plain[hit[1] - 1 : hit[1]] in {"$", "/", "@"})
                    word = plain[hit[1] : end]
                    marked = start < hit[1] or _LOOKS_LIKE_ONE(word) is not None
                    item = Item(hit[0], word, start, end, marked)
            if item is None or item.end != end:
                break
            items.append(item)
            joint = say_so.AND_BACK(low[max(0, item.start - 6) : item.start])
            if joint is None:
                break
            end = item.start - len(joint.group())
        return items[::-1]

    # --- what is told -------------------------------------------------------------------------

    def _tell(
        self,
        items: list[Item],
        start: int,
        end: int,
        *,
        wanted: bool,
        only_marked: bool = False,
    ) -> None:
        items = [item for item in items if item.marked or not only_marked]
        if not items or self._asked(start):
            return
        said = " ".join(self.text.plain[start:end].split())[:SAID]
        told = False
        for item in items:
            if item.at >= 0:
                self.calls.append(Call(item.at, wanted, said))
                told = True
            elif wanted and item.word and not only_marked:
                self.unknown.setdefault(item.word)
                told = True
        if told:
            self._cut(start, end, wanted=wanted)

    def _cut(self, start: int, end: int, *, wanted: bool) -> None:
        """What names a skill does not say what it is wanted for."""
        if not wanted:
            denial = self._denial(start)
            start = start if denial is None else denial
            after = say_so.NOT_AFTER(self.text.low, end)
            end = after.end() if after is not None else end
        self._cuts.append((start, end))

    def _not_there(self, at: int, start: int) -> bool:
        """Keep the word at `at`, if it looks like the name of a skill that is not there."""
        token = _TOKEN(self.text.plain, at)
        if token is None or self._asked(start):
            return False
        word = token.group()
        low = word.lower()
        if not wordy(word[0]) or low in STOP or low in say_so.VAGUE:
            return False
        self.unknown.setdefault(word)
        self._cut(start, token.end(), wanted=True)
        return True

    def _asked(self, start: int) -> bool:
        """`why did you use X?`, `can I use X?`: a question, and no order."""
        if say_so.MAY_ASK(self.text.low[max(0, start - say_so.SPAN) : start]) is None:
            return False
        from satchel.detect.no_orders import ASKED

        return bool(ASKED(self.text.low[max(0, start - say_so.SPAN) : start]))

    def _after_article(self, at: int) -> int:
        found = say_so.ARTICLE(self.text.low, at)
        return found.end() if found is not None else at

    def _not_before(self, at: int) -> bool:
        """Whether a negation stands just before `at`."""
        return self._denial(at) is not None

    def _denial(self, at: int) -> int | None:
        """Where the negation begins that stands just before `at`."""
        begins = max(0, at - say_so.SPAN)
        window = self.text.low[begins:at]
        if not window.isascii():
            found = say_so.ZH_NOT_BEFORE(window)
            if found is not None:
                other = window[found.start() - 1 : found.start()] in say_so.NOT_OTHER
                return None if other and found.group()[0] in "别別" else begins + found.start()
        if say_so.NOT_WORDS(window) is None:
            return None
        found = say_so.NOT_BEFORE(window)
        if found is None:
            return None
        before = window[: found.start()]
        if found["not"] in {"not", "n't", "dont"} and say_so.WHY(before):
            return None
        if found["not"] == "without" and say_so.TWICE(before):
            return None
        return begins + found.start()


def _skill_after(low: str, past: int) -> re.Match[str] | None:
    """The word *skill* some words after a verb."""
    far = None
    if "skill" in low[past : past + say_so.SPAN + 8]:
        far = say_so.SKILL_FAR(low, past)
    if far is None and "技能" in low[past : past + 24]:
        far = say_so.ZH_FAR(low, past)
    return far


def _is_no_variable(word: str) -> bool:
    """`$5` is money, `$HOME` belongs to the shell."""
    if not any(char.isalpha() for char in word):
        return False
    return not (word.isupper() and word.lower() in say_so.VARIABLES)
