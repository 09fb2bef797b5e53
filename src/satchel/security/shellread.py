"""Which commands does a shell script run? A small reader, bounded, that never runs anything.

It knows words, quotes, pipes, loops and variables: enough to say that `rm "$f"` stands in a loop
over the user's documents. What it cannot tell it leaves as it is written.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LONGEST = 64 * 1024
_MOST = 3000
"""Commands of one script that are read."""
_VALUE = 400
"""Characters of a variable's value that are kept."""
_DEEPEST = 3
"""Commands inside of commands."""
_TOKEN = re.compile(
    r"(?P<space>(?:[ \t]|\\\n)+)|(?P<comment>(?<![^\s;|&(])\#[^\n]*)|(?P<end>\n|&&|\|\||;;?)"
    r"|(?P<redirect>&>>?|\d?>>?&?\d?|<<<|<(?![<(]))|(?P<pipe>\|&?)|(?P<background>&)"
    r"|(?P<here><<-?[ \t]*['\"]?\w+['\"]?)"
    r"|(?P<inner>[$<>]\()|(?P<paren>[()])|(?P<single>'[^']*')|(?P<double>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<piece>\$\{[^}\n]{0,200}\}|\$'[^']*'|\\.|`[^`\n]{0,500}`|\{[^{}\s;|&]{0,80}\}"
    r"|[^\s;|&(){}<>'\"\\$`]+|[^\n])",
    re.DOTALL,
)
_ASSIGNED = re.compile(r"([A-Za-z_]\w{0,60})=(.*)", re.DOTALL)
_USED = re.compile(
    r"\$(?:\{([A-Za-z_]\w{0,60}|\d)(?::?[-=]([^}]{0,160}))?[^}]{0,60}\}|([A-Za-z_]\w{0,60}))"
)
_FED = re.compile(r"\bdone[ \t]*<[ \t]*(?:<\(([^\n]{0,300})\)|<<[ \t]*\"?([^\n]{0,300}))")
_OPENERS = frozenset(("then", "do", "else", "elif", "if", "!", "{", "time", "("))
_LOOPS = frozenset(("for", "while", "until", "select"))
_DECLARES = frozenset(("export", "local", "readonly", "declare", "typeset"))
_MANY = re.compile(r"\{\d+\.\.(\d+)\}|\bseq\s+(?:\d+\s+)?(\d+)|<=?\s*(\d+)")
BIG = 100
"""Rounds of a loop that are many."""


class Command(NamedTuple):
    """One simple command."""

    words: tuple[str, ...]
    """Its words; quotes are gone, variables are filled in where they are known."""
    line: int
    """0-based."""
    loop: int = 0
    """0: in no loop; 1: in one that ends; 2: in one with many rounds; 3: in one without end."""
    pipe: int = 0
    """Commands of one pipeline share a number."""
    background: bool = False


class _Loop(NamedTuple):
    weight: int
    variable: str


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.commands: list[Command] = []
        self.known: dict[str, str] = {}
        self.loops: list[_Loop] = []
        self.pipes = 0
        self.fed = [found[1] or found[2] or "" for found in _FED.finditer(text)]

    def read(self, text: str, line: int, depth: int) -> None:
        words: list[str] = []
        word: str | None = None
        here = ""
        at = 0
        while at < len(text) and len(self.commands) < _MOST:
            found = _TOKEN.match(text, at)
            if found is None:
                return
            kind, piece = found.lastgroup, found.group()
            at = found.end()
            if kind in {"piece", "single", "double", "inner"}:
                if kind == "inner":
                    end = _closing(text, at)
                    inner = text[at : end - 1]
                    piece += inner + ")"
                    if depth < _DEEPEST:
                        self._inside(inner, line, depth)
                    at = end
                word = (word or "") + self._value(piece, kind, line, depth)
                line += piece.count("\n")
                continue
            if word is not None:
                words.append(word)
                word = None
            if kind == "redirect":
                words.append(piece)
            elif kind == "here":
                here = piece.lstrip("<-").strip(" \t'\"")
            elif kind in {"end", "pipe", "background", "paren"}:
                self._finish(words, line, piped=kind == "pipe", background=kind == "background")
                words = []
            line += piece.count("\n")
            if here and piece == "\n":
                at, lines = _after_here(text, at, here)
                line += lines
                here = ""
        if word is not None:
            words.append(word)
        self._finish(words, line, piped=False, background=False)

    def _inside(self, text: str, line: int, depth: int) -> None:
        pipes, self.pipes = self.pipes, self.pipes + 1000
        self.read(text, line, depth + 1)
        self.pipes = pipes

    def _value(self, piece: str, kind: str, line: int, depth: int) -> str:
        if kind == "single":
            return piece[1:-1]
        if kind == "double":
            piece = piece[1:-1].replace('\\"', '"')
            if "$(" in piece and depth < _DEEPEST:
                start = piece.index("$(") + 2
                self._inside(piece[start : _closing(piece, start) - 1], line, depth)
        elif piece.startswith("\\"):
            return piece[1:]
        if "$" not in piece:
            return piece
        return _USED.sub(self._filled, piece)[: _VALUE * 4]

    def _filled(self, found: re.Match[str]) -> str:
        name = found[1] or found[3]
        if name in {"HOME", "PWD", "USER"}:
            return f"${name}"
        return self.known.get(name) or found[2] or found.group()

    def _finish(self, words: list[str], line: int, *, piped: bool, background: bool) -> None:
        while words and words[0] in _OPENERS:
            words = words[1:]
        if words:
            self._command(words, line, background=background)
        if not piped:
            self.pipes += 1

    def _command(self, words: list[str], line: int, *, background: bool) -> None:
        first = words[0]
        if first in _LOOPS:
            self._opens(words)
            if first == "for" or len(words) < 2:
                return
            words = words[1:]
        elif first == "done":
            weight = self.loops.pop().weight if self.loops else 0
            if background:
                self.commands.append(Command(("done",), line, weight, self.pipes, background))
            return
        elif first in _DECLARES:
            words = [one for one in words[1:] if not one.startswith("-")] or words
        at = 0
        for one in words:
            found = _ASSIGNED.fullmatch(one)
            if found is None:
                break
            self.known[found[1]] = found[2][:_VALUE]
            at += 1
        if at == len(words):
            return
        weight = max((one.weight for one in self.loops), default=0)
        self.commands.append(Command(tuple(words[at:]), line, weight, self.pipes, background))

    def _opens(self, words: list[str]) -> None:
        head = " ".join(words)
        if words[0] == "for" and len(words) > 3 and words[2] == "in":
            self.known[words[1]] = " ".join(words[3:])[:_VALUE]
            self.loops.append(_Loop(_rounds(head), words[1]))
            return
        if words[0] in {"while", "until"} and "read" in words:
            before = [one for one in self.commands[-4:] if one.pipe == self.pipes]
            source = " | ".join(" ".join(one.words) for one in before)
            if not source and self.fed:
                source = self.fed.pop(0)
            self.known[words[-1]] = f"$({source})"[:_VALUE] if source else ""
            self.loops.append(_Loop(1, words[-1]))
            return
        endless = words[0] == "while" and words[1:2] in (["true"], [":"], ["1"], ["[", "1"])
        endless |= words[0] == "until" and words[1:2] == ["false"]
        self.loops.append(_Loop(3 if endless else _rounds(head), ""))


def _rounds(head: str) -> int:
    for found in _MANY.finditer(head):
        if int((found[1] or found[2] or found[3])[:9]) >= BIG:
            return 2
    return 1


def _closing(text: str, at: int) -> int:
    """Behind the bracket that closes the one before `at`."""
    depth = 1
    for place in range(at, min(at + 4000, len(text))):
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place + 1
    return min(at + 4000, len(text)) + 1


def _after_here(text: str, at: int, word: str) -> tuple[int, int]:
    """(place behind a text that is given in the script, its lines)."""
    found = re.compile(rf"^[ \t]*{re.escape(word)}[ \t]*$", re.MULTILINE).search(text, at)
    end = found.end() if found else len(text)
    return end, text.count("\n", at, end)


_FOR = re.compile(r"\bfor\s*\(\(([^)]{0,80})\)\)")


def _plain_for(found: re.Match[str]) -> str:
    """`for ((…))` in the words that the reader knows."""
    head = found[1].replace(" ", "")
    if head == ";;":
        return "while true"
    number = re.search(r"<=?(\d{1,9})", head)
    return f"for i in {{1..{number[1] if number else 9}}}"


def read_shell(text: str) -> list[Command]:
    """The commands of a script, in the order in which they are written."""
    reader = _Reader(text)
    text = text[:_LONGEST]
    if "((" in text:
        text = _FOR.sub(_plain_for, text)
    reader.read(text, 0, 0)
    return reader.commands
