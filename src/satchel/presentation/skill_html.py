"""Renders a skill's files as inert HTML. This is the only HTML that templates do not escape.

Markdown is rendered without raw HTML, then sanitised by an allow-list: no script, style, image,
form or frame remains, and a link leads to a file of the same skill or to the web, without a
referrer. Code is coloured by classes. Invisible characters are made visible, since text hidden from
people can address models.
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

from satchel.i18n import say
from satchel.presentation.files import field_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from satchel.presentation.files import FileContent

    Linker = Callable[[str], str]

MAX_COLOURED_CHARS = 64_000
"""Longer code is not coloured."""
_MAX_LINE_CHARS = 4_000
"""Longer lines are generated, and slow to colour."""
_COLOUR_TIMEOUT_S = 0.4
"""The rest of a file has no colours."""
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
"""File suffix or fence language -> lexer. Nothing is guessed from the content."""
_CLASS_BY_TOKEN = (
    ("Comment", "t-com"), ("Literal.String", "t-str"), ("Literal.Number", "t-num"),
    ("Keyword.Type", "t-type"), ("Keyword", "t-key"), ("Operator.Word", "t-key"),
    ("Name.Function", "t-name"), ("Name.Class", "t-type"), ("Name.Tag", "t-tag"),
    ("Name.Attribute", "t-attr"), ("Name.Decorator", "t-attr"), ("Name.Builtin", "t-type"),
    ("Name.Variable", "t-attr"), ("Name.Label", "t-attr"), ("Generic.Heading", "t-head"),
    ("Generic.Subheading", "t-head"), ("Generic.Deleted", "t-del"), ("Generic.Inserted", "t-add"),
    ("Generic.Prompt", "t-com"), ("Generic.Strong", "t-head"), ("Literal", "t-str"),
)  # fmt: skip
"""Token types -> classes; the first match counts."""
MAX_MARKDOWN_CHARS = 64_000
"""Longer Markdown is shown as source."""
_MARKDOWN_ENDINGS = (".md", ".markdown", ".mdx")
_INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""Invisible and bidirectional characters, without joiners of emoji and scripts."""
_ALLOWED_TAGS = {
    "a", "blockquote", "br", "code", "dd", "del", "div", "dl", "dt", "em", "h3", "h4", "h5", "h6",
    "hr", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td",
    "th", "thead", "tr", "ul",
}  # fmt: skip
_ALLOWED_CLASSES = {"span": {"picture", *(css_class for _, css_class in _CLASS_BY_TOKEN)}}


class RenderedFile(NamedTuple):
    """A file as a page shows it."""

    fields: tuple[tuple[str, str], ...]
    """Name and value of each field of the frontmatter."""
    html: Markup
    is_markdown: bool
    line_count: int
    """The number of lines of source; 0 for rendered Markdown."""
    invisible_count: int
    """The number of invisible characters."""


def render_file(content: FileContent, url_for: Linker, *, raw: bool = False) -> RenderedFile:
    """Render a file of a skill as HTML.

    Args:
        content: The file.
        url_for: Returns the URL of another file of the skill by its path.
        raw: Show Markdown as source.
    """
    name = content.path.rpartition("/")[2].lower()
    text = content.text
    fields: tuple[tuple[str, str], ...] = ()
    is_markdown = name.endswith(_MARKDOWN_ENDINGS)
    if is_markdown and not raw:
        fields, text = _split_frontmatter(content)
        if len(text) <= MAX_MARKDOWN_CHARS:
            visible_text, invisible_count = show_invisible(text)
            html = render_markdown(visible_text, url_for, content.path)
            return RenderedFile(fields, html, is_markdown, 0, invisible_count)
    visible_text, invisible_count = show_invisible(text)
    html = render_code(visible_text, name.rpartition(".")[2])
    line_count = visible_text.rstrip("\n").count("\n") + 1
    return RenderedFile(fields, html, is_markdown, line_count, invisible_count)


def show_invisible(text: str) -> tuple[str, int]:
    """Make invisible characters visible; returns the text and their number."""
    return _INVISIBLE_CHARACTERS.subn(
        lambda match: f"⟦U+{ord(match[0]):04X}⟧", text.replace("\r\n", "\n")
    )


def render_code(text: str, language: str) -> Markup:
    """Return a block of coloured code."""
    return Markup(f"<pre><code>{_colour_code(text, language)}</code></pre>")  # noqa: S704 - escaped there


def render_markdown(text: str, url_for: Linker, path: str = "") -> Markup:
    """Render Markdown as HTML.

    Args:
        text: The Markdown.
        url_for: Returns the URL of another file of the skill.
        path: The file's own path, the base of relative links.
    """
    import nh3

    folder = posixpath.dirname(path)

    def filter_attribute(tag: str, attribute: str, value: str) -> str | None:
        if tag != "a" or attribute != "href":
            return value if attribute in {"title", "class", "start", "rel"} else None
        return _resolve_link(value, folder, url_for)

    html = _parser().render(text)
    clean = nh3.clean(
        html,
        tags=_ALLOWED_TAGS,
        clean_content_tags={"script", "style"},
        attributes={"a": {"href", "title"}, "ol": {"start"}},
        attribute_filter=filter_attribute,
        allowed_classes=_ALLOWED_CLASSES,
        url_schemes={"http", "https"},
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(clean)  # noqa: S704 - cleaned just now


def _resolve_link(value: str, folder: str, url_for: Linker) -> str | None:
    """Return the target of a link, on the web or in the same skill; None when it is neither."""
    if re.match(r"https?://[^\s\\]+\Z", value, re.IGNORECASE):
        return value
    target = unquote(re.split(r"[?#]", value, maxsplit=1)[0])
    # A browser treats `\` as `/`, and drops line breaks.
    if not target or re.search(r"[\\:\x00-\x1f]", target) or target.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(folder, target))
    return None if path == "." or path.startswith("..") else url_for(path)


@cache
def _parser() -> Any:
    """Return the parser of Markdown, with rules for images and headings."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt(
        "commonmark", {"html": False, "highlight": _highlight_fence, "maxNesting": 20}
    )
    parser.enable(["table", "strikethrough"])

    def render_image(_: Any, tokens: Any, index: int, *__: Any) -> str:
        """Replace an image by its name: fetching it would reveal the reader."""
        token = tokens[index]
        label = say("picture: {name}", name=token.content or token.attrs.get("src", ""))
        return f'<span class="picture">{escape(label)}</span>'

    def lower_heading(_: Any, tokens: Any, index: int, *__: Any) -> str:
        """Lower a heading below those of the page."""
        token = tokens[index]
        level = min(int(token.tag[1]) + 2, 6)
        return f"<{'/' if token.nesting < 0 else ''}h{level}>"

    parser.add_render_rule("image", render_image)
    parser.add_render_rule("heading_open", lower_heading)
    parser.add_render_rule("heading_close", lower_heading)
    return parser


def _highlight_fence(text: str, language: str, _: str) -> str:
    """Return the HTML of a fenced block of code."""
    return str(render_code(text, language.lower()))


def _split_frontmatter(content: FileContent) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the fields of the frontmatter, and the text below it."""
    from satchel.skill.reader import parse_document

    if not content.text.lstrip("\ufeff \r\n").startswith("---"):
        return (), content.text
    document = parse_document(content.data, "skill", "SKILL.md", (0, 0, 0))
    if not document.fields:
        return (), content.text
    fields = (
        (show_invisible(str(name))[0], show_invisible(field_text(value))[0])
        for name, value in document.fields.items()
        if name not in ("name", "description")  # on top of the page
    )
    return tuple(fields), document.body.encode("utf-8", "replace").decode()


def _colour_code(text: str, language: str) -> str:
    """Return code as escaped HTML, with a class for each token.

    Code that is too long, and the rest of what takes too long, has no colours.

    Args:
        text: The code.
        language: The suffix of its file, or the language of its fence.
    """
    lexer = _find_lexer(_LANGUAGES.get(language, ""))
    if lexer is None or len(text) > MAX_COLOURED_CHARS:
        return escape(text)
    if max(map(len, text.split("\n"))) > _MAX_LINE_CHARS:
        return escape(text)
    parts: list[str] = []
    deadline = time.monotonic() + _COLOUR_TIMEOUT_S
    end = 0
    tokens: Any = lexer.get_tokens_unprocessed(text)
    for start, token_type, value in tokens:
        if start > end:
            parts.append(escape(text[end:start]))
        end = start + len(value)
        css_class = _css_class(token_type)
        html = escape(value)
        parts.append(f'<span class="{css_class}">{html}</span>' if css_class else html)
        if time.monotonic() > deadline:
            break
    return "".join(parts) + escape(text[end:])


@cache
def _find_lexer(name: str) -> Any:
    """Return the lexer of this name; None when there is none."""
    if not name:
        return None
    from pygments.lexers import (
        get_lexer_by_name,  # pyright: ignore[reportUnknownVariableType]
    )
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(name)
    except ClassNotFound:
        return None  # this Pygments lacks the lexer


@cache
def _css_class(token_type: Any) -> str:
    """Return the class of a type of tokens; empty when it has no colour."""
    token_path = ".".join(token_type)
    for prefix, css_class in _CLASS_BY_TOKEN:
        if token_path == prefix or token_path.startswith(f"{prefix}."):
            return css_class
    return ""
