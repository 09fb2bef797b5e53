"""TypeScript that Node does not run as written.

    rename_arguments  a parameter called `arguments`, which a module may not have, gets another name
    strip_types       removes types for a Node that cannot do it itself

A program is split into tokens and put together again, so that lines keep their numbers. Removing
types covers functions, variables, assertions and declarations of types. Everything else (classes
with types, enums) is left and is then no JavaScript: the caller lets Node check the result.
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
_TYPE_PREFIXES = frozenset(("keyof", "typeof", "readonly", "unique", "asserts", "infer"))
_MAX_CLAUSE_TOKENS = 500
"""Of an import or of the head of an interface."""
_OPENS_TYPE = frozenset(("interface", "type"))


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

    def erase(self, start: int, end: int) -> None:
        """Blank out tokens, keeping the line ends."""
        for at in range(start, min(end, len(self._places))):
            piece = self._pieces[self._places[at]]
            self.replace(at, re.sub(r"[^\n]", " ", piece))

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


def strip_types(text: str) -> str:
    """The program without the types that can be removed with certainty."""
    source = _Source(text)
    tokens = source.tokens
    at = 0
    try:
        while tokens[at].kind != "end":
            word = tokens[at].text if tokens[at].kind in ("name", "sign") else ""
            at = max(_strip_at(source, at, word), at + 1)
    except RecursionError:  # types within types: what is left is no JavaScript
        return text
    return source.whole()


def _strip_at(source: _Source, at: int, word: str) -> int:
    """Remove the types that begin at a token; the next token to look at, or 0."""
    tokens = source.tokens
    after = tokens[at + 1].text
    if word == "import" and after not in ("(", "."):
        end = at
        while tokens[end].kind not in ("text", "end") and end - at < _MAX_CLAUSE_TOKENS:
            end += 1
        if after == "type" and tokens[at + 2].text not in ("from", ","):
            source.erase(at, end + 1 + (tokens[end + 1].text == ";"))
        return end + 1
    first = at + 1 if word == "export" else at
    if tokens[first].text in _OPENS_TYPE and tokens[first + 1].kind == "name":
        return _declaration(source, at, first)
    if word == "export" and after == "{":
        return source.match.get(at + 1, at) + 1
    if word in ("const", "let", "var"):
        _annotation(source, at + 1)
    elif word == "function":
        _function(source, at + 1)
    elif word == "catch" and after == "(":
        _parameters(source, at + 1)
    elif word == "(":
        _arrow(source, at)
    elif word in ("as", "satisfies", "!", "<"):
        _after_value(source, at, word)
    return 0


def _declaration(source: _Source, at: int, first: int) -> int:
    """Remove an interface or a type alias."""
    tokens = source.tokens
    if tokens[first].text == "interface":
        limit = min(first + _MAX_CLAUSE_TOKENS, len(tokens) - 1)
        while tokens[first].text != "{" and first < limit:
            first += 1
        end = source.match.get(first, -2) + 1
    else:
        equals = first + 2
        if tokens[equals].text == "<":
            equals = _angle(source, equals)
        end = _type(source, equals + 1) if equals > 0 and tokens[equals].text == "=" else -1
    if end < 0:
        return 0
    end += tokens[end].text == ";"
    source.erase(at, end)
    return end


def _annotation(source: _Source, at: int) -> int:
    """Remove the type after the name or pattern at `at`; the end of both, or -1."""
    tokens = source.tokens
    end = source.match.get(at, -1) + 1 if tokens[at].text in ("{", "[") else at + 1
    if tokens[end].text == "?" and tokens[end + 1].text in (":", ",", ")"):
        source.erase(end, end + 1)
        end += 1
    if tokens[end].text != ":":
        return end
    after = _type(source, end + 1)
    if after > 0:
        source.erase(end, after)
    return after


def _parameters(source: _Source, opened: int) -> None:
    at, end = opened + 1, source.match.get(opened, 0)
    while 0 < at < end:
        at = _annotation(source, at + (source.tokens[at].text == "..."))
        while 0 < at < end and source.tokens[at].text != ",":
            at = source.match.get(at, at) + 1
        at += at > 0


def _function(source: _Source, at: int) -> None:
    tokens = source.tokens
    at += tokens[at].text == "*"
    at += tokens[at].kind == "name"
    if tokens[at].text == "<" and (end := _angle(source, at)) > 0:
        source.erase(at, end)
        at = end
    if tokens[at].text != "(" or at not in source.match:
        return
    _parameters(source, at)
    end = source.match[at] + 1
    if tokens[end].text == ":" and (after := _type(source, end + 1)) > 0:
        source.erase(end, after)


def _arrow(source: _Source, at: int) -> None:
    tokens = source.tokens
    end = source.match.get(at, -2) + 1
    if end < 0:
        return
    if tokens[end].text == "=>":
        _parameters(source, at)
    elif tokens[end].text == ":" and (not at or tokens[at - 1].text != "?"):
        after = _type(source, end + 1)
        if after > 0 and tokens[after].text == "=>":
            _parameters(source, at)
            source.erase(end, after)


def _after_value(source: _Source, at: int, word: str) -> None:
    """Remove `as T`, `satisfies T`, `!` and type arguments after a value."""
    tokens = source.tokens
    before = tokens[at - 1] if at else tokens[-1]
    ends = before.kind in ("name", "text", "number") or before.text in (")", "]", "}")
    if not ends or before.text in _BEFORE_VALUE:
        return
    if word == "!":
        if tokens[at].touches and tokens[at + 1].text in (".", "[", ")", "]", ";", ",", "?."):
            source.erase(at, at + 1)
    elif word == "<":
        end = _angle(source, at) if tokens[at].touches else -1
        if end > 0 and tokens[end].text == "(":
            source.erase(at, end)
    elif tokens[at + 1].kind in ("name", "text") or tokens[at + 1].text in ("{", "[", "("):
        end = _type(source, at + 1)
        if end > 0:
            source.erase(at, end)


# --- types --------------------------------------------------------------------------------
# Each function returns the position after what begins at `at`, or -1 when that is no type.


def _type(source: _Source, at: int) -> int:
    tokens = source.tokens
    at += tokens[at].text in ("|", "&")
    while True:
        at = _primary(source, at)
        if at < 0:
            return -1
        while tokens[at].text == "[" and tokens[at].touches:
            at = source.match.get(at, -2) + 1
            if at < 0:
                return -1
        if tokens[at].text not in ("|", "&", "is") or tokens[at + 1].text == tokens[at].text:
            return at
        at += 1


def _primary(source: _Source, at: int) -> int:
    tokens = source.tokens
    while tokens[at].text in _TYPE_PREFIXES:
        at += 1
    token = tokens[at]
    if token.text in ("{", "[", "("):
        end = source.match.get(at, -2) + 1
        return _type(source, end + 1) if token.text == "(" and tokens[end].text == "=>" else end
    if token.kind in ("text", "number"):
        return at + 1
    if token.kind != "name":
        return -1
    at += 1
    while tokens[at].text == ".":
        at += 2
    return _angle(source, at) if tokens[at].text == "<" else at


def _angle(source: _Source, at: int) -> int:
    tokens = source.tokens
    while tokens[at].text in ("<", ",", "extends", "="):
        at = _type(source, at + 1)
        if at < 0:
            return -1
    return at + 1 if tokens[at].text == ">" else -1
