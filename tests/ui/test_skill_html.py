"""Text of skills becomes inert HTML."""

from __future__ import annotations

import re
import time

import pytest

from satchel.presentation.skill_html import (
    MAX_MARKDOWN_CHARS,
    render_code,
    render_markdown,
    show_invisible,
)
from ui_dom import Page

ALLOWED = {"href", "rel", "title", "class", "start"}
BARRED = {"script", "style", "img", "iframe", "object", "embed", "form", "input", "svg", "math",
          "link", "meta", "base", "video", "audio", "button", "template", "textarea"}  # fmt: skip


def link(path: str) -> str:
    return f"/skill/file?path={path}"


def harmless(html: str) -> None:
    """No tag, attribute or address that could do anything."""
    for tag, attributes in Page(html).elements:
        assert tag not in BARRED, html
        assert attributes.keys() <= ALLOWED, html
        address = attributes.get("href")
        if address is not None:
            assert re.match(r"https?://|/skill/file\?path=(?!/|\.\.)", address), html
            assert attributes["rel"] == "noopener noreferrer nofollow"


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<style>*{display:none}</style>",
    "<form action=/skills/remove><button>Go</button></form>",
    "<a href=javascript:alert(1)>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox(1))",
    "[x](file:///etc/passwd)",
    "[x](//evil.example/a)",
    "[x](\\\\evil.example\\a)",
    "[x](/leave)",
    "[x](/skills/remove?ref=a)",
    "[x](../../../etc/passwd)",
    "[x](%2e%2e/%2e%2e/secret)",
    "[x](https://evil.example/ 'onclick=\"alert(1)\"')",
    '[x](https://e.example/"onmouseover="alert(1))',
    "![x](https://evil.example/pixel.png)",
    '![x" onerror="alert(1)](y)',
    "![<script>](javascript:alert(1))",
    "<https://e.example/<script>alert(1)</script>>",
    "<javascript:alert(1)>",
    "[a]: javascript:alert(1)\n\n[a]",
    "```<script>\nalert(1)\n```",
    "```html\n<script>alert(1)</script>\n```",
    '```python "onload=alert(1)\nx = "</code></pre><script>alert(1)</script>"\n```',
    "`<script>alert(1)</script>`",
    "# <b onclick=alert(1)>x</b>",
    "| <script> | b |\n|:-:|--|\n| <img src=x onerror=alert(1)> | c |",
    "<!-- --><script>alert(1)</script><!-- -->",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "</div></main></body><script>alert(1)</script>",
    "<a href='https://e.example' style='position:fixed;inset:0' target=_top>x</a>",
    "<base href=https://evil.example/>",
)


def test_hostile_markdown_and_code_can_do_nothing():
    for text in HOSTILE:
        for wrapped in (text, f"- {text}", f"> {text}", f"text\n\n{text}\n\nmore"):
            harmless(render_markdown(wrapped, link, "SKILL.md"))
        for name in ("py", "html", "js", "sh", "md", "json", "yaml", "php", "", "odd"):
            html = render_code(text, name)
            assert {tag for tag, _ in Page(html).elements} <= {"pre", "code", "span"}, text
            assert "<" not in re.sub(r"</?(?:pre|code|span)[^>]*>", "", html), text
            assert "&lt;" in html or "<" not in text


def test_markdown_that_is_honest_is_rendered():
    html = render_markdown(
        "# One\n\n## Two\n\n*a* **b** ~~c~~ `d`\n\n3. x\n4. y\n\n> q\n\n"
        "| a | b |\n|--|--|\n| 1 | 2 |\n\n[web](https://e.example/x?a=1) "
        "[own](references/a%20b.md#part) [up](../SKILL.md)\n\n```py\nimport os\n```\n",
        link,
        "docs/README.md",
    )
    for part in (
        "<h3>One</h3>", "<h4>Two</h4>", "<em>a</em>", "<strong>b</strong>", "<s>c</s>",
        "<code>d</code>", '<ol start="3">', "<blockquote>", "<td>1</td>",
        'href="https://e.example/x?a=1"', 'href="/skill/file?path=docs/references/a b.md"',
        'href="/skill/file?path=SKILL.md"', '<span class="t-key">import</span>',
    ):  # fmt: skip
        assert part in html
    harmless(html)
    picture = render_markdown("![a plan](https://e.example/plan.png)", link)
    assert '<span class="picture">picture: a plan</span>' in picture
    assert "e.example" not in picture


def test_invisible_characters_are_made_visible():
    text, count = show_invisible("a\u202eb\u200bc\U000e0041d\x1be")
    assert text == "a⟦U+202E⟧b⟦U+200B⟧c⟦U+E0041⟧d⟦U+001B⟧e"
    assert count == 4
    for fine in ("plain\ttext\n", "👩\u200d💻", "سلام", "नमस्ते", "中文", "e\u0301"):
        assert show_invisible(fine) == (fine, 0)


@pytest.mark.parametrize("piece", ["![", "**x", "[a]("])
def test_a_text_made_to_be_slow_is_not(piece):
    text = (piece * MAX_MARKDOWN_CHARS)[:MAX_MARKDOWN_CHARS]
    began = time.process_time()
    harmless(render_markdown(text, link))
    assert time.process_time() - began < 5
