"""Reads web pages as text without menus and advertisements; private addresses are refused.

Addresses come from stories, never from the model, so the text of a page cannot choose what is
fetched. Each redirect is checked: this machine and its network are not read. (A name that resolves
differently between check and connection is not caught; use a filtering proxy where that matters.)
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import httpx2

from news_explorer.fetcher import Unreachable

if TYPE_CHECKING:
    from news_explorer.fetcher import Fetcher

_TEXT = frozenset({"text/html", "application/xhtml+xml", "text/plain"})
MAX_PAGE_BYTES = 1_000_000
MAX_TEXT_CHARS = 12_000
_PAGE_TIMEOUT_S = 20.0
_MAX_REDIRECTS = 5


class Page(NamedTuple):
    """A page as text."""

    url: str
    title: str
    text: str
    cut: bool
    """There is more of it."""


class Pages:
    """Reads pages."""

    def __init__(self, fetcher: Fetcher, *, private: bool = False) -> None:
        """Use a fetcher.

        Args:
            fetcher: Who gets them.
            private: Also from this machine and its neighbours; for a recorded server.
        """
        self._fetcher = fetcher
        self._private = private

    async def read(self, url: str) -> Page:
        """The text of a page.

        Raises:
            Unreachable: it cannot be had, or there is no text in it.
        """
        found = await self._fetcher.get(
            url,
            limit=MAX_PAGE_BYTES,
            kinds=_TEXT,
            patience=_PAGE_TIMEOUT_S,
            redirects=_MAX_REDIRECTS,
            check=self._check,
        )
        if found.kind == "text/plain":
            title, text = "", found.body.decode("utf-8", "replace")
        else:
            title, text = await asyncio.to_thread(_extract, found.body, found.url)
        if not text.strip():
            raise Unreachable("there is no text in it; go by the story and its comments")
        return Page(
            found.url, title, text[:MAX_TEXT_CHARS], found.cut or len(text) > MAX_TEXT_CHARS
        )

    async def _check(self, url: str) -> None:
        """Refuse an address that is not on the open web."""
        try:
            parts = httpx2.URL(url)
        except httpx2.InvalidURL as exc:
            raise Unreachable("its address cannot be used") from exc
        if parts.scheme not in {"http", "https"} or not parts.host or parts.userinfo:
            raise Unreachable("its address is not one of the web")
        if self._private:
            return
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(parts.host, None, type=socket.SOCK_STREAM)
        except OSError as exc:
            raise Unreachable(f"nobody knows the server `{parts.host}`") from exc
        if not all(_is_open(str(address[0])) for *_, address in found):
            raise Unreachable("its address is on this machine or beside it")


def _is_open(address: str) -> bool:
    """Whether an address belongs to everybody's network."""
    found = ipaddress.ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_global


def _extract(body: bytes, url: str) -> tuple[str, str]:
    """Title and text of an HTML page."""
    import trafilatura  # half a second, and only a run that reads pages needs it

    found = cast("Any", trafilatura.bare_extraction(
        body, url=url, fast=True, with_metadata=True, include_comments=False
    ))  # fmt: skip
    return ("", "") if found is None else (found.title or "", found.text or "")
