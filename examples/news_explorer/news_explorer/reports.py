"""Writes reports: one Markdown file per day, to which each run adds a part.

The model writes the text. Titles, figures and links come from Hacker News: a link that belongs to
no story is removed, so that a page cannot put one into the report.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from news_explorer.seen import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from news_explorer.hacker_news import Story

MAX_REPORT_CHARS = 20_000
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_LETTER = re.compile(r"[A-Za-z\u3400-\u9fff]")
_IMAGE = re.compile(r"!\[([^\]\n]*)\]\s?(?:\([^)\n]*\)|\[[^\]\n]*\])")
_LINK = re.compile(
    r"\[(?P<label>[^\]\n]*)\]\(\s*<?(?P<target>[^)\s>]*)>?[^)\n]*\)"
    r"|(?P<bare>(?:https?|ftp|data|javascript):[^\s()<>\[\]，。；、]+)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"^ {0,3}\[[^\]\n]+\]:.*$", re.MULTILINE)
_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")


class Reports:
    """The reports in a folder."""

    def __init__(self, folder: str) -> None:
        """Write below `folder`."""
        self._folder = folder

    def add(self, now: datetime, text: str, stories: Sequence[tuple[Story, str]]) -> str:
        """Add a part to the report of the day; where it is."""
        path = os.path.join(self._folder, f"{now:%Y-%m-%d}.md")
        try:
            with open(path, encoding="utf-8") as file:
                before = file.read().rstrip("\n") + "\n"
        except FileNotFoundError:
            before = f"# Hacker News 观察：{now:%Y-%m-%d}\n"
        known = {one for story, _ in stories for one in (story.url, story.discussion)}
        fresh = sum(why == "new" for _, why in stories)
        title = f"## {now:%H:%M}　新增 {fresh} 条，升温 {len(stories) - fresh} 条"
        rows = "\n".join(_row(story) for story, _ in stories)
        write_whole(path, f"{before}\n{title}\n\n{only_known(text, known)}\n\n### 来源\n\n{rows}\n")
        return path


def problem_with(text: str) -> str:
    """What is wrong with a report; empty when nothing is."""
    if len(text) > MAX_REPORT_CHARS:
        return (
            f"the report has {len(text):,} characters, {MAX_REPORT_CHARS:,} are allowed: shorten it"
        )
    words = only_known(text, set())  # addresses are in no language
    chinese = len(_CHINESE.findall(words))
    if not chinese or chinese * 3 < len(_LETTER.findall(words)):
        return "the report is to be in Chinese: load the skill `chinese-writing` and write it anew"
    return ""


def only_known(text: str, known: set[str]) -> str:
    """The Markdown without pictures, HTML, and links that are not among the known ones."""
    text = _REFERENCE.sub("", _IMAGE.sub(r"\1", text))
    text = _LINK.sub(lambda link: _kept(link, known), text)
    return _MARKUP.sub("&lt;", text).strip()


def _kept(link: re.Match[str], known: set[str]) -> str:
    if link["bare"]:
        return link[0] if link["bare"] in known else "（链接略）"
    if link["target"] in known:
        return link[0]
    return _LINK.sub("（链接略）", link["label"])


def _row(story: Story) -> str:
    title = re.sub(r"([\\`*_\[\]<>])", r"\\\1", " ".join(story.title.split()))
    link = f"[{title}](<{story.url}>)" if _is_plain(story.url) else title
    return f"- {link}（{story.score} 分，[{story.comments} 条评论]({story.discussion})）"


def _is_plain(url: str) -> bool:
    """Whether an address cannot break out of a Markdown link."""
    return url.startswith(("https://", "http://")) and not re.search(r"[\s<>\\]", url)
