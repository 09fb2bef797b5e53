"""What is in a page? Parsed, so that a hostile text counts by what it became, not by how it looks.

`check` fails when a page has an element or an attribute that no template of ours has, or one of
ours that could do something: a script that is not ours, a handler, a link that is no link.
"""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import satchel.ui

EVIL = (
    '"\'><x-evil evil="1" onmouseover=alert(1)><script>alert(1)</script>'
    "<img src=x onerror=alert(1)><a href='javascript:alert(1)'>x</a></textarea></title></style>"
    "{{7*7}}{% raw %}<!--"
)
"""Ends every context a template could have put it in."""
_SVG = {
    "svg", "g", "path", "rect", "line", "text", "tspan", "title", "desc", "circle", "polygon",
    "polyline", "marker", "defs", "ellipse",
}  # fmt: skip
_RENDERED = {
    "a", "blockquote", "br", "code", "dd", "del", "div", "dl", "dt", "em", "h3", "h4", "h5", "h6",
    "hr", "li", "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td",
    "th", "thead", "tr", "ul",
}  # fmt: skip
_DRAWN = {
    "viewbox", "width", "height", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry",
    "d", "points", "text-anchor", "fill", "stroke", "stroke-width", "transform", "class", "id",
    "role", "aria-label", "aria-labelledby", "xmlns", "dy", "dx", "markerwidth", "markerheight",
    "refx", "refy", "orient", "marker-end", "preserveaspectratio", "rel", "href", "start", "title",
    "dominant-baseline", "stroke-dasharray", "font-size", "font-weight", "tabindex", "focusable",
    "aria-hidden", "font-family", "lang",
}  # fmt: skip
_ADDRESSES = (
    "href", "src", "action", "formaction", "hx-get", "hx-post", "hx-delete", "hx-push-url",
    "poster", "data", "xlink:href",
)  # fmt: skip
_NEVER = ("style", "srcdoc", "ping", "background", "evil", "srcset")


@cache
def _known() -> tuple[frozenset[str], frozenset[str]]:
    """The elements and attributes of our templates."""
    tags, attributes = {"html", *_SVG, *_RENDERED}, set(_DRAWN)
    for path in (Path(satchel.ui.__file__).parent / "templates").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        tags |= {tag.lower() for tag in re.findall(r"<([a-zA-Z][\w-]*)", text)}
        attributes |= {one.lower() for one in re.findall(r"[\s}\"']([a-zA-Z][\w:-]*)=[\"'{]", text)}
        plain = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\"[^\"]*\"|'[^']*'", " ", text, flags=re.DOTALL)
        for inside in re.findall(r"<[a-zA-Z][^<>]*>", plain):
            attributes |= {one.lower() for one in re.findall(r"\s([a-z][\w:-]*)", inside)}
    attributes |= set(
        re.findall(r"\b(?:checked|selected|disabled|required|open|multiple|hidden)\b", "checked "
                   "selected disabled required open multiple hidden")
    )  # fmt: skip
    return frozenset(tags), frozenset(attributes)


class Page(HTMLParser):
    """A page taken apart."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._script = False
        self.inline: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._script = tag in {"script", "style"}

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        (self.inline if self._script else self.words).append(data)

    def handle_comment(self, data: str) -> None:
        assert "alert" not in data
        assert "x-evil" not in data

    @property
    def text(self) -> str:
        return "".join(self.words)


def check(text: str) -> Page:
    """Fail when a page holds what no template of ours put there."""
    page = Page(text)
    tags, attributes = _known()
    assert not "".join(page.inline).strip(), page.inline
    for tag, found in page.elements:
        assert tag in tags, f"<{tag}> is no element of ours"
        for name, value in found.items():
            assert name in attributes, f"{name}= in <{tag}> is no attribute of ours"
            assert not name.startswith(("on", "hx-on")), f"{name}= in <{tag}>"
            assert name not in _NEVER, f"{name}= in <{tag}>"
            if name in _ADDRESSES and not (name == "hx-push-url" and value in {"true", "false"}):
                _address(tag, name, value, found)
        if tag == "script":
            assert found.get("src", "").startswith("/static/"), found
        if tag in {"img", "link"}:
            assert found.get("src", found.get("href", "")).startswith("/static/"), found
    return page


def _address(tag: str, name: str, value: str, found: dict[str, str]) -> None:
    if re.match(r"https?://", value):
        assert tag == "a", f"<{tag} {name}={value}>"
        assert {"noopener", "noreferrer", "nofollow"} <= set(found.get("rel", "").split()), found
        return
    assert value == "" or re.match(r"/(?!/|\\)|[#?]", value), f"<{tag} {name}={value}>"
