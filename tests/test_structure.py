"""Ratchets: names, sentences and sizes of the package may only get better.

`structure.toml` holds the lines and modules that each folder may have. The commit of a feature that
needs more raises the number; one that needs much less lowers it. The figures of
`scripts/code_figures.py` have limits there too, which are only ever lowered.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import satchel
from code_figures import measure

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = Path(satchel.__file__).parent
ROOT = Path(__file__).parent
MIN_USED_SHARE = 0.8
"""The part of its limit that a folder uses at least; below it, the limit must be lowered."""
MIN_SHARED_LINES = 120
MIN_GAIN = 0.1
"""A figure that is better than `MIN_USED_SHARE` of its limit by this much lowers the limit."""
LOADED_BY_NAME = ("satchel.ui.pages.", "satchel.runners._")
"""Routes that the server loads by a list, and programs of their own."""
BANNED = re.compile(
    r"\b(nobody|somebody|whoever|strangers?|told|heard|anew|what became of)\b", re.IGNORECASE
)
UNITS = (
    "S|MS|US|MINUTES|HOURS|DAYS|BYTES|KB|MB|CHARS|WORDS|TOKENS|LINES|ROWS|COLUMNS|PIXELS|PX|COUNT|SHARE|RATIO"
    "|WEIGHT|SCORE|STATUS|CODE|EXIT|VERSION|PORT|MODE|SIGNAL|FLAG|LEVEL|DEPTH|SIZE|LENGTH|BITS|PERCENT|FACTOR"
    "|NS|ID|MASK|FLAGS|BASE|OFFSET|INDEX|NUMBER|ORDER|THRESHOLD|PROBABILITY|COST|STEPS|CALLS|TRIES|ATTEMPTS|ENTRIES|FILES|ITEMS"
)
NAMED_NUMBER = re.compile(rf"_?(?:(?:MAX|MIN|DEFAULT|EXIT|PR|SIG)_?\w+|\w+_(?:{UNITS})|VERSION)")
KERNEL = {"satchel._fs", "satchel.runners._landlock", "satchel.runners.seccomp"}
"""Modules with constants of the kernel under their own names."""


@cache
def modules() -> dict[str, tuple[Path, str, ast.Module]]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        if relative.parts[0] == "system_skills" or "templates" in relative.parts:
            continue
        name = ".".join(("satchel", *relative.with_suffix("").parts)).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8")
        found[name] = (path, text, ast.parse(text))
    return found


def test_a_class_name_exists_once():
    homes = defaultdict(list)
    for name, (_, _, tree) in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(name)
    assert {one: where for one, where in homes.items() if len(where) > 1} == {}


def docstrings() -> Iterator[tuple[str, str]]:
    for name, (_, _, tree) in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text:
                    yield f"{name}.{getattr(node, 'name', '')}".rstrip("."), text


def test_a_docstring_begins_with_a_statement():
    asking = [
        where for where, text in docstrings() if "?" in text.split("\n\n")[0].replace("`?`", "")
    ]
    assert asking == []


def comments() -> Iterator[tuple[str, str]]:
    for name, (_, text, tree) in modules().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield f"{name}:{node.lineno}", node.value.value
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield f"{name}:{token.start[0]}", token.string


def test_docstrings_and_comments_use_plain_words():
    found = [
        f"{where}: {match.group()}" for where, text in comments() if (match := BANNED.search(text))
    ]
    assert found == []


def numbers() -> Iterator[tuple[str, str]]:
    for name, (_, _, tree) in modules().items():
        for node in tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=constant)], value=value):
                    pass
                case ast.AnnAssign(target=ast.Name(id=constant), value=ast.expr() as value):
                    pass
                case _:
                    continue
            if constant.isupper() and is_number(value):
                yield name, constant


def is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case _:
            return False


def test_a_numeric_constant_has_a_subject_and_a_unit():
    found = [(name, one) for name, one in numbers() if not NAMED_NUMBER.fullmatch(one)]
    assert [f"{name}.{one}" for name, one in found if name not in KERNEL] == []


SURGERY = {
    "startswith",
    "endswith",
    "partition",
    "rpartition",
    "removeprefix",
    "removesuffix",
    "split",
}
SENTENCES = {"message", "hint", "reason", "notes", "detail"}


def test_no_code_takes_a_message_apart():
    found = []
    for name, (_, _, tree) in modules().items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(attr=method, value=ast.Attribute(attr=field))) if (
                    method in SURGERY and field in SENTENCES
                ):
                    found.append(f"{name}:{node.lineno}: .{field}.{method}")
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re")),
                    args=[_, ast.Attribute(attr=field), *_],
                ) if field in SENTENCES:
                    found.append(f"{name}:{node.lineno}: re over .{field}")
    assert found == []


def importers() -> dict[str, set[str]]:
    known = modules()
    found = defaultdict(set)
    for name, (_, _, tree) in known.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found[full if full in known else node.module].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(name)
    return found


def test_a_small_module_has_more_than_one_user():
    used = importers()
    small = [
        f"{name}: only {next(iter(used[name]))} imports it"
        for name, (path, text, _) in modules().items()
        if text.count("\n") < MIN_SHARED_LINES
        and len(used[name]) == 1
        and used[name] != {"satchel"}  # a public name
        and path.stem != "__init__"
        and not name.startswith(LOADED_BY_NAME)
    ]
    assert small == []


def limits() -> dict[str, dict[str, float]]:
    return tomllib.loads((ROOT / "structure.toml").read_text(encoding="utf-8"))


def test_code_figures_only_get_better():
    figures = measure(SOURCE)._asdict()
    for name, limit in limits()["figures"].items():
        assert figures[name] <= limit, f"{name}: see `python scripts/code_figures.py src/satchel`"
        assert figures[name] >= limit * MIN_USED_SHARE - MIN_GAIN, f"{name}: lower its limit"


def folder_of(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (SOURCE / parts[1]).is_dir() else "satchel"


def test_a_folder_stays_within_its_limit():
    folders = {name: limit for name, limit in limits().items() if name != "figures"}
    lines: dict[str, int] = defaultdict(int)
    count: dict[str, int] = defaultdict(int)
    for name, (_, text, _) in modules().items():
        lines[folder_of(name)] += text.count("\n")
        count[folder_of(name)] += 1
    assert set(lines) == set(folders)
    for folder, limit in folders.items():
        assert lines[folder] <= limit["lines"], f"{folder}: delete something, or raise its limit"
        assert count[folder] <= limit["modules"], f"{folder}: merge modules, or raise its limit"
        assert lines[folder] >= limit["lines"] * MIN_USED_SHARE, f"{folder}: lower its limit"
