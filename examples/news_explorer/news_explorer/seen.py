"""Remembers reported stories, so that a run reports only what is new.

A story is news when it is unknown, or has grown much since it was last reported. Its figures are
stored at that time, not in each run, so that slow growth becomes news as well.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from news_explorer.hacker_news import Story

log = logging.getLogger("news_explorer")

MIN_MORE_POINTS = 100
MIN_MORE_COMMENTS = 50
"""Twice as many as before, and at least so many more, is much."""
MAX_STORIES = 5_000


class Seen:
    """The stories that were seen, in a JSON file."""

    def __init__(self, path: str) -> None:
        """Read the file. One that cannot be read is put aside, and that is said."""
        self._path = path
        self._stories: dict[str, dict[str, int]] = {}
        try:
            with open(path, encoding="utf-8") as file:
                self._stories = _checked(json.load(file))
        except FileNotFoundError:
            pass
        except (ValueError, RecursionError) as exc:
            os.replace(path, path + ".broken")
            log.warning("%s cannot be read (%s): put aside, every story is new", path, exc)

    def __len__(self) -> int:
        return len(self._stories)

    def news(self, story: Story) -> str:
        """Why a story is news; empty when it is none."""
        before = self._stories.get(str(story.id))
        if before is None:
            return "new"
        for word, more in (("score", MIN_MORE_POINTS), ("comments", MIN_MORE_COMMENTS)):
            was, now = before[word], cast("int", getattr(story, word))
            if now >= max(2 * was, was + more):
                return f"moved: {word} {was} -> {now}"
        return ""

    def note(self, *stories: Story) -> None:
        """Remember stories as they are now, on disk too."""
        for story in stories:
            self._stories[str(story.id)] = {"score": story.score, "comments": story.comments}
        kept = sorted(self._stories, key=int)[-MAX_STORIES:]
        self._stories = {name: self._stories[name] for name in kept}
        write_whole(self._path, json.dumps({"version": 1, "stories": self._stories}, indent=1))


def _checked(data: Any) -> dict[str, dict[str, int]]:
    """What a file of ours holds.

    Raises:
        ValueError: it is none.
    """
    try:
        rows = cast("dict[str, dict[str, Any]]", data["stories"])
        return {
            str(int(name)): {word: int(row[word]) for word in ("score", "comments")}
            for name, row in rows.items()
        }
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError("it does not have the form of this file") from exc


def write_whole(path: str, text: str) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=".draft-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
