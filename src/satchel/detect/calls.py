"""At which places does a text call skills, and does it want them or not?

One pattern finds the places where a skill may be named (a verb, the word *skill*, `$`, `/`, a
flag, a negation); at each of them `mentions` reads the names, and `told` keeps what is said of
them. What stands in code fences and in quoted lines was not said by whoever wrote the text, and is
not heard.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from satchel.detect import phrases as say_so
from satchel.detect.denials import is_asked, is_denied, is_order
from satchel.detect.mentions import MANY, Item, Mentions, looks_like_one
from satchel.detect.names import spell, wordy
from satchel.detect.told import TOKEN, Told

if TYPE_CHECKING:
    from satchel.detect.names import Names

MOST = 20_000
"""Characters at the beginning and at the end of a text that are listened to: what is between is
something that was pasted."""
_FENCE = re.compile("`{3,}|^[ \t]*~{3,}", re.MULTILINE)
_QUOTED_LINE = re.compile("^[ \t]*>.*$", re.MULTILINE)


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


def listen(goal: str, names: Names) -> Told:
    """Go through a text once: everything that it says about skills by name."""
    heard, quotes = parted(goal)
    amid = ""
    if len(heard) > 2 * MOST:
        amid = heard[MOST:-MOST]
        heard = f"{heard[:MOST]}\n\n{heard[-MOST:]}"
    listener = _Listener(Told(spell(heard), amid, quotes), names)
    listener.listen()
    return listener.told


class _Listener:
    """What is heard at each place."""

    def __init__(self, told: Told, names: Names) -> None:
        self.told = told
        self.text = told.text
        self.names = names
        self._read = Mentions(told.text, names)
        self._begins = len(self.text.plain) - len(self.text.plain.lstrip())

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
        while (found := say_so.ANCHOR.search(low, at)) is not None:
            at = max(found.end(), hear[found.lastgroup or "flag"](found))
        if say_so.SKILL_WORD(low):
            if any(word in low for word in say_so.SAVE):
                self._all_but()
            if say_so.NOT_WORDS(low) or not low.isascii():
                self._nobody()

    def _all_but(self) -> None:
        """`use any skill but pdf`, `除了 pdf 以外的技能都可以用`."""
        from satchel.detect import no_orders

        low = self.text.low
        for found in no_orders.ANY_BUT(low):
            start = found.start()
            if not is_denied(low, start):
                items, end, _ = self._read.following(self._read.after_article(found.end()))
                self.told.tell(items, start, end, wanted=False)
        for found in no_orders.ZH_BUT(low) if "除" in low else ():
            items, end, is_called = self._read.following(self._read.after_article(found.end()))
            after = no_orders.ZH_BUT_AFTER(low, end)
            if not items or after is None or not (is_called or "技能" in after.group()):
                continue
            others = after.group().replace("别的", "")
            wanted = bool(no_orders.ZH_NOT_OTHERS(others))
            self.told.tell(items, found.start(), after.end(), wanted=wanted)

    def _nobody(self) -> None:
        """`do not use any skill`; what names somebody says something else."""
        from satchel.detect.no_orders import ASKED, EXCEPT, NONE, OF_PEOPLE

        low = self.text.low
        named = sorted(self.told.cuts)[::-1]
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
                items, after, _ = self._read.following(self._read.after_article(but.end()))
                if items:
                    self.told.tell(items, start, after, wanted=True)
                    continue
                token = TOKEN(self.text.plain, self._read.after_article(but.end()))
                if token is not None and looks_like_one(token.group()):
                    self.told.not_there(token.start(), start)
            self.told.none = True
            self.told.cuts.append((start, end))

    def _flag(self, found: re.Match[str]) -> int:
        """`--skill a,b`, `--skill=a`, `--no-skill a`."""
        plain = self.text.plain
        wanted = not found["no"] and not is_denied(self.text.low, found.start())
        end = found.end()
        for _ in range(MANY):
            item = self._read.quoted(end) or self._read.flag_value(end)
            if item is None:
                break
            end = item.end
            self.told.tell([item], found.start(), end, wanted=wanted)
            if plain[end : end + 1] != ",":
                break
            end += 1
            if plain[end : end + 1] == " ":  # a list goes on, or the sentence does
                end += 1
                if self._read.one(end) is None:
                    break
        return end

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
        if say_so.TOLD_AFTER(low, hit[1]):
            return hit[1]
        ok = self._is_command(at, hit[1]) if plain[at] == "/" else self._is_no_code(at, hit[1])
        if ok and plain[at] == "$" and word.isupper():
            ok = self.names.skills[hit[0]].name == word
        if ok:
            wanted = not is_denied(self.text.low, at) and not say_so.NOT_AFTER(low, hit[1])
            self.told.tell([Item(hit[0], word, at, hit[1], marked=True)], at, hit[1], wanted=wanted)
        return hit[1]

    def _no_command(self, at: int) -> None:
        """`$terraform please`: a name that nothing has; not a path, a price or a variable."""
        token = TOKEN(self.text.plain, at + 1)
        word = token.group() if token is not None else ""
        if token is None or "/" in word or self.text.low[token.end() : token.end() + 1] == "/":
            return
        if say_so.TOLD_AFTER(self.text.low, token.end()) or (
            say_so.VERB_AFTER(self.text.low, token.end()) or word.lower() in say_so.FOLDERS
        ):
            return
        if self.text.plain[at] == "$":
            after = self.text.low[token.end() : token.end() + 3].lstrip()
            plain_word = word[0].isalpha() and not word.isupper() and "." not in word
            if not plain_word or after[:1] in {*"=[({$%*+<>"} or after[:2] in {"->", ":="}:
                return
        self.told.not_there(at + 1, at)

    def _is_no_code(self, at: int, end: int) -> bool:
        """`$5` is money, `$HOME` belongs to the shell, and `echo $x` is a program."""
        word, low = self.text.plain[at + 1 : end], self.text.low
        if not any(char.isalpha() for char in word):
            return False
        if word.isupper() and word.lower() in say_so.VARIABLES:
            return False
        if low[end : end + 3].lstrip()[:1] in {*"=+<>|"} or low.startswith(" :=", end):
            return False
        return say_so.IN_CODE(low[max(0, at - 16) : at]) is None

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
        joint = say_so.COMMANDS(low[max(0, at - 10) : at])
        if joint is not None and self.told.cuts:
            start, last = self.told.cuts[-1]
            if last == at - len(joint.group()) and low[start] == "/":
                return True
        return say_so.PATH_BEFORE(low[max(0, at - 12) : at]) is None

    def _label(self, found: re.Match[str]) -> int:
        """`skill: pdf`, `技能：pdf`."""
        start = found.start()
        before = self.text.low[max(0, start - say_so.SPAN) : start]
        if say_so.MADE(before[-40:]):
            return found.end()
        if found.group().startswith("skills") and before.strip() and _of_people(before):
            return found.end()
        items, end, _ = self._read.following(found.end())
        wanted = not is_denied(self.text.low, start)
        if items:
            wanted = wanted and not say_so.NOT_AFTER(self.text.low, end)
            self.told.tell(items, start, end, wanted=wanted)
            return end
        if wanted and not found.group().startswith("skills"):
            self.told.not_there(found.end(), start)
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
        past = self._read.after_article(amid.end() if amid is not None else found.end())
        unwanted = amid is not None or is_denied(low, start)
        called = say_so.SKILL_BEFORE(low, past)
        if called is not None:
            return self._skill_first(found, called, unwanted=unwanted)
        items, end, is_called = self._read.following(past)
        if not items:
            return self._far(found, past)
        refused = say_so.NO_THEN(low, end)
        if refused is not None:
            self.told.tell(items, start, refused.end(), wanted=False)
            return refused.end()
        if not is_called:
            return self._plain(found, items, end, unwanted=unwanted)
        if unwanted:
            items = self._read.with_kin(items, found.end(), past, end)
        many = low.endswith("skills", past, end) and not low[found.end() : past].strip()
        if not (
            self._is_no_order(start, end, unwanted=unwanted, named=True)
            or (not unwanted and self._is_beside(found, many=many))
        ):
            self.told.tell(items, start, end, wanted=not unwanted)
        return end

    def _skill_first(self, found: re.Match[str], called: re.Match[str], *, unwanted: bool) -> int:
        """`use skill pdf`, `use the skill called pdf`."""
        start = found.start()
        items, end, _ = self._read.following(called.end())
        if not items:
            items, end, _ = self._read.following(self._read.after_article(called.end()))
        if items:
            if not self._is_no_order(start, end, unwanted=unwanted, named=True):
                self.told.tell(items, start, end, wanted=not unwanted)
            return end
        if "skills" not in called.group() and not unwanted:
            self.told.not_there(called.end(), start)
        return found.end()

    def _plain(self, found: re.Match[str], items: list[Item], end: int, *, unwanted: bool) -> int:
        """`use pdf-forms`, `do not use docker`: nothing says that it is a skill."""
        start, low = found.start(), self.text.low
        if say_so.THING_AFTER(low, end):
            return found.end()
        if unwanted:
            named = all(item.marked for item in items)
            if not self._is_no_order(start, end, unwanted=True, named=named):
                self.told.tell(items, start, end, wanted=False)
            return end
        there = [item for item in items if item.at >= 0]
        if (
            found.group() in say_so.BARE
            and any(item.marked for item in there)
            and not say_so.NOT_AFTER(low, end)
        ):
            self.told.tell(there, start, end, wanted=True)
            return end
        return found.end()

    def _is_beside(self, found: re.Match[str], *, many: bool) -> bool:
        """`a problem with the pdf skill`, `someone with sql skills`: it is talked about."""
        if found.group() not in say_so.BESIDE:
            return False
        start = found.start()
        return many or _of_skills(self.text.low[max(0, start - say_so.SPAN) : start])

    def _is_no_order(self, start: int, end: int, *, unwanted: bool, named: bool) -> bool:
        """`this app does not run with docker`: denied, and not forbidden."""
        return unwanted and not is_order(self.text.low, start, end, named=named)

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
        unwanted = is_denied(self.text.low, start)
        far_off = say_so.FAR_OFF(low[past - 1 : hit[1] if hit is not None else last])
        if self._is_no_order(start, far.end(), unwanted=unwanted, named=True) or (
            not unwanted and (far_off or self._is_beside(found, many=False))
        ):
            return found.end()
        if hit is not None:
            items = [Item(hit[0], self.text.plain[hit[1] : last], hit[1], last, marked=False)]
            if unwanted:
                items = self._read.with_kin(items, found.end(), past, far.end())
            self.told.tell(items, start, far.end(), wanted=not unwanted)
            return far.end()
        if unwanted:
            items = self._read.kind(past)
            self.told.tell(items, start, far.end(), wanted=False)
            return far.end() if items else found.end()
        self._far_unknown(start, past, last, far)
        return found.end()

    def _far_unknown(self, start: int, past: int, last: int, far: re.Match[str]) -> None:
        """`use the spreadsheet skill`, and there is none."""
        word = self.text.plain[past:last]
        told = False
        if far.group(1) not in {"skill", "skills"}:
            if say_so.ZH_VAGUE.search(word) is None and not is_asked(self.text.low, start):
                self.told.unknown.setdefault(word)
                told = True
        elif far.group(1) == "skill" and " " not in word:
            told = self.told.not_there(past, start)
        if told and looks_like_one(word) is None:
            # `the spreadsheet skill`: nothing is called so, but that is what it should be about.
            self.told.cuts = [cut for cut in self.told.cuts if cut[0] != start]
            self.told.cuts += [(start, past), (last, far.end())]

    def _ruled_out_anyway(self, start: int, past: int) -> None:
        """`never use pdf-join`: nothing is called so, and nothing should be found by it."""
        token = TOKEN(self.text.plain, past)
        if token is not None and looks_like_one(token.group()) and is_denied(self.text.low, start):
            self.told.cut(start, token.end(), wanted=False)

    def _object_first(self, start: int, end: int) -> None:
        """`pdf技能不要用`: what is denied stands before the denial."""
        window = self.text.low[max(0, start - 8) : start]
        denied = say_so.ZH_DENIED(window)
        if denied is not None:
            begins = start - len(denied.group())
            tail = say_so.SKILL_TAIL(self.text.low, max(0, begins - 12), begins)
            is_called = tail is not None and bool(tail.group().strip())
            if denied["bare"] and not (is_called and self.text.low[end - 1] == "用"):
                return  # 技能不加载 tells what does not work
            items = self._read.before(tail.start() if tail is not None else begins)
            if items:
                self.told.tell(items, items[0].start, end, wanted=False)

    def _bad(self, found: re.Match[str]) -> int:
        """`without pdf`, `instead of pdf`, `not pdf but docx`."""
        word, start, low = found.group(), found.start(), self.text.low
        past = self._read.after_article(found.end())
        called = say_so.SKILL_BEFORE(low, past)
        items, end, is_called = self._read.following(called.end() if called is not None else past)
        is_called = is_called or called is not None
        if items and is_called:
            items = self._read.with_kin(items, found.end(), past, end)
        elif not items and word not in say_so.ENDS and "skill" in low[past : past + say_so.SPAN]:
            items, is_called = self._read.kind(past), True
            end = items[0].end if items else end
            after = say_so.SKILL_AFTER(low, end)
            end = after.end() if after is not None else end
        if not items:
            return found.end()
        window = low[max(0, start - say_so.SPAN) : start]
        if word == "without" and say_so.TWICE(window):
            self.told.tell(items, start, end, wanted=True, only_marked=not is_called)
            return end
        if word in say_so.WILL or word in {"no", "不要"}:
            self.told.tell(items, start, end, wanted=False, only_marked=not is_called)
        elif word in say_so.ENDS and not is_called:
            if say_so.WHY(window) or low.startswith((" only", " just"), found.end()):
                return found.end()
            ends = say_so.CLAUSE_ENDS(low, end) is not None
            self.told.tell(items, start, end, wanted=False, only_marked=not ends)
        else:
            self.told.tell(items, start, end, wanted=False)
        rather = say_so.BUT(low, end)
        if rather is not None:
            items, after, is_called = self._read.following(self._read.after_article(rather.end()))
            self.told.tell(items, rather.start(), after, wanted=True, only_marked=not is_called)
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
        items = self._read.before(end)
        after = found.end() if found.group() in {"スキル", "스킬"} else start
        if not items and is_called:
            items, past, _ = self._read.following(found.end())
            after = max(after, past)
        if not items:
            return found.end()
        if not is_called:
            first = items[0].start
            is_called = say_so.SKILL_BEHIND(low[max(0, first - 16) : first]) is not None
        begins = min(items[0].start, start)
        if say_so.NOT_AFTER(low, after):
            named = is_called or all(item.marked for item in items)
            if found.group().isascii() and not named and not say_so.RULE_ENDS(low, found.end()):
                return found.end()  # `sql is forbidden by the linter`
            self.told.tell(items, begins, max(after, found.end()), wanted=False)
        elif say_so.USED_AFTER(low, after) and not is_denied(self.text.low, begins):
            used = say_so.USED_AFTER(low, after)
            done = max(after, found.end(), used.end() if used is not None else 0)
            self.told.tell(items, begins, done, wanted=True, only_marked=not is_called)
        return max(found.end(), after)


def _skill_after(low: str, past: int) -> re.Match[str] | None:
    """The word *skill* some words after a verb."""
    far = None
    if "skill" in low[past : past + say_so.SPAN + 8]:
        far = say_so.SKILL_FAR(low, past)
    if far is None and "技能" in low[past : past + 24]:
        far = say_so.ZH_FAR(low, past)
    return far


def _of_skills(before: str) -> bool:
    """`what is wrong with the pdf skill`: it is talked about."""
    from satchel.detect.no_orders import OF_BOTH, OF_SOMEBODY, OF_TROUBLE

    return bool(OF_TROUBLE(before) or OF_BOTH(before) or OF_SOMEBODY(before))


def _of_people(before: str) -> bool:
    """`required skills: python`: what a person can do."""
    from satchel.detect.no_orders import OF_JOBS

    begins = before.endswith("\n") or before.rstrip()[-1:] in {*".;!?,(-*#。"}
    return not begins or bool(OF_JOBS(before))
