"""Splits shell scripts into commands: a rough parser for words, quotes, pipes, loops and variables.

It reads enough to recognise `rm "$f"` in a loop over the user's documents. What it cannot resolve
stays as written. Nothing is run.
"""

from __future__ import annotations

import re
from itertools import dropwhile
from typing import NamedTuple

_MAX_WORD_CHARS = 4000
"""In a longer word, variables are not replaced by their values."""
_MAX_VALUE_CHARS = 400
"""Of a variable."""
_MAX_NESTING = 3
"""Of command substitutions."""
_TOKEN = re.compile(
    r"(?P<space>(?:[ \t]|\\\n)+)|(?P<comment>(?<![^\s;|&(])\#[^\n]*)|(?P<end>\n|&&|\|\||;;?)"
    r"|(?P<redirect>&>>?|\d?>>?&?\d?|<<<|<(?![<(]))|(?P<pipe>\|&?)|(?P<background>&)"
    r"|(?P<here><<-?[ \t]*['\"]?\w+['\"]?)"
    r"|(?P<inner>[$<>]\()|(?P<paren>[()])|(?P<single>'[^']*')|(?P<double>\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<piece>\$\{[^}\n]{0,200}\}|\$'[^']*'|\\.|`[^`\n]{0,500}`|\{[^{}\s;|&]{0,80}\}"
    r"|[^\s;|&(){}<>'\"\\$`]+|[^\n])",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w{0,60})=(.*)", re.DOTALL)
_VARIABLE = re.compile(
    r"\$(?:\{([A-Za-z_]\w{0,60}|\d)(?::?[-=]([^}]{0,160}))?[^}]{0,60}\}|([A-Za-z_]\w{0,60}))"
)
_LOOP_INPUT = re.compile(r"\bdone[ \t]*<[ \t]*(?:<\(([^\n]{0,300})\)|<<[ \t]*\"?([^\n]{0,300}))")
_PREFIX_KEYWORDS = frozenset(("then", "do", "else", "elif", "if", "!", "{", "time", "("))
"""Before the name of a command."""
_LOOP_KEYWORDS = frozenset(("for", "while", "until", "select"))
_ENDLESS_CONDITIONS = frozenset((
    ("while", "true"), ("while", ":"), ("while", "1"), ("until", "false"),
))  # fmt: skip
_DECLARATIONS = frozenset(("export", "local", "readonly", "declare", "typeset"))
_ROUND_COUNT = re.compile(r"\{\d+\.\.(\d+)\}|\bseq\s+(?:\d+\s+)?(\d+)|<=?\s*(\d+)")
_MIN_MANY_ROUNDS = 100
_MAX_SUBSTITUTION_CHARS = 4000
_MAX_INNER_PIPELINES = 1000
"""The numbers of the pipelines in a command substitution begin that much higher."""
_UNREPLACED_VARIABLES = frozenset(("HOME", "PWD", "USER"))
_ARITHMETIC_FOR = re.compile(r"\bfor\s*\(\(([^)]{0,80})\)\)")


class ShellCommand(NamedTuple):
    """A simple command."""

    words: tuple[str, ...]
    """Without quotes, and with the values of known variables."""
    line: int
    """0-based."""
    loop: int = 0
    """0: no loop; 1: a loop; 2: a loop with many rounds; 3: an endless loop."""
    pipeline: int = 0
    """Equal for the commands of one pipeline."""
    background: bool = False


class _ShellReader:
    """Reads the commands of one script."""

    def __init__(self, text: str) -> None:
        self.commands: list[ShellCommand] = []
        self._variables: dict[str, str] = {}
        self._loops: list[int] = []
        """Weights of the open loops, as in `ShellCommand.loop`."""
        self._pipeline = 0
        self._loop_inputs = [match[1] or match[2] or "" for match in _LOOP_INPUT.finditer(text)]

    def read(self, text: str, line: int = 0, depth: int = 0) -> None:
        """Add the commands of a text.

        Args:
            text: The script, or a command substitution in it.
            line: Its first line, from 0.
            depth: How many command substitutions are around it.
        """
        words: list[str] = []
        word: str | None = None
        delimiter = ""
        position = 0
        while position < len(text):
            token = _TOKEN.match(text, position)
            if token is None:
                return
            kind, piece = token.lastgroup, token.group()
            position = token.end()
            if kind in {"piece", "single", "double", "inner"}:
                if kind == "inner":
                    end = _find_closing(text, position)
                    inner = text[position : end - 1]
                    piece += inner + ")"
                    self._read_substitution(inner, line, depth)
                    position = end
                word = word or ""
                is_long = len(word) >= _MAX_WORD_CHARS
                word += piece if is_long else self._read_value(piece, kind, line, depth)
                line += piece.count("\n")
                continue
            if word is not None:
                words.append(word)
                word = None
            if kind == "redirect":
                words.append(piece)
            elif kind == "here":
                delimiter = piece.lstrip("<-").strip(" \t'\"")
            elif kind in {"end", "pipe", "background", "paren"}:
                self._finish_command(
                    words, line, piped=kind == "pipe", background=kind == "background"
                )
                words = []
            line += piece.count("\n")
            if delimiter and piece == "\n":
                document_start = position
                position = _find_document_end(text, position, delimiter)
                line += text.count("\n", document_start, position)
                delimiter = ""
        if word is not None:
            words.append(word)
        self._finish_command(words, line, piped=False, background=False)

    def _read_substitution(self, text: str, line: int, depth: int) -> None:
        """Add the commands of a command substitution, as pipelines of their own."""
        if depth < _MAX_NESTING:
            pipeline = self._pipeline
            self._pipeline += _MAX_INNER_PIPELINES
            self.read(text, line, depth + 1)
            self._pipeline = pipeline

    def _read_value(self, piece: str, kind: str, line: int, depth: int) -> str:
        """Return a piece of a word without quotes, and with the values of variables."""
        if kind == "single":
            return piece[1:-1]
        if kind == "double":
            piece = piece[1:-1].replace('\\"', '"')
            if "$(" in piece:
                start = piece.index("$(") + 2
                self._read_substitution(piece[start : _find_closing(piece, start) - 1], line, depth)
        elif piece.startswith("\\"):
            return piece[1:]
        if "$" not in piece:
            return piece
        return _VARIABLE.sub(self._substitute_variable, piece)[: _MAX_VALUE_CHARS * 4]

    def _substitute_variable(self, match: re.Match[str]) -> str:
        name = match[1] or match[3]
        if name in _UNREPLACED_VARIABLES:
            return f"${name}"
        return self._variables.get(name) or match[2] or match.group()

    def _finish_command(
        self, words: list[str], line: int, *, piped: bool, background: bool
    ) -> None:
        """End the command that consists of these words, if there are any."""
        words = [*dropwhile(_PREFIX_KEYWORDS.__contains__, words)]
        if words:
            self._add_command(words, line, background=background)
        if not piped:
            self._pipeline += 1

    def _add_command(self, words: list[str], line: int, *, background: bool) -> None:
        """Add a command; loops and assignments only change the state."""
        first = words[0]
        if first in _LOOP_KEYWORDS:
            self._open_loop(words)
            if first == "for" or len(words) < 2:
                return
            words = words[1:]
        elif first == "done":
            weight = self._loops.pop() if self._loops else 0
            if background:
                self.commands.append(
                    ShellCommand(("done",), line, weight, self._pipeline, background)
                )
            return
        elif first in _DECLARATIONS:
            words = [word for word in words[1:] if not word.startswith("-")] or words
        assigned_count = 0
        for word in words:
            match = _ASSIGNMENT.fullmatch(word)
            if match is None:
                break
            self._variables[match[1]] = match[2][:_MAX_VALUE_CHARS]
            assigned_count += 1
        if assigned_count == len(words):
            return
        weight = max(self._loops, default=0)
        self.commands.append(
            ShellCommand(tuple(words[assigned_count:]), line, weight, self._pipeline, background)
        )

    def _open_loop(self, words: list[str]) -> None:
        head = " ".join(words)
        if words[0] == "for" and len(words) > 3 and words[2] == "in":
            self._variables[words[1]] = " ".join(words[3:])[:_MAX_VALUE_CHARS]
            self._loops.append(_weigh_loop(head))
            return
        if words[0] in {"while", "until"} and "read" in words:
            pipeline = [each for each in self.commands[-4:] if each.pipeline == self._pipeline]
            source = " | ".join(" ".join(command.words) for command in pipeline)
            if not source and self._loop_inputs:
                source = self._loop_inputs.pop(0)
            self._variables[words[-1]] = f"$({source})"[:_MAX_VALUE_CHARS] if source else ""
            self._loops.append(1)
            return
        is_endless = tuple(words[:2]) in _ENDLESS_CONDITIONS
        self._loops.append(3 if is_endless else _weigh_loop(head))


def _weigh_loop(head: str) -> int:
    """Return 2 for a loop with many rounds, else 1."""
    for match in _ROUND_COUNT.finditer(head):
        if int((match[1] or match[2] or match[3])[:9]) >= _MIN_MANY_ROUNDS:
            return 2
    return 1


def _find_closing(text: str, start: int) -> int:
    """Return the position after the bracket that closes the one before `start`."""
    limit = start + _MAX_SUBSTITUTION_CHARS
    depth = 1
    for position in range(start, min(limit, len(text))):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position + 1
    return min(limit, len(text)) + 1


def _find_document_end(text: str, start: int, delimiter: str) -> int:
    """Return the position after a here-document."""
    pattern = re.compile(rf"^[ \t]*{re.escape(delimiter)}[ \t]*$", re.MULTILINE)
    match = pattern.search(text, start)
    return match.end() if match else len(text)


def _rewrite_arithmetic_for(match: re.Match[str]) -> str:
    """Return `for ((…))` as a loop that the parser supports."""
    head = match[1].replace(" ", "")
    if head == ";;":
        return "while true"
    number = re.search(r"<=?(\d{1,9})", head)
    return f"for i in {{1..{number[1] if number else 9}}}"


def read_shell(text: str) -> list[ShellCommand]:
    """Return the commands of a script, in the order of the text."""
    reader = _ShellReader(text)
    if "((" in text:
        text = _ARITHMETIC_FOR.sub(_rewrite_arithmetic_for, text)
    reader.read(text)
    return reader.commands
