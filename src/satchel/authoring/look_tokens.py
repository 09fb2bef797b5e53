"""What does a program in JavaScript, TypeScript, Go or C look like? Cut into tokens, never run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from satchel._language import say
from satchel.authoring.sources import Look, Spot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from satchel.authoring.sources import Source


class Token(NamedTuple):
    """A word, a string or a mark."""

    kind: str
    """`word`, `text` or `mark`."""
    value: str
    line: int
    path: str
    inner: str = ""
    """Of a template: what is filled in."""


_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
    |(?P<raw>`(?:\\.|[^`\\])*`)
    |(?P<word>[A-Za-z_$][\w$]*|\d[\w.]*)
    |(?P<mark>===|!==|==|!=|=>|:=|&&|\|\||[^\w\s])""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n]){0,60}\]|[^/\\\n\[]){1,120}/[a-z]*")
_BEFORE_REGEX = frozenset("(,=:[!&|?{};+") | {"return", "=>", "&&", "||", "==", "==="}
_FILLED = re.compile(r"\$\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_FIELD = re.compile(r"%[-+# 0]*[\d.]*[a-zA-Z]")
_ESCAPE = re.compile(r"\\(.)")
_FAILS = re.compile(
    r"^(?:fail|refuse|reject|deny|failure|refused|failed|problem|error_?(?:result|response|reply)|fail\w+)$",
    re.IGNORECASE,
)
"""Functions that make an error of their first text."""
_STRANGE = {"node": ("message", "stack"), "go": ("Error",), "binary": ()}


def tokens(source: Source, runtime: str) -> list[Token]:
    """Words, strings and marks of a file; comments are left out."""
    text, found, at, line = source.text, list[Token](), 0, 1
    while at < len(text):
        last = found[-1].value if found else "("
        match = None
        if runtime == "node" and text[at] == "/" and last in _BEFORE_REGEX:
            match = _REGEX.match(text, at)
            if match is not None:
                found.append(Token("word", "/regex/", line, source.path))
        if match is None:
            match = _TOKEN.match(text, at)
            if match is None:
                line += text[at] == "\n"
                at += 1
                continue
            _keep(match, line, source.path, runtime, found)
        line += match.group().count("\n")
        at = match.end()
    return found


def _keep(match: re.Match[str], line: int, path: str, runtime: str, found: list[Token]) -> None:
    kind, value = match.lastgroup or "", match.group()
    if kind == "text":
        plain = _ESCAPE.sub(r"\1", value[1:-1])
        plain = _FIELD.sub("…", plain) if runtime != "node" else plain
        found.append(Token("text", plain, line, path))
    elif kind == "raw":
        inner = " ".join(_FILLED.findall(value)) if runtime == "node" else ""
        plain = _FILLED.sub("…", value[1:-1]) if runtime == "node" else value[1:-1]
        found.append(Token("text", plain, line, path, inner))
    elif kind in {"word", "mark"}:
        found.append(Token(kind, value, line, path))


def look(files: Sequence[Source], runtime: str) -> Look:
    """Look at the files of a program, the entry first."""
    found = [token for source in files for token in tokens(source, runtime)]
    words = {token.value for token in found if token.kind == "word"}
    texts = {token.value for token in found if token.kind == "text"}
    entry = files[0].path
    errors, leaks = _errors(found, runtime)
    if runtime == "binary":
        return Look(errors=tuple(errors), leaks=tuple(leaks))
    return Look(
        reads=_reads(found, words, runtime, entry),
        writes=_writes(found, words, texts, runtime, entry),
        loud=tuple(_loud(found, runtime)),
        errors=tuple(errors),
        leaks=tuple(leaks),
        guarded=_guarded(found, words, runtime),
        writes_files=bool(words & {
            "writeFile", "writeFileSync", "createWriteStream", "appendFile", "appendFileSync",
            "WriteFile", "OpenFile", "Create",
        }),
        looks_first=bool(words & {
            "existsSync", "statSync", "stat", "access", "accessSync", "lstatSync", "Stat", "Lstat",
            "O_EXCL", "wx",
        }) or bool(texts & {"wx"}),
    )  # fmt: skip


def _sequence(found: list[Token], *wanted: str) -> Iterator[int]:
    """Where some values follow each other; the index of the first."""
    first, size = wanted[0], len(wanted)
    for at, token in enumerate(found):
        if token.value == first and token.kind != "text":
            values = tuple(item.value for item in found[at : at + size])
            if values == wanted:
                yield at


def _reads(found: list[Token], words: set[str], runtime: str, entry: str) -> Spot | None:
    parses = bool(words & {"Unmarshal", "NewDecoder"}) or any(
        _sequence(found, "JSON", ".", "parse")
    )
    if runtime == "go":
        for at in _sequence(found, "ReadAll", "(", "os", ".", "Stdin"):
            return Spot(_to_its_end("ReadAll(os.Stdin)"), found[at].path, found[at].line)
        return _unread(entry, reads="Stdin" in words, parses=parses)
    for at in _sequence(found, "readFileSync", "("):
        after = found[at + 2].value if at + 2 < len(found) else ""
        if after in {"0", "/dev/stdin"}:
            return Spot(_to_its_end(f"readFileSync({after})"), found[at].path, found[at].line)
    texts = {token.value for token in found if token.kind == "text"}
    if "end" in texts and "data" in texts and "createInterface" not in words:
        at = next(token for token in found if token.kind == "text" and token.value == "end")
        return Spot(_to_its_end('on("end")'), at.path, at.line)
    return _unread(entry, reads="stdin" in words, parses=parses)


def _unread(entry: str, *, reads: bool, parses: bool) -> Spot | None:
    if not reads:
        return Spot(say("It never reads stdin"), entry, 1)
    return None if parses else Spot(say("It never parses the line that it reads"), entry, 1)


def _to_its_end(part: str) -> str:
    return say(
        "It reads stdin to its end, which never comes for a warm process: `{part}`", part=part
    )


def _writes(
    found: list[Token], words: set[str], texts: set[str], runtime: str, entry: str
) -> Spot | None:
    if runtime == "go":
        for at in _sequence(found, "SetIndent"):
            return Spot(
                say("It writes JSON over several lines: `{part}`", part="SetIndent"),
                found[at].path,
                found[at].line,
            )
        if not words & {"Marshal", "NewEncoder"}:
            return Spot(say("It never writes JSON"), entry, 1)
        tagged = " ".join(texts)
        missing = [
            key for key in ("error", "output") if f'"{key}' not in tagged and key not in texts
        ]
        return Spot(say("Its answer has no `{key}`", key=missing[0]), entry, 1) if missing else None
    if not any(_sequence(found, "JSON", ".", "stringify")):
        return Spot(say("It never writes JSON"), entry, 1)
    for at in _sequence(found, "console", ".", "log", "(", "JSON", ".", "stringify", "("):
        if len(_arguments(found, at + 7)) > 2:
            return Spot(
                say("It writes JSON over several lines: `{part}`", part="JSON.stringify"),
                found[at].path,
                found[at].line,
            )
    missing = [key for key in ("error", "output") if key not in words and key not in texts]
    return Spot(say("Its answer has no `{key}`", key=missing[0]), entry, 1) if missing else None


def _arguments(found: list[Token], at: int) -> list[list[Token]]:
    """The arguments of a call; `at` is its opening parenthesis."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found[at:]:
        if token.kind == "mark" and token.value in "([{":
            depth += 1
            if depth == 1:
                continue
        elif token.kind == "mark" and token.value in ")]}":
            depth -= 1
            if depth == 0:
                break
        elif token.kind == "mark" and token.value == "," and depth == 1:
            parts.append([])
            continue
        parts[-1].append(token)
    return [part for part in parts if part]


def _loud(found: list[Token], runtime: str) -> Iterator[Spot]:
    """Writing of a sentence to stdout."""
    if runtime == "go":
        calls = [("fmt", ".", name, "(") for name in ("Println", "Printf", "Print")]
    else:
        calls = [("console", ".", name, "(") for name in ("log", "info", "debug")]
        calls.append(("process", ".", "stdout", ".", "write", "("))  # pyright: ignore[reportArgumentType]
    for call in calls:
        for at in _sequence(found, *call):
            inside = _arguments(found, at + len(call) - 1)
            first = inside[0][0] if inside else None
            is_text = first is not None and first.kind == "text" and first.value.strip()
            if first is None or (is_text and not first.value.lstrip().startswith("{")):
                shown = "".join(call[:-1]) + (f'("{first.value[:30]}")' if first else "()")
                yield Spot(
                    say("Something else is written to stdout: `{part}`", part=shown),
                    found[at].path,
                    found[at].line,
                )


def _guarded(found: list[Token], words: set[str], runtime: str) -> bool:
    if runtime == "go":
        return "defer" in words and any(_sequence(found, "recover", "("))
    return {"try", "catch"} <= words or any(_sequence(found, ".", "catch", "("))


# --- errors -------------------------------------------------------------------------------


def _errors(found: list[Token], runtime: str) -> tuple[list[Spot], list[Spot]]:
    """Texts of errors, and places where another's error is shown."""
    caught = _caught(found, runtime)
    own = {found[at + 1].value for at in _sequence(found, "class") if at + 1 < len(found)}
    texts: list[Spot] = []
    leaks: list[Spot] = []
    for at, inside in _expressions(found, runtime, own):
        strings = [token for token in inside if token.kind == "text"]
        named = {token.value for token in inside if token.kind == "word"}
        named |= {
            word for token in strings for word in re.findall(r"[A-Za-z_$][\w$]*", token.inner)
        }
        strange = sorted(named & caught)
        if (strange and not _known(found, at, strange[0], own)) or named & {"strerror"}:
            shown = "".join(token.value for token in inside)[:60]
            leaks.append(Spot(f"`{shown}`", found[at].path, found[at].line))
        text = _joined(inside)
        if text.strip(" …"):
            texts.append(Spot(text, found[at].path, found[at].line))
    return texts, leaks


def _joined(inside: list[Token]) -> str:
    """The text of an expression: strings with `…` for everything between them."""
    strings = [token for token in inside if token.kind == "text"]
    if not strings:
        return ""
    plus = any(token.value == "+" for token in inside)
    if not plus:
        return strings[0].value
    parts: list[str] = []
    for token in inside:
        if token.kind == "text":
            parts.append(token.value)
        elif token.value != "+" and (not parts or parts[-1] != "…"):
            parts.append("…")
    return "".join(parts)


def _expressions(
    found: list[Token], runtime: str, own: set[str]
) -> Iterator[tuple[int, list[Token]]]:
    """What becomes an error: values of `error`, and what failing functions and classes are given.

    An `Error` that is thrown is not one yet: who catches it decides what is said.
    """
    for at, token in enumerate(found[:-2]):
        after = found[at + 1]
        is_key = token.value in ({"error", "Error"} if runtime == "go" else {"error"})
        if is_key and after.kind == "mark" and after.value in {":", "="}:
            yield at, list(_until_end(found, at + 2))
        elif token.kind == "word" and after.value == "(":
            before = found[at - 1].value if at else ""
            made = before == "new" and found[at - 2].value == "throw" and token.value in own
            if before in {"function", "func", "void"}:
                continue
            if made or (_FAILS.match(token.value) and before != "."):
                inside = _arguments(found, at + 1)
                if inside and runtime == "node":
                    yield at, inside[0]
                elif inside:
                    yield at, [item for part in inside for item in part]


def _until_end(found: list[Token], at: int) -> Iterator[Token]:
    depth = 0
    for token in found[at : at + 60]:
        if token.kind == "mark":
            if token.value in "([{":
                depth += 1
            elif token.value in ")]}":
                depth -= 1
            if depth < 0 or (depth == 0 and token.value in ",;"):
                return
        yield token


def _caught(found: list[Token], runtime: str) -> set[str]:
    """Names that hold somebody else's error."""
    if runtime == "go":
        names = {"err"} if any(token.value == "err" for token in found) else set[str]()
        return names | {found[at - 2].value for at in _sequence(found, "recover", "(") if at > 1}
    if runtime == "node":
        return {found[at + 2].value for at in _sequence(found, "catch", "(") if at + 2 < len(found)}
    return set()


def _known(found: list[Token], at: int, name: str, own: set[str]) -> bool:
    """Whether it was just asked if the error is one of the author's own."""
    near = found[max(0, at - 16) : at]
    return any(
        token.value == "instanceof"
        and near[index - 1].value == name
        and index + 1 < len(near)
        and near[index + 1].value in own
        for index, token in enumerate(near)
        if index
    )
