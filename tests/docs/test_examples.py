"""Every code block of the README and the docs runs."""

from __future__ import annotations

import glob
import os

import pytest

import page_blocks
from page_runner import PageRunner

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

NOT_RUN = {
    ("README.md", "it changes the reader's environment"),
    ("docs/tutorial/first-skill.md", "it changes the reader's environment"),
    ("docs/tutorial/first-skill.zh.md", "it changes the reader's environment"),
}
"""Blocks that do not run: page and reason. Shrink this list; it never has more than five."""


def _pages() -> list[str]:
    pattern = os.path.join(ROOT, "docs", "**", "*.md")
    found = [os.path.join(ROOT, "README.md"), *glob.glob(pattern, recursive=True)]
    return sorted(os.path.relpath(path, ROOT).replace(os.sep, "/") for path in found)


def _blocks(page: str) -> list[page_blocks.Block]:
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return page_blocks.parse(file.read())


@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", _pages())
def test_page_does_what_it_says(page, tmp_path, monkeypatch):
    runner = PageRunner(page, str(tmp_path))
    monkeypatch.chdir(runner.folder)
    for name, value in runner.environment.items():
        if os.environ.get(name) != value:
            monkeypatch.setenv(name, value)
    try:
        for block in _blocks(page):
            runner.run(block)
    finally:
        runner.close()


def test_blocks_that_do_not_run_are_few_and_known():
    found = {(page, block.not_run) for page in _pages() for block in _blocks(page) if block.not_run}
    assert found <= NOT_RUN, f"new blocks that do not run: {sorted(found - NOT_RUN)}"
    assert len(NOT_RUN) <= 5
