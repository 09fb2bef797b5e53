"""A skill's files -> HTML that can do nothing. What comes out of here is the only HTML not escaped.

Markdown is rendered without HTML of its own, then cleaned by an allow-list: no script, style,
picture, form or frame is left, and a link goes to a file of the same skill or to the web, with
nothing told about us. Code is coloured by classes. Signs that show nothing are made visible: text
that is hidden from people is written for models.
"""

from __future__ import annotations

import posixpath
import re
import time
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from markupsafe import Markup

from satchel._language import say
from satchel.ui.views.files import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.ui.views.files import Content

    Linker = Callable[[str], str]

MOST_COLOURED = 64_000
"""Characters of code that are coloured; more is shown as it is."""
_LONGEST_LINE = 4_000
"""What has longer lines was made by a program, and is slow to colour."""
MOST_RENDERED = 64_000
"""Characters of Markdown that are rendered; more is shown as it was written."""
_PATIENCE = 0.4
"""Seconds for colours; what is left then has none."""
_MARKDOWN = (".md", ".markdown", ".mdx")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Signs that show nothing or turn the text around. What joins emoji and scripts is none of them."""
_LANGUAGES = {
    "py": "python", "python": "python", "python3": "python", "pyi": "python",
    "js": "javascript", "javascript": "javascript", "mjs": "javascript", "cjs": "javascript",
    "jsx": "javascript", "ts": "typescript", "typescript": "typescript", "tsx": "typescript",
    "sh": "bash", "bash": "bash", "shell": "bash", "zsh": "bash", "console": "console",
    "ps1": "powershell", "powershell": "powershell", "bat": "batch",
    "json": "json", "jsonc": "json", "jsonl": "json", "yaml": "yaml", "yml": "yaml",
    "toml": "toml", "ini": "ini", "cfg": "ini", "conf": "ini", "env": "ini",
    "html": "html", "htm": "html", "xml": "xml", "svg": "xml", "css": "css", "scss": "scss",
    "sql": "sql", "go": "go", "rs": "rust", "rust": "rust", "java": "java", "kt": "kotlin",
    "kotlin": "kotlin", "swift": "swift", "c": "c", "h": "c", "cpp": "cpp", "hpp": "cpp",
    "cc": "cpp", "cs": "csharp", "csharp": "csharp", "rb": "ruby", "ruby": "ruby", "php": "php",
    "lua": "lua", "pl": "perl", "perl": "perl", "r": "r", "diff": "diff", "patch": "diff",
    "dockerfile": "docker", "docker": "docker", "makefile": "make", "make": "make",
    "graphql": "graphql", "proto": "protobuf", "tf": "terraform", "md": "markdown",
    "markdown": "markdown",
}  # fmt: skip
"""How a file ends, or what a fence says -> the lexer. Nothing is guessed from what a text says."""
_TOKENS = (
    ("Comment", "t-com"), ("Literal.String", "t-str"), ("Literal.Number", "t-num"),
    ("Keyword.Type", "t-type"), ("Keyword", "t-key"), ("Operator.Word", "t-key"),
    ("Name.Function", "t-name"), ("Name.Class", "t-type"), ("Name.Tag", "t-tag"),
    ("Name.Attribute", "t-attr"), ("Name.Decorator", "t-attr"), ("Name.Builtin", "t-type"),
    ("Name.Variable", "t-attr"), ("Name.Label", "t-attr"), ("Generic.Heading", "t-head"),
    ("Generic.Subheading", "t-head"), ("Generic.Deleted", "t-del"), ("Generic.Inserted", "t-add"),
    ("Generic.Prompt", "t-com"), ("Generic.Strong", "t-head"), ("Literal", "t-str"),
)  # fmt: skip
"""Kinds of tokens -> our classes; the first that fits counts."""
_TAGS = {
    "a", "blockquote", "br", "code", "dd", "del", "div", "dl", "dt", "em", "h3", "h4", "h5", "h6",
    "hr", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td",
    "th", "thead", "tr", "ul",
}  # fmt: skip
_CLASSES = {"span": {"picture", *(name for _, name in _TOKENS)}}


class Field(NamedTuple):
    """A line of a frontmatter."""

    name: str
    value: str


class Rendered(NamedTuple):
    """A file as a page shows it."""

    fields: tuple[Field, ...]
    html: Markup
    is_prose: bool
    """Rendered as text with headings; else as it was written."""
    hidden: int
    """How many signs that show nothing were made visible."""


def render(content: Content, link: Linker) -> Rendered:
    """A file of a skill as HTML.

    Args:
        content: What was read.
        link: Gives the address of another file of the skill by its path.
    """
    name = content.path.rpartition("/")[2].lower()
    text = content.text
    fields: tuple[Field, ...] = ()
    if name.endswith(_MARKDOWN):
        fields, text = _front(content)
        if len(text) <= MOST_RENDERED:
            shown, hidden = visible(text)
            found = markdown(shown, link, content.path)
            return Rendered(fields, found, is_prose=True, hidden=hidden)
    shown, hidden = visible(text)
    html = code(shown, name.rpartition(".")[2])
    return Rendered(fields, html, is_prose=False, hidden=hidden)


def visible(text: str) -> tuple[str, int]:
    """The text with everything made visible that hides, and how much that was."""
    return _HIDDEN.subn(lambda found: f"⟦U+{ord(found[0]):04X}⟧", text.replace("\r\n", "\n"))


def code(text: str, language: str) -> Markup:
    """Some code with colours, in a block of its own."""
    return Markup(f"<pre><code>{_coloured(text, language)}</code></pre>")  # noqa: S704 - escaped there


def markdown(text: str, link: Linker, path: str = "") -> Markup:
    """Markdown as HTML.

    Args:
        text: What somebody wrote.
        link: Gives the address of another file of the skill.
        path: The file's own path: links in it begin there.
    """
    import nh3

    folder = posixpath.dirname(path)

    def kept(tag: str, attribute: str, value: str) -> str | None:
        if tag != "a" or attribute != "href":
            return value if attribute in {"title", "class", "start", "rel"} else None
        return _address(value, folder, link)

    html = _parser().render(text)
    clean = nh3.clean(
        html,
        tags=_TAGS,
        clean_content_tags={"script", "style"},
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        attribute_filter=kept,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(clean)  # noqa: S704 - cleaned just now


def _address(value: str, folder: str, link: Linker) -> str | None:
    """Where a link may lead: to the web, or to a file of the same skill."""
    if re.match(r"https?://[^\s\\]+\Z", value, re.IGNORECASE):
        return value
    wanted = unquote(re.split(r"[?#]", value, maxsplit=1)[0])
    # A browser takes `\` for `/`, and drops line breaks.
    if not wanted or re.search(r"[\\:\x00-\x1f]", wanted) or wanted.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(folder, wanted))
    return None if path == "." or path.startswith("..") else link(path)


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "highlight": _fence, "maxNesting": 20})
    made.enable(["table", "strikethrough"])

    def picture(_: Any, tokens: Any, at: int, *__: Any) -> str:
        """A picture is named, not fetched: it would tell somebody that we looked."""
        token = tokens[at]
        words = say("picture: {name}", name=token.content or token.attrs.get("src", ""))
        return f'<span class="picture">{escape(words)}</span>'

    def lower(_: Any, tokens: Any, at: int, *__: Any) -> str:
        """A heading of a skill is below those of the page."""
        token = tokens[at]
        level = min(int(token.tag[1]) + 2, 6)
        return f"<{'/' if token.nesting < 0 else ''}h{level}>"

    made.add_render_rule("image", picture)
    made.add_render_rule("heading_open", lower)
    made.add_render_rule("heading_close", lower)
    return made


def _fence(text: str, language: str, _: str) -> str:
    return str(code(text, language.lower()))


def _front(content: Content) -> tuple[tuple[Field, ...], str]:
    """What stands between the `---` lines, and the text below."""
    from satchel.skill.load import parse_document

    if not content.text.lstrip("\ufeff \r\n").startswith("---"):
        return (), content.text
    document = parse_document(content.data, "skill", "SKILL.md", (0, 0, 0))
    if not document.fields:
        return (), content.text
    fields = (
        Field(visible(str(name))[0], visible(plain(value))[0])
        for name, value in document.fields.items()
    )
    return tuple(fields), document.body.encode("utf-8", "replace").decode()


def _coloured(text: str, language: str) -> str:
    lexer = _lexer(_LANGUAGES.get(language, ""))
    if lexer is None or len(text) > MOST_COLOURED:
        return escape(text)
    if max(map(len, text.split("\n"))) > _LONGEST_LINE:
        return escape(text)
    parts: list[str] = []
    until = time.monotonic() + _PATIENCE
    done = 0
    tokens: Any = lexer.get_tokens_unprocessed(text)
    for at, kind, value in tokens:
        if at > done:
            parts.append(escape(text[done:at]))
        done = at + len(value)
        name = _class_of(kind)
        parts.append(f'<span class="{name}">{escape(value)}</span>' if name else escape(value))
        if time.monotonic() > until:
            break
    return "".join(parts) + escape(text[done:])


@cache
def _lexer(name: str) -> Any:
    if not name:
        return None
    from pygments.lexers import (
        get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType]
    )
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(name)
    except ClassNotFound:
        return None  # a Pygments that does not know it yet


@cache
def _class_of(kind: Any) -> str:
    words = ".".join(kind)
    for prefix, name in _TOKENS:
        if words == prefix or words.startswith(f"{prefix}."):
            return name
    return ""
