"""The page of the Excel skill follows the template, and shows what the tools really answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

PARTS = (
    "## Tools",
    "## When to use it",
    "### When not",
    "### What it cannot do",
    "## Each tool",
    "## Scenarios",
    "## What was left out, and why",
)


@pytest.fixture
def page(root):
    with open(os.path.join(root, "docs", "skills", "excel.md"), encoding="utf-8") as file:
        return file.read()


@pytest.mark.req("E8")
@pytest.mark.timeout(60)
def test_the_page_is_fresh(root):
    done = subprocess.run(
        [sys.executable, os.path.join(root, "scripts", "skill_pages.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.req("E8")
def test_the_page_has_every_part_of_the_template(root, page):
    with open(os.path.join(root, "scripts", "skill_page.md"), encoding="utf-8") as file:
        template = file.read()
    for text in (template, page):
        places = [text.index(part) for part in PARTS]
        assert places == sorted(places)
    assert "{{" not in page
    assert "SKILL_EXCEL_ENABLED=false" in page
    assert re.search(r"openpyxl \d+\.\d+", page)
