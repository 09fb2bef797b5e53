"""Reads JavaScript and TypeScript: renames a parameter called `arguments`, and lists imports.

A module of TypeScript may not have such a parameter. A program is split into tokens and put
together again, so that lines keep their numbers.
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
        for index, token in enumerate(self.tokens):
            if token.text in _CLOSES.values() and token.kind == "sign" and stack:
                self.match[stack.pop()] = index
            if stack:
                self.outer[index] = stack[-1]
            if token.text in _CLOSES and token.kind == "sign":
                stack.append(index)

    def _split(self, text: str) -> None:
        position, touches = 0, False
        depths: list[int] = []  # of `{` in each open template
        while position < len(text):
            closes = text[position] == "}" and bool(depths) and depths[-1] == 0
            in_template = text[position] == "`" or closes
            match = self._match(text, position, in_template=in_template)
            kind = match.lastgroup or "text"
            end = match.end()
            piece = text[position:end]
            if closes:
                depths.pop()
            elif depths and piece in "{}" and kind == "sign":
                depths[-1] += 1 if piece == "{" else -1
            if kind == "text" and in_template and piece.endswith("${"):
                depths.append(0)
            if kind != "space":
                self.tokens.append(_Token(kind, piece, touches))
                self._places.append(len(self._pieces))
            self._pieces.append(piece)
            touches = kind != "space"
            position = end

    def _match(self, text: str, position: int, *, in_template: bool) -> re.Match[str]:
        """The token at a position: a part of a template, a regular expression or another one."""
        match = None
        if in_template:
            match = _TEMPLATE.match(text, position + 1)
        elif text[position] == "/" and self._expects_value():
            match = _REGEX.match(text, position)
        return match or cast("re.Match[str]", _TOKEN.match(text, position))

    def _expects_value(self) -> bool:
        if not self.tokens:
            return True
        before = self.tokens[-1]
        if before.kind == "name":
            return before.text in _BEFORE_VALUE
        return before.kind == "sign" and before.text not in (")", "]", "}")

    def replace(self, index: int, text: str) -> None:
        """Write another text for a token."""
        self._pieces[self._places[index]] = text

    def whole(self) -> str:
        """The program."""
        return "".join(self._pieces)


def module_specifiers(text: str) -> list[tuple[str, bool]]:
    """What a program imports or requires by a constant name, and whether it can do without.

    Imports of types do not count. What is required directly in a `try` is optional.
    """
    source = _Source(text)
    tokens = source.tokens
    specifiers: list[tuple[str, bool]] = []
    types_only = False
    for index, token in enumerate(tokens):
        if token.kind == "name" and token.text in ("import", "export"):
            follows = tokens[index + 1]
            types_only = follows.text == "type" and tokens[index + 2].text not in ("from", ",", "=")
        if token.kind != "text" or token.text[0] == "`" or not index:
            continue
        called = _is_loaded_by_call(tokens, index)
        if called or (tokens[index - 1].text in ("from", "import") and not types_only):
            opened = source.outer[source.outer[index]] if called else source.outer[index]
            tried = tokens[opened].text == "{" and opened and tokens[opened - 1].text == "try"
            specifiers.append((token.text[1:-1], bool(tried)))
    return specifiers


def _is_loaded_by_call(tokens: list[_Token], index: int) -> bool:
    """Whether a text is the first argument of `require(…)` or `import(…)`."""
    if index < 2 or tokens[index - 1].text != "(":
        return False
    if tokens[index - 2].text not in ("require", "import"):
        return False
    is_method = index > 2 and tokens[index - 3].text in (".", "?.")
    return not is_method and tokens[index + 1].text in (")", ",")


def rename_arguments(text: str) -> str:
    """The program with another name for a parameter or variable called `arguments`, if any."""
    if not re.search(r"\barguments\b", text):
        return text
    source = _Source(text)
    places = [
        index
        for index, token in enumerate(source.tokens)
        if token == ("name", "arguments", token.touches)
        and (not index or source.tokens[index - 1].text not in (".", "?."))
    ]
    if not any(_binds(source, index) for index in places):
        return text
    name = "args"
    while re.search(rf"\b{name}\b", text):
        name += "_"
    for index in places:
        before, after = source.tokens[index - 1].text, source.tokens[index + 1].text
        around = source.tokens[source.outer[index]].text
        if around != "{" or after not in (":", ",", "}") or before not in ("{", ","):
            source.replace(index, name)
        elif after != ":":  # the short form of a property
            source.replace(index, f"arguments: {name}")
    return source.whole()


def _binds(source: _Source, index: int) -> bool:
    before, after = source.tokens[index - 1].text if index else "", source.tokens[index + 1].text
    if before in ("const", "let", "var") or after == "=>":
        return True
    opened = source.outer[index]
    if source.tokens[opened].text != "(" or before not in ("(", ",", "..."):
        return False
    follows = source.tokens[source.match.get(opened, -2) + 1].text
    return after in (":", "?", "=", ",", ")") and follows in ("=>", "{", ":")
