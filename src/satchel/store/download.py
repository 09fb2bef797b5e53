"""Reads files over https or from a folder: bounded in size and time, from one host alone.

What is read is verified by the caller; the limits protect against servers that send too much or
never end. Plain http is for this machine only.
"""

from __future__ import annotations

import errno
import os
import time
from contextvars import copy_context
from http.client import HTTPException
from threading import Thread
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, build_opener

from satchel._fs import read_plain
from satchel.errors import InvalidInput, NotFound, Refused, ServerFailed
from satchel.i18n import say
from satchel.store.archive.rules import shown

TIMEOUT_S = 20.0
"""For the connection, and for each part of an answer."""
MAX_SECONDS = 120.0
"""For a whole answer."""
_EXTRA_PER_FILE_S = 2.0
_EXTRA_PER_BYTE_S = 1 / 8192
"""All answers of a reader may take `MAX_SECONDS`, and this for what came: a slow server must not
hold a command for `MAX_SECONDS` with each of many files."""
_PART_BYTES = 64 << 10
LOOPBACK_HOSTS = frozenset(("localhost", "127.0.0.1", "::1"))


def is_address(text: str) -> bool:
    """Whether a text is an address rather than a path."""
    return text.lower().startswith(("https://", "http://"))


def check_address(url: str) -> str:
    """Return an address without its last slash; raises `InvalidInput` for one that is not used."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        parts, host, port = urlsplit(""), "", None
    if parts.scheme == "http" and host and host not in LOOPBACK_HOSTS:
        address = f"https://{host}{f':{port}' if port else ''}{parts.path}"
        raise InvalidInput(
            say("Plain http is only for this machine: `{url}`", url=f"http://{shown(host)}"),
            say("Write `{value}`", value=address),
        )
    extra = parts.username or parts.password or parts.query or parts.fragment
    is_plain = url.isprintable() and url.isascii() and " " not in url
    if not host or parts.scheme not in ("https", "http") or extra or not is_plain:
        raise InvalidInput(
            say("`{value}` is not valid", value=shown(url.rpartition("@")[2].partition("?")[0])),
            say("Give an address such as `https://skills.example.com`, or a folder"),
        )
    return url.rstrip("/")


class FileReader:
    """Reads the files below one address or folder."""

    def __init__(self, base: str) -> None:
        """Read below `base`, an address that `check_address` returned, or an absolute folder."""
        self.base = base
        here = is_address(base) and urlsplit(base).hostname in LOOPBACK_HOSTS
        proxies = [ProxyHandler({})] if here else []
        self._allowed = MAX_SECONDS
        """Seconds for what is read from now on."""
        self._opener = build_opener(_Unfollowed(), *proxies)
        self._opener.addheaders = [("User-Agent", "satchel"), ("Accept-Encoding", "identity")]

    def read(self, path: str, limit: int) -> bytes:
        """The content of a file.

        Raises:
            NotFound: there is no such file.
            ServerFailed: the server does not answer, or with an error.
            Refused: the file is larger than `limit`, does not end in time, or is elsewhere.
        """
        if is_address(self.base):
            return self._download(f"{self.base}/{path}", limit)
        full = os.path.join(self.base, *path.split("/"))
        try:
            return read_plain(full, limit)
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise _missing(full) from exc
        except OSError as exc:
            if exc.errno == errno.EFBIG:
                raise _too_large(full, limit) from exc
            raise _failed(full, exc.strerror or str(exc)) from exc

    def _download(self, url: str, limit: int) -> bytes:
        """Transfer in a thread: a server may send even its headers without an end."""
        done: list[bytes | BaseException] = []
        began = time.monotonic()
        seconds = min(MAX_SECONDS, self._allowed)

        def run() -> None:
            try:
                done.append(self._transfer(url, limit, seconds))
            except BaseException as exc:  # noqa: BLE001 - raised by the thread that waits
                done.append(exc)

        # Errors are in the language of the caller.
        thread = Thread(target=copy_context().run, args=(run,), daemon=True)
        thread.start()
        thread.join(seconds + 1)
        result = done[0] if done else _endless(url, seconds)
        self._allowed = max(self._allowed - (time.monotonic() - began), TIMEOUT_S)
        if isinstance(result, BaseException):
            raise result
        self._allowed += _EXTRA_PER_FILE_S + len(result) * _EXTRA_PER_BYTE_S
        self._allowed = min(self._allowed, MAX_SECONDS)
        return result

    def _transfer(self, url: str, limit: int, seconds: float) -> bytes:
        try:
            with self._opener.open(url, timeout=TIMEOUT_S) as answer:
                return _read_answer(answer, url, limit, seconds)
        except HTTPError as exc:
            exc.close()
            if exc.code in (404, 410):
                raise _missing(url) from exc
            if target := exc.headers.get("Location"):
                raise Refused(
                    say("`{url}` redirects to another address: `{target}`",
                        url=shown(url), target=shown(target)),
                    say("Do not use it; ask its keeper"),
                ) from exc  # fmt: skip
            raise _failed(url, say("it answers with status {status}", status=exc.code)) from exc
        except (OSError, HTTPException, ValueError) as exc:
            inner = exc.reason if isinstance(exc, URLError) else exc
            text = getattr(inner, "strerror", None) or str(inner) or type(inner).__name__
            raise _failed(url, text[:200]) from exc


class _Unfollowed(HTTPRedirectHandler):
    """Reports redirects as errors: a hub has one host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none."""


def _read_answer(answer: Any, url: str, limit: int, seconds: float) -> bytes:
    until = time.monotonic() + seconds
    parts: list[bytes] = []
    size = 0
    while part := answer.read1(_PART_BYTES):
        size += len(part)
        parts.append(part)
        if size > limit:
            raise _too_large(url, limit)
        if time.monotonic() > until:  # each part came in time, all of them did not
            raise _endless(url, seconds)
    return b"".join(parts)


def _missing(where: str) -> NotFound:
    return NotFound(say("There is no `{path}`", path=shown(where)), say("Check the path"))


def _endless(url: str, seconds: float) -> Refused:
    return Refused(
        say("`{url}` did not end within {seconds} seconds",
            url=shown(url), seconds=round(seconds)),
        say("Try again later"),
    )  # fmt: skip


def _too_large(where: str, limit: int) -> Refused:
    return Refused(
        say("`{url}` is larger than the {limit} bytes that it may have",
            url=shown(where), limit=f"{limit:,}"),
        say("Report it to the operator of the server"),
    )  # fmt: skip


def _failed(url: str, reason: str) -> ServerFailed:
    return ServerFailed(
        say("`{path}` cannot be used: {reason}", path=shown(url), reason=shown(reason)),
        say("Try again later"),
    )
