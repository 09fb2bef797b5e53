"""Chinese pages: each has an English one, and says so when it is older."""

from __future__ import annotations

from pathlib import Path

import pytest

import docs_site
import page_blocks

DOCS = Path(__file__).parents[2] / "docs"


def test_current_translations_have_the_parts_of_their_english_pages():
    # `python scripts/docs_site.py --list` names the stale ones, which fail no test.
    pages = [page for page in docs_site.translations(DOCS) if not page.stale]
    assert {page.source: _parts(DOCS / page.path) for page in pages} == {
        page.source: _parts(DOCS / page.source) for page in pages
    }


def _parts(page: Path) -> tuple[list[str], list[str]]:
    """The levels of the headings, and the files that a reader writes."""
    text = page.read_text(encoding="utf-8")
    levels = [level for _, level, _ in docs_site.headings(text)]
    return levels, sorted(block.title for block in page_blocks.parse(text) if block.title)


@pytest.fixture
def docs(tmp_path):
    """A page with a translation, and one without."""
    english = "# Start\n\n```text\n# not a heading\n```\n\n## Install it\n"
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "start.md").write_text(english, encoding="utf-8")
    (tmp_path / "guide" / "more.md").write_text("# More\n", encoding="utf-8")
    digest = docs_site.digest(tmp_path / "guide" / "start.md")
    text = f"---\nsource: {digest}\n---\n\n# 开始\n\n## 安装\n\n[更多](start.zh.md#install-it)\n"
    (tmp_path / "guide" / "start.zh.md").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_translation_takes_the_place_and_the_anchors_of_its_source(docs):
    docs_site.write_chinese_docs(docs)
    text = (docs / "guide" / "start.md").read_text(encoding="utf-8")
    assert "# 开始 { #start }\n\n## 安装 { #install-it }\n\n[更多](start.md#install-it)" in text
    assert not (docs / "guide" / "start.zh.md").exists()


def test_a_page_without_a_translation_is_english_with_a_note(docs):
    docs_site.write_chinese_docs(docs)
    text = (docs / "guide" / "more.md").read_text(encoding="utf-8")
    assert text.startswith('# More\n\n!!! note "本页暂无中文版"\n')


def test_a_translation_says_that_its_source_has_changed(docs):
    with (docs / "guide" / "start.md").open("a", encoding="utf-8") as file:
        file.write("One sentence more.\n")
    docs_site.write_chinese_docs(docs)
    text = (docs / "guide" / "start.md").read_text(encoding="utf-8")
    assert '!!! warning "本页内容可能已过时"' in text
    assert "[英文版](../../../guide/start/)" in text


def test_a_translation_names_the_text_that_it_translates(docs):
    (docs / "guide" / "more.zh.md").write_text("# 更多\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"more\.zh\.md: .* `source: DIGEST`"):
        docs_site.translations(docs)
