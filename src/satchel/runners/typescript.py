"""TypeScript with a parameter called `arguments`, which a module may not have: it is renamed.

A program is split into tokens and put together again, so that lines keep their numbers.
"""

from __future__ import annotations

import re
from typing import NamedTuple, cast

_TOKEN = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))"
    r"""|(?P<text>"(?:[^"\\\n]|\\(?:.|\Z))*(?:"|(?=\n)|\Z)|'(?:[^'\\\n]|\\(?:.|\Z))*(?:'|(?=\n)|\Z))"""
    r"|(?P<name>[^\W\d][\w$]*|\$[\w$]*)|(?P<number>\d[\w.]*)|(?P<sign>=>|\?\.|\.\.\.|.)",
    re.DOTALL,
)
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\(?:.|\Z)|\$(?!\{))*(?:`|\$\{|\Z)", re.DOTALL)
_REGEX = re.compile(r"/(?![/*])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.){0,500}\]){1,500}/\w*")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_BEFORE_VALUE = frozenset((
    "return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "await", "else", "do",
))  # fmt: skip


class _Token(NamedTuple):
    kind: str
    text: str
    touches: bool
    """Whether nothing is between it and the token before."""


class _Source:
    """The tokens of a program, without spaces, and what is written instead of each."""

    def __init__(self, text: str) -> None:
        self.tokens: list[_Token] = []
        self._pieces: list[str] = []
        self._places: list[int] = []
        """Position in `_pieces` of each token."""
        self._split(text)
        self.tokens += [_Token("end", "", touches=False)] * 3
        self.outer = [len(self.tokens) - 1] * len(self.tokens)
        """The position of the innermost open bracket around each token, else of the end."""
        self.match: dict[int, int] = {}
        """Bracket -> its closing one."""
        stack: list[int] = []
        for at, token in enumerate(self.tokens):
            if token.text in _CLOSES.values() and token.kind == "sign" and stack:
                self.match[stack.pop()] = at
            if stack:
                self.outer[at] = stack[-1]
            if token.text in _CLOSES and token.kind == "sign":
                stack.append(at)

    def _split(self, text: str) -> None:
        at, touches = 0, False
        depths: list[int] = []  # of `{` in each open template
        while at < len(text):
            char = text[at]
            closes = char == "}" and depths and depths[-1] == 0
            found = None
            if char == "`" or closes:
                found = _TEMPLATE.match(text, at + 1)
            elif char == "/" and self._expects_value():
                found = _REGEX.match(text, at)
            found = found or cast("re.Match[str]", _TOKEN.match(text, at))
            kind = found.lastgroup or "text"
            end = found.end()
            piece = text[at:end]
            if closes:
                depths.pop()
            elif depths and piece in "{}" and kind == "sign":
                depths[-1] += 1 if piece == "{" else -1
            if kind == "text" and (char == "`" or closes) and piece.endswith("${"):
                depths.append(0)
            if kind != "space":
                self.tokens.append(_Token(kind, piece, touches))
                self._places.append(len(self._pieces))
            self._pieces.append(piece)
            touches = kind != "space"
            at = end

    def _expects_value(self) -> bool:
        if not self.tokens:
            return True
        before = self.tokens[-1]
        if before.kind == "name":
            return before.text in _BEFORE_VALUE
        return before.kind == "sign" and before.text not in (")", "]", "}")

    def replace(self, at: int, text: str) -> None:
        """Write another text for a token."""
        self._pieces[self._places[at]] = text

    def whole(self) -> str:
        """The program."""
        return "".join(self._pieces)


def rename_arguments(text: str) -> str:
    """The program with another name for a parameter or variable called `arguments`, if any."""
    if not re.search(r"\barguments\b", text):
        return text
    source = _Source(text)
    places = [
        at
        for at, token in enumerate(source.tokens)
        if token == ("name", "arguments", token.touches)
        and (not at or source.tokens[at - 1].text not in (".", "?."))
    ]
    if not any(_binds(source, at) for at in places):
        return text
    name = "args"
    while re.search(rf"\b{name}\b", text):
        name += "_"
    for at in places:
        before, after = source.tokens[at - 1].text, source.tokens[at + 1].text
        around = source.tokens[source.outer[at]].text
        if around != "{" or after not in (":", ",", "}") or before not in ("{", ","):
            source.replace(at, name)
        elif after != ":":  # the short form of a property
            source.replace(at, f"arguments: {name}")
    return source.whole()


def _binds(source: _Source, at: int) -> bool:
    before, after = source.tokens[at - 1].text if at else "", source.tokens[at + 1].text
    if before in ("const", "let", "var") or after == "=>":
        return True
    opened = source.outer[at]
    if source.tokens[opened].text != "(" or before not in ("(", ",", "..."):
        return False
    follows = source.tokens[source.match.get(opened, -2) + 1].text
    return after in (":", "?", "=", ",", ")") and follows in ("=>", "{", ":")
