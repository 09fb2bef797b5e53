"""An HTTP client with retries and size limits.

A busy server is asked again after growing pauses, or when its `Retry-After` says. A body is read in
chunks up to the limit; nothing is decompressed, so that a small response cannot become a large one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, NamedTuple

import httpx2

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("news_explorer")

BUSY = frozenset({429, 500, 502, 503, 504})
"""What a server says when another try may help."""
MAX_PAUSE_S = 30.0
HEADERS = {"User-Agent": "news-explorer (an example of Satchel)", "Accept-Encoding": "identity"}


class Unreachable(Exception):
    """It cannot be had; the text says why, and is read by the model."""


class Fetched(NamedTuple):
    """What came back."""

    url: str
    """Where it was in the end."""
    kind: str
    """The content type, such as `text/html`."""
    body: bytes
    cut: bool
    """There was more than we wanted."""


class Fetcher:
    """Gets things by HTTP."""

    def __init__(self, client: httpx2.AsyncClient, *, retries: int = 4, pause: float = 0.5) -> None:
        """Use a client.

        Args:
            client: It must not follow redirects by itself.
            retries: Times that a busy server is asked again.
            pause: Seconds before the first of them; each next one waits twice as long.
        """
        self._client = client
        self._retries = retries
        self._pause = pause

    async def get(
        self,
        url: str,
        *,
        limit: int,
        kinds: frozenset[str],
        patience: float = 20.0,
        redirects: int = 0,
        check: Callable[[str], Awaitable[None]] | None = None,
    ) -> Fetched:
        """Get one thing.

        Args:
            url: Where it is.
            limit: Bytes that are read at most.
            kinds: Content types that are wanted; others are not read at all.
            patience: Seconds for everything, redirects and further tries included.
            redirects: How many are followed.
            check: Asked before each address; it raises what it has against it.

        Raises:
            Unreachable: it cannot be had.
        """
        try:
            async with asyncio.timeout(patience):
                for _ in range(redirects + 1):
                    if check is not None:
                        await check(url)
                    found = await self._persist(url, limit, kinds)
                    if isinstance(found, Fetched):
                        return found
                    url = found
        except TimeoutError:
            raise Unreachable(f"no answer within {patience:g} s") from None
        raise Unreachable(f"more than {redirects} redirects")

    async def _persist(self, url: str, limit: int, kinds: frozenset[str]) -> Fetched | str:
        """The answer, or where to go instead; a busy server is asked again."""
        problem = ""
        for attempt in range(self._retries + 1):
            wait = 0.0
            try:
                async with self._client.stream("GET", url) as response:
                    if response.status_code not in BUSY:
                        return await _take(response, limit, kinds)
                    problem = f"HTTP {response.status_code}"
                    wait = _asked_for(response)
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as exc:
                raise Unreachable(f"the address cannot be used: {exc}") from exc
            except httpx2.TransportError as exc:
                problem = type(exc).__name__
            if attempt < self._retries:
                # Half by chance, so that many who were refused do not come back together.
                share = random.uniform(0.5, 1.0)  # noqa: S311 - chance, and no secret
                wait = max(wait, self._pause * 2**attempt * share)
                log.info("%s from %s, again in %.1f s", problem, httpx2.URL(url).host, wait)
                await asyncio.sleep(min(wait, MAX_PAUSE_S))
        raise Unreachable(f"{problem}, also after {self._retries} more tries")


async def _take(response: httpx2.Response, limit: int, kinds: frozenset[str]) -> Fetched | str:
    if response.has_redirect_location:
        return str(response.url.join(response.headers["location"]))
    if response.status_code != 200:
        raise Unreachable(f"HTTP {response.status_code}")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise Unreachable(f"it is `{kind[:60] or 'of no known type'}`, which is not read here")
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise Unreachable("it is packed, although we asked for it plain")
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > limit:
            return Fetched(str(response.url), kind, bytes(body[:limit]), cut=True)
    return Fetched(str(response.url), kind, bytes(body), cut=False)


def _asked_for(response: httpx2.Response) -> float:
    """Seconds that the server wants us to wait."""
    asked = response.headers.get("retry-after", "")
    return float(asked) if asked.isascii() and asked.isdigit() else 0.0
