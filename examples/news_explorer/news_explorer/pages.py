"""What does a page say? Its text without menus and advertisements, and only if it is safe to ask.

Addresses come from stories, never from the model, so nothing that a page says can send us
somewhere. Each address on the way is looked at: this machine and its neighbours are not read. (A
server whose name changes between that look and the connection is not caught: where that matters,
let the program out through a proxy that knows better.)
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import httpx2

from news_explorer.fetching import Unreachable

if TYPE_CHECKING:
    from news_explorer.fetching import Fetcher

_TEXT = frozenset({"text/html", "application/xhtml+xml", "text/plain"})
LARGEST = 1_000_000
"""Bytes of a page that are read."""
LONGEST = 12_000
"""Characters of its text that the model gets."""
_PATIENCE = 20.0
_REDIRECTS = 5


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
            limit=LARGEST,
            kinds=_TEXT,
            patience=_PATIENCE,
            redirects=_REDIRECTS,
            check=self._check,
        )
        if found.kind == "text/plain":
            title, text = "", found.body.decode("utf-8", "replace")
        else:
            title, text = await asyncio.to_thread(_extract, found.body, found.url)
        if not text.strip():
            raise Unreachable("there is no text in it; go by the story and its comments")
        return Page(found.url, title, text[:LONGEST], found.cut or len(text) > LONGEST)

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
