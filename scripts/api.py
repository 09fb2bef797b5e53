"""Writes the pages of the Python API: one for each class, or for records that are used together.

`api.toml` says which names are on which page. Signatures and texts are those of the source. Each
class and method has an address, and a type that is named becomes a link to its description.
"""

from __future__ import annotations

import ast
import os
import re
import tomllib
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import api_source as source
from api_source import Field, Function
from tables import cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api_source import Docstring, Found

ROOT = source.ROOT
MOST_NAMES = {
    "satchel": 22,
    "satchel.detect": 13,
    "satchel.goals": 14,
    "satchel.agent": 13,
    "satchel.testing": 3,
}
"""The packages, with how many names each may export at most."""
MOST_GROUPS = 10
NO_ARGUMENTS = frozenset(("ChangePlan", "ProgramRunner", "Session", "Snapshot", "Workspace"))
"""Classes that other parts make."""
PLAIN_BASES = frozenset(("ABC", "Exception", "NamedTuple", "Protocol", "TypedDict"))
NAV_START = "    # Python API: written by scripts/reference.py"
NAV_END = "    # end of the Python API"
_WORD = re.compile(r"\w+|[^\w\s]|\s+")
_CODE = re.compile(r"(?<!`)`(\w+)(?:\.(\w+))?(?:\(\))?`(?!`)")
_FENCE = re.compile(r"^```")


class Page(NamedTuple):
    """One page."""

    file: str
    title: str
    names: tuple[str, ...]
    """`package:Name`."""
    guides: tuple[str, ...]
    """Pages that use these names, relative to docs/."""
    fixtures: tuple[str, ...]
    """What tests/docs prepares for the examples."""
    text: str
    """One sentence about a page with several names; the first name's docstring when empty."""


class Group(NamedTuple):
    """Pages with one purpose."""

    title: str
    text: str
    pages: tuple[Page, ...]


class Entry(NamedTuple):
    """A public name."""

    package: str
    name: str
    found: Found
    page: Page

    @property
    def anchor(self) -> str:
        """Where it is described."""
        alone = len(self.page.names) == 1
        return f"{self.page.file}.md" + ("" if alone else f"#{self.name}")


@cache
def _table() -> dict[str, Any]:
    with open(os.path.join(ROOT, "scripts", "api.toml"), "rb") as file:
        return tomllib.load(file)


@cache
def groups() -> tuple[Group, ...]:
    """The groups of the index."""
    return tuple(
        Group(row["title"], row["text"], tuple(map(_page, row["page"])))
        for row in _table()["group"]
    )


def _page(row: dict[str, Any]) -> Page:
    names = tuple(row["names"])
    title = row.get("title", names[0].partition(":")[2])
    fixtures = tuple(row.get("fixtures", ("three-skills",)))
    text = row.get("text", "")
    return Page(row["file"], title, names, tuple(row["guides"]), fixtures, text)


@cache
def entries() -> tuple[Entry, ...]:
    """Every name with a description.

    Raises:
        SystemExit: a name does not exist, or an exported one has no description.
    """
    rows: list[Entry] = []
    for group in groups():
        for page in group.pages:
            for one in page.names:
                package, _, name = one.partition(":")
                found = source.find(package, name)
                if found is None:
                    raise SystemExit(f"error: `{package}.{name}` is not defined")
                rows.append(Entry(package, name, found, page))
    known = {(row.found.module, row.name) for row in rows}
    for package, most in MOST_NAMES.items():
        names = source.exported(package)
        if len(names) > most:
            raise SystemExit(f"error: `{package}` exports {len(names)} names; at most {most}")
        for name in names:
            found = source.find(package, name)
            if found is None or (found.module, name) not in known:
                raise SystemExit(f"error: `{package}.{name}` is missing in scripts/api.toml")
    if len(groups()) > MOST_GROUPS:
        raise SystemExit(f"error: scripts/api.toml has more than {MOST_GROUPS} groups")
    return tuple(rows)


@cache
def _homes() -> dict[tuple[str, str], Entry]:
    return {(row.found.module, row.name): row for row in entries()}


def _entry_of(module: str, name: str) -> Entry | None:
    """The description of a name as a module uses it."""
    found = source.find(module, name)
    if found is not None:
        return _homes().get((found.module, _name_of(found)))
    rows = [row for row in entries() if row.name == name]
    return rows[0] if len(rows) == 1 else None


def _name_of(found: Found) -> str:
    """The name of a definition, which may be imported under another one."""
    node = found.node
    return ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else str(node.name)


def api_pages() -> dict[str, tuple[str, list[str]]]:
    """Title and lines of each page by its file name below docs/reference/python/."""
    pages = {"index.md": ("Python API", list(_index()))}
    for group in groups():
        for page in group.pages:
            pages[f"{page.file}.md"] = (page.title, list(_lines(page)))
    return pages


def navigation(text: str) -> str:
    """`zensical.toml` with the pages of the Python API.

    Raises:
        SystemExit: the file has no place for them.
    """
    before, found, rest = text.partition(NAV_START + "\n")
    _, end, after = rest.partition(NAV_END + "\n")
    if not found or not end:
        raise SystemExit("error: zensical.toml has no place for the Python API")
    lines = ['    { "Python API" = [', '      "reference/python/index.md",']
    for group in groups():
        lines.append(f'      {{ "{group.title}" = [')
        lines += [
            f'        {{ "{page.title}" = "reference/python/{page.file}.md" }},'
            for page in group.pages
        ]
        lines.append("      ] },")
    lines.append("    ] },")
    return before + found + "".join(f"{line}\n" for line in lines) + end + after


# --- pages --------------------------------------------------------------------------------


def _index() -> Iterator[str]:
    yield "These pages describe every public class and function, with parameters and an"
    yield "example. Most programs need only [`Satchel`](satchel.md) and"
    yield "[`Session`](session.md). Each page shows how a name is imported."
    yield "[Versions](../versions.md) says what stays compatible, and for how long."
    yield ""
    yield "The examples run in the [example project](../../assets/example-project.zip), which"
    yield "has three skills. Where an example asks a model, its `assert` compares with the"
    yield "answer of a scripted model; a real one answers in its own words."
    yield ""
    for group in groups():
        yield f"## {group.title}"
        yield ""
        yield group.text
        yield ""
        for page in group.pages:
            rows = [row for row in entries() if row.page == page]
            words = page.text or _summary(rows[0])
            others = ", ".join(f"[`{row.name}`]({row.anchor})" for row in rows[1:])
            yield f"- [{_title(page)}]({page.file}.md): {words}" + (
                f"<br>With {others}." if others else ""
            )
        yield ""


def _title(page: Page) -> str:
    code = page.title == page.names[0].partition(":")[2]
    return f"`{page.title}`" if code else page.title


def _summary(row: Entry) -> str:
    """The first sentence of a description."""
    if isinstance(row.found.node, ast.Assign):
        text = source.alias_words(row.found)
    else:
        text = source.docstring(row.found.node).summary
    if not text:
        raise SystemExit(f"error: `{row.name}` is public and has no docstring")
    sentence = re.split(r"(?<=\.)\s", text, maxsplit=1)[0]
    return sentence.replace("<", "&lt;")


def _lines(page: Page) -> Iterator[str]:
    for fixture in page.fixtures:
        yield f"<!-- fixture: {fixture} -->"
    yield ""
    rows = [row for row in entries() if row.page == page]
    if len(rows) > 1:
        yield from _paragraphs(page.text, rows[0])
        yield _see_also(page)
        yield ""
    for row in rows:
        if len(rows) > 1:
            yield f"## `{row.name}` {{ #{row.name} }}"
            yield ""
        yield from _entry(row, alone=len(rows) == 1)


def _see_also(page: Page) -> str:
    return f"See also {', '.join(map(_guide_link, page.guides))}."


def _guide_link(path: str) -> str:
    """A link to a page, with the page's title, or with the heading that it leads to."""
    file, _, anchor = path.partition("#")
    with open(os.path.join(ROOT, "docs", file), encoding="utf-8") as page:
        headings = [line.lstrip("# ").strip() for line in page if line.startswith("#")]
    found = [one for one in headings if _slug(one) == anchor] if anchor else headings[:1]
    if not found:
        raise SystemExit(f"error: `{path}` in scripts/api.toml leads nowhere")
    label = found[0] if not anchor else f"{headings[0]}: {found[0]}"
    target = os.path.relpath(file, "reference/python").replace(os.sep, "/")
    return f"[{label}]({target}{'#' + anchor if anchor else ''})"


def _slug(heading: str) -> str:
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def _head(row: Entry, text: str) -> Iterator[str]:
    """What a name is, the guides if the page has no other name, and how it is imported."""
    if not text:
        raise SystemExit(f"error: `{row.name}` is public and has no docstring")
    yield from _paragraphs(text, row)
    if len(row.page.names) == 1:
        yield _see_also(row.page)
        yield ""
    yield f"`from {row.package} import {row.name}`"
    yield ""


def _entry(row: Entry, *, alone: bool) -> Iterator[str]:
    node = row.found.node
    if isinstance(node, ast.Assign):
        yield from _alias(row)
    elif isinstance(node, Function):
        doc = source.docstring(node)
        yield from _head(row, doc.text)
        yield from _function(row, row.name, node, doc._replace(text=""))
    else:
        yield from _class(row, alone=alone)


def _alias(row: Entry) -> Iterator[str]:
    node = row.found.node
    yield from _head(row, source.alias_words(row.found))
    yield from _fence("pyi", f"{row.name} = {source.code(node.value)}")
    types = _types(node.value, row.found.module)
    if "](" in types:
        yield f"One of {types}" if "|" in ast.unparse(node.value) else types
        yield ""


def _class(row: Entry, *, alone: bool) -> Iterator[str]:
    node, found = row.found.node, row.found
    doc = source.docstring(node)
    yield from _head(row, doc.text)
    yield from _base_line(row)
    yield from _example(doc)
    init = None if row.name in NO_ARGUMENTS else source.constructor(found)
    functions = _listed(row, source.methods(found))
    inherited = _inherited(row)
    if init is not None:
        yield from _fence("pyi", source.signature(row.name, init, found.module))
        made = source.docstring(init)
        text = made.text.partition("\n\n")[2]  # the first paragraph says that it makes one
        yield from _paragraphs(text, row)
        yield from _parameter_table(row, source.parameters(init), made)
        yield from _outcome(row, init, made)
    own = () if row.name in _table()["described"] else source.fields(found)
    attributes = [field for field in own if _is_listed(row, field.name)]
    attributes += [
        Field(name, one.node.returns, "", source.docstring(one.node).text)
        for name, one in functions.items()
        if "property" in one.decorators and _is_listed(row, name)
    ]
    if attributes:
        yield f"**{'Fields' if source.is_record(found) else 'Attributes'}**"
        yield ""
        yield from _field_table(row, attributes)
    shown = {
        name: one
        for name, one in functions.items()
        if "property" not in one.decorators and name not in inherited
    }
    if alone and shown:
        yield "## Methods"
        yield ""
    for name, one in shown.items():
        yield f"### `{name}` {{ #{row.name}.{name} }}"
        yield ""
        yield from _method(row, name, one)
    if inherited:
        links = ", ".join(inherited.values())
        yield f"**Inherited methods**: {links}"
        yield ""


def _base_line(row: Entry) -> Iterator[str]:
    for name, found in source.bases(row.found):
        base = _entry_of(row.found.module, name)
        if found is None and name not in PLAIN_BASES:
            yield f"A subclass of `{name}` of the framework, whose hooks it implements."
            yield ""
        elif base is not None:
            yield f"A subclass of [`{name}`]({base.anchor})."
            yield ""


def _inherited(row: Entry) -> dict[str, str]:
    """Links to the methods of a base that has a description of its own."""
    links: dict[str, str] = {}
    for name, found in source.bases(row.found):
        base = _entry_of(row.found.module, name)
        if found is None or base is None or not isinstance(found.node, ast.ClassDef):
            continue
        own = {one.name for one in row.found.node.body if isinstance(one, Function)}
        for method, one in _listed(base, source.methods(found)).items():
            shown = method in _table()["only"].get(row.name, ())
            if (method not in own or not shown) and "property" not in one.decorators:
                links[method] = f"[`{method}`]({_method_anchor(base, method)})"
    return links


def _listed(row: Entry, functions: dict[str, source.Method]) -> dict[str, source.Method]:
    only = _table()["only"].get(row.name)
    if only is not None:
        missing = [name for name in only if name not in functions]
        if missing:
            raise SystemExit(f"error: `{row.name}` has no `{missing[0]}`: see scripts/api.toml")
        return {name: functions[name] for name in only}
    hidden = _table()["hidden"].get(row.name, ())
    return {name: one for name, one in functions.items() if name not in hidden}


def _is_listed(row: Entry, name: str) -> bool:
    return name not in _table()["hidden"].get(row.name, ())


def functions(row: Entry) -> Iterator[tuple[str, Any]]:
    """Name and definition of each function of an entry that is described with it."""
    node = row.found.node
    if isinstance(node, Function):
        yield row.name, node
    elif isinstance(node, ast.ClassDef):
        init = None if row.name in NO_ARGUMENTS else source.constructor(row.found)
        if init is not None:
            yield "__init__", init
        inherited = _inherited(row)
        for name, one in _listed(row, source.methods(row.found)).items():
            if name not in inherited:
                yield name, one.node


def _method(row: Entry, name: str, one: source.Method) -> Iterator[str]:
    doc = source.docstring(one.node)
    if not doc.text:
        raise SystemExit(f"error: `{row.name}.{name}` is public and has no docstring")
    yield from _function(row, name, one.node, doc)
    if one.twin:
        yield f"`await a{name}(…)` is the same without blocking the event loop."
        yield ""


def _function(row: Entry, name: str, node: Any, doc: Docstring) -> Iterator[str]:
    decorators = source.Method(node).decorators
    start = f"{row.name}." if decorators & {"classmethod", "staticmethod"} else ""
    yield from _fence("pyi", source.signature(start + name, node, row.found.module))
    yield from _paragraphs(doc.text, row)
    yield from _parameter_table(row, source.parameters(node), doc)
    yield from _outcome(row, node, doc)
    yield from _example(doc)


def _parameter_table(row: Entry, given: list[Field], doc: Docstring) -> Iterator[str]:
    names = {field.name.lstrip("*") for field in given}
    wrong = sorted(set(doc.arguments) - names)
    if wrong:
        raise SystemExit(f"error: `{row.name}` has no parameter `{wrong[0]}`")
    if given:
        yield from _field_table(row, described(row, given), "Parameter")


def described(row: Entry, given: list[Field]) -> list[Field]:
    """The parameters; one without words has those of the same parameter of another method."""
    if not isinstance(row.found.node, ast.ClassDef):
        return given
    known = dict(source.docstring(row.found.node).arguments)
    for one in source.methods(row.found).values():
        known |= source.docstring(one.node).arguments
    return [
        field if field.words else field._replace(words=known.get(field.name.lstrip("*"), ""))
        for field in given
    ]


def _field_table(row: Entry, given: Iterable[Field], head: str = "Name") -> Iterator[str]:
    yield '<div class="api" markdown>'
    yield ""
    given = list(given)
    has_words = any(field.words for field in given)
    yield f"| {head} | Type |" + " Meaning |" * has_words
    yield "| --- | --- |" + " --- |" * has_words
    for field in given:
        words = cell(_prose(" ".join(field.words.split()), row))
        types = _types(field.annotation, row.found.module, field.default)
        yield f"| `{field.name}` | {types} |" + f" {words} |" * has_words
    yield ""
    yield "</div>"
    yield ""


def _outcome(row: Entry, node: Any, doc: Docstring) -> Iterator[str]:
    returns = _types(node.returns, row.found.module) if node.returns is not None else ""
    if doc.returns or "](" in returns:
        words = f": {_prose(doc.returns, row)}" if doc.returns else ""
        yield f"**Returns** {returns}{words}"
        yield ""
    if doc.raises:
        yield "**Raises**"
        yield ""
        for name, words in doc.raises.items():
            yield f"- [`{name}`](../errors.md): {_prose(words, row)}"
        yield ""


def _example(doc: Docstring) -> Iterator[str]:
    if doc.example:
        yield from _fence("python", doc.example)


def _fence(language: str, text: str) -> Iterator[str]:
    yield f"```{language}"
    yield from text.splitlines()
    yield "```"
    yield ""


# --- words and types ----------------------------------------------------------------------


def _paragraphs(text: str, row: Entry) -> Iterator[str]:
    if text:
        yield from _prose(text, row).splitlines()
        yield ""


def _prose(text: str, row: Entry) -> str:
    """Text of a docstring, in which names with a description are links."""
    parts = re.split(r"(`[^`]*`)", text)
    for at, part in enumerate(parts):
        if at % 2 == 0:
            parts[at] = part.replace("<", "&lt;").replace("[", "&#91;")
        elif match := _CODE.fullmatch(part):
            target = _target(row, match[1], match[2])
            parts[at] = f"[{part}]({target})" if target else part
    return "".join(parts)


def _target(row: Entry, name: str, member: str | None) -> str:
    """Where `Name`, `Name.method` or a method of the same class is described."""
    entry = _entry_of(row.found.module, name)
    if entry is not None and member is None:
        return "" if entry == row else entry.anchor
    if entry is None and member is None and isinstance(row.found.node, ast.ClassDef):
        entry, member = row, name
    if entry is None or member is None or not isinstance(entry.found.node, ast.ClassDef):
        return ""
    found = _listed(entry, source.methods(entry.found)).get(member)
    if found is None:
        return "" if entry == row else entry.anchor
    if "property" in found.decorators or member in _inherited(entry):
        return "" if entry == row else entry.anchor
    return _method_anchor(entry, member)


def _method_anchor(entry: Entry, method: str) -> str:
    return f"{entry.page.file}.md#{entry.name}.{method}"


def _types(annotation: ast.expr | None, module: str, default: str = "") -> str:
    """A type as code, in which names with a description are links, and a default."""
    if annotation is None:
        return ""
    kept = {row.name for row in entries()}
    text = source.spelled_out(annotation, module, kept)
    parts: list[str] = []
    for word in _WORD.findall(text):
        found = source.find(module, word) if word.isidentifier() else None
        entry = _homes().get((found.module, _name_of(found))) if found is not None else None
        parts.append(f"[{word}]({entry.anchor})" if entry is not None else _escaped(word))
    default = re.sub(r"field\(default=(\w+).*\)", r"\1", default)
    return f"<code>{''.join(parts)}{_escaped(f' = {default}') if default else ''}</code>"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(sign, sign) for sign in text)


_ESCAPES = {sign: f"&#{ord(sign)};" for sign in "|[]*_<>`"}
