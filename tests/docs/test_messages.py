"""The messages on the page *It does not work* are messages of the program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHER_WORDS = {"error: externally-managed-environment", "satchel: command not found", "satchel run"}
"""Messages of pip and of the shell, and a command."""


@pytest.mark.parametrize(
    ("page", "written", "side"),
    [("troubleshooting.md", " ", 0), ("troubleshooting.zh.md", "[\u4e00-\u9fff]", 1)],
    ids=["English", "Chinese"],
)
def test_each_message_on_the_page_is_one_of_the_program(page, written, side):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    cells = re.findall(r"^\| (.+?) \|", text, re.MULTILINE)
    shown = [words for cell in cells for _, words in re.findall(r"(`+)(.+?)\1", cell)]
    messages = {words.strip() for words in shown if re.search(written, words)} - OTHER_WORDS
    assert len(messages) > 15
    known = json.loads((ROOT / "src/satchel/locale/zh.json").read_text(encoding="utf-8"))
    texts = "\n".join(re.sub(r"`?\{\w+\}`?", "…", pair[side]) for pair in known.items())
    assert {words for words in messages if _plain(words) not in texts} == set()


def _plain(words: str) -> str:
    """The part of a message without what differs from case to case, as the program spells it."""
    return re.sub(r"`[^`]+`|\(\d+\)|（\d+）|^\d+ ", "…", words).strip("… ")
