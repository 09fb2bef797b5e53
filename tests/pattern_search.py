"""Look for patterns that are accepted and yet take long: `python pattern_search.py SEED SECONDS`.

Patterns are made by chance, and so are texts for each that almost fit it. What takes longer than
a second is printed, and the process ends with 1. Else it says how many patterns it tried.
"""

from __future__ import annotations

import random
import re
import signal
import sys
import time
import warnings
from importlib import import_module

from satchel.goals.patterns import LONGEST, fault, fits

parser = import_module("re._parser")
SIGNS = [*"abAkKsiI1_- .\n", *"éÉ\u212a\u017f\u0130\u0131一\u0660\u3000ßẞµμςΣσ\U00010400\U00010428"]
CLASSES = [r"\w", r"\d", r"\s", r"\W", "a-k", "A-Z", "à-ÿ", "0-9", "\u0100-\u0400", r"\x1c-\x1f"]
TIMES = [
    "*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{0,3}", "{2,}", "{1,20}", "{9}",
    "{0,12}", "{100}", "{3000}", "{0,2000}", "{20,40}?", "{10,}",
]  # fmt: skip
GROUPS = [
    "(?i:", "(?a:", "(?u:", "(?s:", "(?-i:", "(?m:", "(?ai:", "(?u-i:", "(?>", "(?=", "(?!", "(?<=",
]  # fmt: skip
STARTS = ["", "^", "^", "(?i)^", "(?a)^", "(?i)", "(?s)^", "(?m)^", "(?ai)^"]
SLOW = 1.0


class Search:
    """One row of chances."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def sign(self) -> str:
        return re.escape(self.chance.choice(SIGNS))

    def group(self) -> str:
        if self.chance.random() < 0.25:
            return self.chance.choice([r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", "."])
        items = [
            self.chance.choice([self.sign(), self.chance.choice(CLASSES)])
            for _ in range(self.chance.randint(1, 3))
        ]
        return "[" + self.chance.choice(["", "", "", "^"]) + "".join(items) + "]"

    def part(self, depth: int) -> str:
        choice = self.chance.choice
        which = self.chance.random() if depth else 0.0
        if which < 0.2:
            return choice([self.sign, self.sign, self.group])()
        if which < 0.4:
            return "".join(self.part(depth - 1) for _ in range(self.chance.randint(2, 4)))
        if which < 0.72:
            return choice(["(?:", "("]) + self.part(depth - 1) + ")" + choice(TIMES)
        if which < 0.84:
            parts = [self.part(depth - 1) for _ in range(self.chance.randint(2, 4))]
            return "(?:" + "|".join(parts) + ")"
        if which < 0.94:
            return choice(GROUPS) + self.part(depth - 1) + ")"
        if which < 0.97:
            return choice([r"\b", r"\B", "$", r"\Z", "^", r"\A"]) + self.part(depth - 1)
        return "(" + self.part(depth - 1) + ")" + choice(["", r"\1"])

    def pattern(self) -> str:
        choice = self.chance.choice
        return choice(STARTS) + self.part(self.chance.randint(2, 5)) + choice(["", "$", "x$", "!"])

    def text(self, tree) -> str:
        """One that may fit."""
        found = ""
        for op, given in tree:
            name = str(op)
            if name == "LITERAL":
                found += chr(given)
            elif name in {"NOT_LITERAL", "ANY", "IN"}:
                found += self.one_of(given if name == "IN" else [("ANY", None)])
            elif name == "BRANCH":
                found += self.text(self.chance.choice(given[1]))
            elif name.endswith("REPEAT"):
                rounds = min(int(given[1]), max(int(given[0]), self.chance.randint(0, 3)), 10)
                found += "".join(self.text(given[2]) for _ in range(rounds))
            else:
                found += "".join(self.text(one) for one in inside(name, given))
            if len(found) > 40:
                break
        return found

    def one_of(self, items) -> str:
        op, value = self.chance.choice(items)
        if str(op) == "LITERAL":
            return chr(value)
        return chr(self.chance.randint(*value)) if str(op) == "RANGE" else self.chance.choice(SIGNS)

    def texts(self, pattern: str):
        """Some that repeat a part, as long as is let through, and short ones."""
        trees = parts(parser.parse(pattern))
        size = longest(pattern)
        for _ in range(4):
            unit = self.text(self.chance.choice(trees)) or self.chance.choice(SIGNS)
            start = self.chance.choice(["", self.text(trees[0])])
            for length in {size, min(size, 60)}:
                yield (start + unit * length)[: max(0, length - 1)] + self.chance.choice("!\nxa")


def inside(name: str, given) -> list:
    if name == "SUBPATTERN":
        return [given[3]]
    if name == "ATOMIC_GROUP":
        return [given]
    if name == "BRANCH":
        return list(given[1])
    return [given[2]] if name.endswith("REPEAT") else []


def parts(tree) -> list:
    found = [tree]
    for op, given in tree:
        for one in inside(str(op), given):
            found += parts(one)
    return found


def longest(pattern: str) -> int:
    """Of how many characters a text is that is just let through."""
    shortest, most = 0, LONGEST
    while shortest < most:
        middle = (shortest + most + 1) // 2
        if "too long" in fits(pattern, "\0" * middle):
            most = middle - 1
        else:
            shortest = middle
    return shortest


def stop(*_) -> None:
    raise TimeoutError


def main(seed: int, seconds: float) -> int:
    warnings.simplefilter("ignore")
    if hasattr(signal, "SIGALRM"):  # `re` looks for signals while it goes back
        signal.signal(signal.SIGALRM, stop)
    search = Search(seed)
    tried = slow = 0
    end = time.process_time() + seconds
    while time.process_time() < end:
        pattern = search.pattern()
        if fault(pattern):
            continue
        tried += 1
        for text in search.texts(pattern):
            began = time.process_time()
            if hasattr(signal, "SIGALRM"):
                signal.alarm(20)
            try:
                fits(pattern, text)
            except TimeoutError:
                pass
            finally:
                if hasattr(signal, "SIGALRM"):
                    signal.alarm(0)
            took = time.process_time() - began
            if took > SLOW:
                slow += 1
                said = f"{pattern!r} for {len(text)} characters, {text[:60]!r}"
                sys.stdout.write(f"{took:.1f} s: {said}\n")
    sys.stdout.write(f"patterns tried: {tried}\n")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
