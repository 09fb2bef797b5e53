"""A client of the public Hacker News API.

`/v0/topstories.json` is a list of numbers, `/v0/item/NUMBER.json` one story or comment, or `null`.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from news_explorer.fetcher import Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from news_explorer.fetcher import Fetcher

BASE_URL = "https://hacker-news.firebaseio.com"
_JSON = frozenset({"application/json"})
_MAX_ITEM_BYTES = 1_000_000
_MAX_CONCURRENT_REQUESTS = 8
_TAG = re.compile(r"<[^<>]{0,500}>")


class Story(NamedTuple):
    """A story with its current figures."""

    id: int
    title: str
    url: str
    """Empty when the story is only a text."""
    by: str
    score: int
    comments: int
    text: str
    kids: tuple[int, ...]

    @property
    def discussion(self) -> str:
        """Where people talk about it."""
        return f"https://news.ycombinator.com/item?id={self.id}"


class Comment(NamedTuple):
    """A comment and its depth in the thread."""

    by: str
    text: str
    depth: int


class HackerNews:
    """The API."""

    def __init__(self, fetcher: Fetcher, base_url: str = BASE_URL) -> None:
        """Ask `base_url` through a fetcher."""
        self._fetcher = fetcher
        self._base = base_url.rstrip("/")
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def top(self, count: int) -> list[Story]:
        """The first stories of the front page. Jobs, polls and deleted ones are left out.

        Raises:
            Unreachable: the API does not answer.
        """
        found = await self._get("topstories.json")
        if not isinstance(found, list):
            raise Unreachable("Hacker News gave no list of stories")
        ids = [one for one in cast("list[Any]", found) if _is_id(one)]
        stories = await asyncio.gather(*(self.story(one) for one in ids[:count]))
        return [one for one in stories if one is not None]

    async def story(self, story_id: int) -> Story | None:
        """Fetch one story; None when the item is none."""
        item = await self._item(story_id)
        if item.get("type") != "story" or not item.get("title"):
            return None
        return Story(
            story_id,
            str(item["title"]),
            str(item.get("url") or ""),
            str(item.get("by") or ""),
            _number(item.get("score")),
            _number(item.get("descendants")),
            plain(str(item.get("text") or "")),
            _ids(item.get("kids")),
        )

    async def comments(self, story: Story, count: int, replies: int = 1) -> list[Comment]:
        """The first comments of a story, each with its first replies."""
        return await self._talk(story.kids[:count], replies, 0)

    async def _talk(self, ids: Iterable[int], replies: int, depth: int) -> list[Comment]:
        found: list[Comment] = []
        for item in await asyncio.gather(*(self._item(one) for one in ids)):
            if item.get("type") == "comment" and item.get("text"):
                by = str(item.get("by") or "")
                found.append(Comment(by, plain(str(item["text"])), depth))
                if depth < 1:
                    found += await self._talk(_ids(item.get("kids"))[:replies], replies, depth + 1)
        return found

    async def _item(self, item_id: int) -> dict[str, Any]:
        item = await self._get(f"item/{item_id}.json")
        if not isinstance(item, dict):
            return {}
        found = cast("dict[str, Any]", item)
        return {} if found.get("dead") or found.get("deleted") else found

    async def _get(self, path: str) -> Any:
        async with self._slots:
            url = f"{self._base}/v0/{path}"
            fetched = await self._fetcher.get(url, limit=_MAX_ITEM_BYTES, kinds=_JSON)
        try:
            return json.loads(fetched.body)
        except (ValueError, RecursionError) as exc:
            raise Unreachable(f"Hacker News gave no JSON for `{path}`") from exc


def plain(text: str) -> str:
    """The HTML of a comment as text."""
    return html.unescape(_TAG.sub("", text.replace("<p>", "\n\n"))).strip()


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _is_id(value: Any) -> bool:
    return _number(value) > 0


def _ids(value: Any) -> tuple[int, ...]:
    return (
        tuple(one for one in cast("list[Any]", value) if _is_id(one))
        if isinstance(value, list)
        else ()
    )
